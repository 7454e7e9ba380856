"""One origin's model, rows and outer steps, for the compute thread.

It is not thread-safe, but another thread may read an open offer. Local steps may go on while an offer is open. Which
order means what: `host/gasloc/work`.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from seedflood.training.devices import vector_norm
from seedflood.training.evaluation import Evaluation, evaluate
from seedflood.training.gasloc import checkpoint
from seedflood.training.gasloc.checkpoint import Arrays, Facts
from seedflood.training.gasloc.encodings import EncodingName
from seedflood.training.gasloc.exchange import Arrival, Difference, Outgoing, Stored
from seedflood.training.gasloc.outer import Outer, OuterSettings
from seedflood.training.gasloc.packing import PackedTask
from seedflood.training.gasloc.worker import Worker, WorkerSettings
from seedflood.training.generation import Sample
from seedflood.training.models import BaseModel, digest_weights, export_model, try_export

LAST_ENCODING: EncodingName = "float32"
"""At the end of a run nobody can make up for what an encoding left out."""

NORM_FACTOR, SIZE_MIN = 100.0, 0.01
"""Replicas are at most that many times as large as the base model, or as if all of its numbers had that size. A model
from scratch grows about fivefold (GPT-2); hosts that began at other times or are of unlike speed differ by less.
A limit that follows a host's own parameters would grow with every lie; one by how far hosts drift in a round would keep
parts apart for good that trained by themselves for long."""


class Trainer:
    """Trains a base model, whose weights must be float32.

    norm_max: nothing is taken from others whose norm is not below it. It follows from the base model, so it is the same
    on all hosts. What they mix lies between what they have: without momentum no number of lies moves a replica beyond.
    """

    def __init__(
        self, base: BaseModel, task: PackedTask, origin: int, worker: WorkerSettings, outer: OuterSettings
    ) -> None:
        self.base = base
        self.task = task
        self.worker = Worker(base.model, task, origin, worker)
        values_F, layout = self.worker.flat.values_F, self.worker.flat.layout
        self.outer = Outer(values_F, outer, [place.start for place in layout.places])
        norm, least = float(torch.linalg.vector_norm(values_F)), SIZE_MIN * math.sqrt(len(values_F))
        self.norm_max = NORM_FACTOR * max(norm, least)

    @property
    def is_sane(self) -> bool:
        """Are our parameters what others would take?"""
        return vector_norm(self.worker.flat.values_F) < self.norm_max

    def difference(self, payload: Stored, digest: bytes) -> Difference:
        """What a round mixes of a partner. payload: its parameters, uint8, as they were offered under this digest.
        Raises PeerError if they are not that, or no parameters of this run."""
        offer = self.outer.offer
        assert offer is not None, "nothing was offered"
        arrival = self._arrival(payload, digest, offer.encoding.name)
        arrival.check()
        return Difference(offer, arrival)

    def content(self) -> Outgoing:
        """The present parameters, to be fetched as they are; its digest is computed. They must not change meanwhile."""
        return Outgoing(self.worker.flat.values_F, LAST_ENCODING)

    def take(self, payload: Stored, digest: bytes, *, may_be_far: bool) -> bool:
        """Our parameters become these, with which all end. Returns False, and changes nothing, if they are far from
        ours and may not be. Raises PeerError, and changes nothing, if these are not the offered bytes."""
        result = self._arrival(payload, digest, LAST_ENCODING)
        result.check()
        is_taken = may_be_far or self.outer.is_near(result.sent)
        if is_taken:
            self.outer.replace(result.sent)
        return is_taken

    def snapshot(self) -> tuple[Arrays, Facts]:
        """Arrays and facts for a checkpoint. Write them before the next step. The facts name the base model, too."""
        arrays, facts = checkpoint.save(self.worker, self.outer)
        return arrays, facts | self._facts()

    def is_restorable(self, facts: Mapping[str, str]) -> bool:
        """Does a snapshot with these facts, from any origin, fit this model and these settings?"""
        ours = self._facts().items()
        return all(facts.get(name) == value for name, value in ours) and checkpoint.is_restorable(
            self.worker, self.outer, facts
        )

    def adopt(self, arrays: Arrays, facts: Mapping[str, str]) -> bool:
        """Goes on from the snapshot of another host, with an optimiser that begins anew. Changes nothing, and returns
        False, if its arrays are beyond what a host of this run can have. Raises ValueError, and changes nothing, if it
        does not fit."""
        kept, its_facts = checkpoint.from_another(arrays, facts)
        is_sane = checkpoint.is_within({name: arrays[name] for name in kept}, self.norm_max)
        if is_sane:
            checkpoint.restore(self.worker, self.outer, kept, its_facts)
        return is_sane

    def restore(self, arrays: Mapping[str, Any], facts: Mapping[str, str]) -> None:
        """Resumes from a snapshot. Raises ValueError, and changes nothing, if it does not fit."""
        checkpoint.restore(self.worker, self.outer, arrays, facts)

    def complete(self) -> None:
        """Nothing is left open at the end of a run."""

    def digest(self) -> bytes:
        flat = self.worker.flat
        return digest_weights(flat.layout.views(flat.values_F))

    def evaluate(self) -> Evaluation:
        return evaluate(self.worker.causal, self.task)

    def samples(self) -> list[Sample]:
        """None: rows are packed, so it is not known where a prompt ends."""
        return []

    def export(self, folder: Path, card: str) -> Path:
        return export_model(self.base, self.worker.flat.weights(), folder, card=card)

    def try_export(self, folder: Path) -> None:
        """See `models.try_export`."""
        try_export(self.base, folder, self.base.parameters_count)

    @property
    def base_digest(self) -> bytes:
        return self.base.digest

    def count_rows(self) -> dict[str, int]:
        """How many packed sequences this host trains on, and how many there are for validation."""
        task = self.task
        return {"sequences of this host": len(task.train_ST), "validation sequences": len(task.validation_ST)}

    def _arrival(self, payload: Stored, digest: bytes, encoding: EncodingName) -> Arrival:
        values_F = self.worker.flat.values_F
        return Arrival(len(values_F), encoding, payload, digest, device=values_F.device, norm_max=self.norm_max)

    def _facts(self) -> Facts:
        return {"base_digest": self.base.digest.hex()}
