"""The trainer: one origin's model, data and results. Each method is something that the daemon asks of the compute
thread.

Not safe for threads: from loading on, the compute thread owns it.
"""

import copy
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn

import torch

from seedflood import VERSION
from seedflood.config import NodeSettings, RunSettings
from seedflood.errors import ModelError
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import Update, UpdateValue
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.protocol.seedflood.payload import Pairs
from seedflood.protocol.seedflood.seeds import probe_seed
from seedflood.protocol.seedflood.statement import Rows
from seedflood.training.devices import find_device
from seedflood.training.evaluation import Evaluation, evaluate
from seedflood.training.generation import Sample, write_samples
from seedflood.training.loading import choose_device, load_base, load_rows
from seedflood.training.models import BaseModel, try_export
from seedflood.training.objectives.reward import Reward
from seedflood.training.ranks import ALONE, OneRank, Ranks, RoundKind
from seedflood.training.seedflood.compression import compress
from seedflood.training.seedflood.estimate import Measurement
from seedflood.training.seedflood.offloaded import copies_of, room_for_weights
from seedflood.training.seedflood.placing import check_copies
from seedflood.training.seedflood.quantised import check_quantisation
from seedflood.training.seedflood.replica import Replica
from seedflood.training.seedflood.rewarded import Texts, measure_rewarded, write_texts
from seedflood.training.seedflood.schedule import ONE, factor_of
from seedflood.training.shards import Shard
from seedflood.training.tasks import Task

ORIGIN_OFFSET = 1 << 63
"""Ranks send each other integers of 64 bits with a sign; an origin has 64 bits without one."""


@dataclass(frozen=True, slots=True)
class Round:
    """What an origin measured in one round: what is published of each step, and facts for the log.

    step: the first one. loss: mean over the round of the training loss at the centre. seconds: wall clock, with what
    was written before for it. figures, words: of its last batch, by name.
    """

    step: int
    probes: tuple[UpdateValue, ...]
    loss: float
    seconds: float
    is_finite: bool
    is_clipped: bool
    figures: Mapping[str, float] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)


class Trainer:
    """Loads model and data; then measures, applies, evaluates and exports. Raises ConfigError, ModelError or DataError
    while loading."""

    def __init__(self, run: RunSettings, node: NodeSettings, ranks: OneRank = ALONE) -> None:
        """ranks: the processes that are this host. That of rank 0 does what the daemon asks, the others `follow`."""
        if node.threads is not None:
            torch.set_num_threads(node.threads)
        self.run = run
        self.node = node
        self.ranks = ranks
        check_quantisation(node.quantisation)
        with ranks.turn():
            self._load()
        share = self.rows.place, self.rows.shares, node.audit > 0
        settings = (VERSION, torch.__version__, self._device, node.micro_batch, self.dtype, share)
        ranks.check_equal(self.base_digest, self.rows.digest, run.run_id(), repr(settings).encode())
        self._rate, self._factor = self.replica.learning_rate, factor_of(run)
        self.compression = self.replica.compression
        """The form of what is published of a step; whoever receives updates checks it."""
        self._early: dict[int, Texts] = {}
        """By the steps for which they were written."""

    def stop(self) -> None:
        """Nobody wants what is computed any more. Called by another thread."""
        if (replica := getattr(self, "replica", None)) is not None:  # it may be made again just now
            replica.causal.is_stopped = True

    def _load(self) -> None:
        base, node = self._load_base(), self.node
        self.task = load_rows(self.run, node, base)
        shard = self.task.shard
        self.rows = Rows(shard.index, shard.count, self.task.digest())
        """What is measured on."""
        self._others: dict[Shard, Task] = {}
        """Of other hosts, by their shares."""
        if not node.audit:
            self.task.drop_others()
        if node.evaluate_examples:
            del self.task.validation_examples[node.evaluate_examples :]
        self.base_digest = base.digest
        self._device = base.destination.type
        self.parameters = (base.parameters_count, base.parameters_count * base.dtype.itemsize)
        """How many parameters there are, and how many bytes they take."""
        self.replica = make_replica(self.run, base, node, self.ranks)

    def _load_base(self) -> BaseModel:
        keeps_parts = self.ranks.count > 1 or self.node.quantisation is not None
        room = 0.0 if keeps_parts else room_for_weights(find_device(choose_device(self.node)))
        return load_base(self.run, self.node, room=room / copies_of(self.run))

    def rate_of(self, step: int, halvings: int) -> float:
        """The learning rate of a step. halvings: of it, so far. Also while another thread makes the replica again."""
        return self._rate * self._factor(step) / ONE * 2.0**-halvings

    @property
    def dtype(self) -> str:
        """Of the weights that measure."""
        return self.node.quantisation or str(self.replica.base.dtype).removeprefix("torch.")

    def beside(self, node: NodeSettings) -> "Trainer":
        """A trainer of another origin on the same replica, with rows of its own; for one process that is all
        origins."""
        other = self._on(load_rows(self.run, node, self.replica.base))
        other.node = node
        other.task.drop_others()
        other.rows = self.rows._replace(place=other.task.shard.index, shares=other.task.shard.count)
        return other

    def measure(self, origin: OriginId, step: int, count: int) -> Round:
        """Measures `count` consecutive steps, as the run's `estimate` says."""
        begun = time.perf_counter()
        measured = self._measure_in_turn(origin, step, count)
        early_seconds = self._early[step].seconds if step in self._early else 0.0
        return Round(
            step,
            tuple(result.value for result in measured),
            sum(result.loss for result in measured) / count,
            time.perf_counter() - begun + early_seconds,
            all(result.is_finite for result in measured),
            any(result.is_clipped for result in measured),
            measured[-1].figures,
            measured[-1].words,
        )

    def write_ahead(self, origin: OriginId, after: int) -> bool:
        """Writes the texts of one step that has none yet, of the `ahead` steps behind `after`, which was measured last.
        False: there is no such step. All other texts are dropped."""
        wanted = self._drop_early(after)
        step = next((step for step in wanted if step not in self._early), None)
        if step is None:
            return False
        self._order(RoundKind.WRITE, origin, step, after)
        self._write_here(origin, step, after)
        return True

    def _write_here(self, origin: OriginId, step: int, after: int) -> None:
        """Together with all other ranks."""
        objective = self.task.objective
        assert isinstance(objective, Reward), "only what is rewarded is written"
        batch = self.task.batch(origin, step)
        self._early[step] = write_texts(self.replica, objective, batch, (origin, step), step - after)

    def _drop_early(self, after: int) -> range:
        """Drops the texts of all steps but those that may be written after this one, which are returned."""
        wanted = range(after + 1, min(after + 1 + self.run.objective.ahead, self.run.steps))
        self._early = {step: texts for step, texts in self._early.items() if step in wanted}
        return wanted

    def measure_again(self, origin: OriginId, rows: Rows, step: int, count: int) -> Round:
        """Measures what another origin has measured, or will, on its rows: a share like ours of the rows that we
        have."""
        return self._of_shard(Shard(rows.place, rows.shares)).measure(origin, step, count)

    def _of_shard(self, shard: Shard) -> "Trainer":
        """The same trainer on another share of the rows, or on ours."""
        if shard not in self._others:
            self._others[shard] = self.task if shard == self.task.shard else self.task.of_shard(shard)
        return self._on(self._others[shard])

    def _on(self, task: Task) -> "Trainer":
        """The same trainer on other rows, for which nothing was written ahead."""
        other = copy.copy(self)
        other.task, other._early = task, {}
        return other

    def rebuild(self, closed: Iterable[ClosedEpoch], pages: Iterable[Sequence[Update]]) -> None:
        """Makes the replica again, from the base model on. Whatever was wrong in its memory is gone, weights included.

        closed: the sums. pages: all other updates. The epoch that was open is open again. Raises ModelError if the base
        model cannot be loaded any more.
        """
        epoch = self.replica.epoch
        self._early.clear()
        self.ranks.order(RoundKind.RELOAD)
        self._load_again()
        for one in closed:
            self.replica.adopt(one.epoch, one.coefficients, ())
        self.replica.replay(pages)
        self.replica.open_epoch(epoch)

    def _load_again(self) -> None:
        """The replica before its first update."""
        del self.replica  # before the new one is loaded: there may not be memory for two
        self.ranks.drop()
        with self.ranks.turn():
            base = self._load_base()
            if base.digest != self.base_digest:
                raise ModelError(
                    "The base model here has changed since the node started: put back the files it was started with."
                )
            self.replica = make_replica(self.run, base, self.node, self.ranks)

    def _measure_in_turn(self, origin: OriginId, step: int, count: int) -> list[Measurement]:
        """Measures each step on rows of its own, as if the steps before were applied.

        They are applied for good when the window closes, like everyone's.
        """
        own: list[Update] = []
        measured: list[Measurement] = []
        for one in range(step, step + count):
            if own:
                self.replica.preview(own)
            measured.append(self._measure_one(origin, one))
            own.append(Update(origin, one, measured[-1].value))
        if count > 1:
            self.replica.preview(())
        return measured

    def _measure_one(self, origin: OriginId, step: int) -> Measurement:
        replica, shard = self.replica, self.task.shard
        replica.open_for(step)
        early = self._early.get(step)
        if early is not None and early.halvings != replica.halvings:
            early = None  # the run has gone back since
        self._order(RoundKind.MEASURE, origin, step, shard.index, shard.count, early is not None)
        return self._measure_here(origin, step, early)

    def _order(self, kind: RoundKind, origin: OriginId, step: int, *facts: int) -> None:
        """The other ranks are to do this at the weights of ours."""
        if self.ranks.count > 1:
            replica = self.replica
            self.ranks.order(kind, origin - ORIGIN_OFFSET, step, replica.epoch, *facts, values=replica.increments)

    def follow(self, ranks: Ranks) -> NoReturn:
        """On another rank than the first: does what rank 0 orders, until this is gone. Raises RankError then."""
        while True:
            kind, facts = ranks.next_order()
            if kind == RoundKind.MEASURE:
                origin, step, epoch, *shard, is_early = facts
                self.replica.compute_as(epoch, ranks.receive(self.replica.increments))
                early = self._early[step] if is_early else None
                self._of_shard(Shard(*shard))._measure_here(origin + ORIGIN_OFFSET, step, early)
            elif kind == RoundKind.WRITE:
                origin, step, epoch, after = facts
                self.replica.compute_as(epoch, ranks.receive(self.replica.increments))
                self._drop_early(after)
                self._write_here(origin + ORIGIN_OFFSET, step, after)
            elif kind == RoundKind.FOLD:
                (epoch,) = facts
                self.replica.fold_increments(epoch, ranks.receive(self.replica.increments))
            elif kind == RoundKind.RELOAD:
                self._load_again()

    def _measure_here(self, origin: OriginId, step: int, early: Texts | None) -> Measurement:
        """Together with all other ranks. early: texts that were written before."""
        objective, batch = self.task.objective, self.task.batch(origin, step)
        if isinstance(self.compression, Pairs):
            return self.replica.measure(step, probe_seed(self.run.seed, origin, step), objective, batch)
        slopes_of = partial(
            self.replica.measure_gradient,
            *(step, objective),
            micro_batch=self.node.micro_batch,
            is_checkpointed=self.node.saves_memory,
        )
        if isinstance(objective, Reward):
            slopes = measure_rewarded(self.replica, objective, batch, (origin, step), slopes_of, early)
        else:
            slopes = slopes_of(batch)
        return compress(self.compression, slopes)

    def complete(self) -> None:
        """Nothing more is measured: makes the weights stand for everything that was applied."""
        self.replica.open_latest()

    def evaluate(self) -> Evaluation:
        """The figures over the validation rows, with the weights as they are. Raises DataError if there are no rows."""
        return evaluate(self.replica.causal, self.task)

    def samples(self) -> list[Sample]:
        """See `write_samples`: with the weights as they are."""
        return write_samples(self.replica.base, self.task)

    def digest(self) -> bytes:
        return self.replica.digest()

    def export(self, folder: Path, card: str) -> Path:
        """Writes the weights as a Hugging Face folder with a model card; if they are quantised, on the base model as it
        was, which then needs the memory that it needs. Raises ModelError."""
        replica = self.replica
        if self.node.quantisation is not None:
            node = self.node.unquantised()
            replica = make_replica(self.run, load_base(self.run, node), node)
            self.replica.hand_over(replica)
        return replica.export(folder, card=card)

    def try_export(self, folder: Path) -> None:
        """See `models.try_export`."""
        try_export(self.replica.base, folder, self.parameters[0])

    def count_rows(self) -> dict[str, int]:
        """How many rows this host trains on, and how many there are for validation."""
        return {
            "training rows of this host": len(self.task.train_rows),
            "validation rows": len(self.task.validation_examples),
        }


def make_replica(run: RunSettings, base: BaseModel, node: NodeSettings, ranks: OneRank = ALONE) -> Replica:
    """The replica of a run before its first update. node: where old epochs are put aside, and how weights are
    stored. ranks: by which."""
    check_copies(base, run)
    reference = load_base(run, node).causal if run.objective.kl else None  # mapped, if the file is of float32
    return Replica(base, run, node.state, quantize=node.quantisation, reference=reference, ranks=ranks)
