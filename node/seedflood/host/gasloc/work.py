"""What the orders of a node that trains by GASLoC mean to a trainer and its files.

What is mixed or written is exactly what the node means, for orders are carried out one after the other. Local steps are
many short jobs: other orders run between them, and a node that is asked to leave need not wait.
"""

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from seedflood.errors import ConfigError, DiskFullError, PeerError
from seedflood.host.compute import Done
from seedflood.host.gasloc.files import FileContent, Incoming, StoredArray, path_of, remove
from seedflood.protocol.gasloc import orders
from seedflood.protocol.gasloc.node import GaslocNode
from seedflood.protocol.origin import STEP_MAX
from seedflood.storage.snapshots import Facts, Snapshots, load, load_digest, load_facts
from seedflood.training.gasloc.encodings import EncodingName
from seedflood.training.gasloc.outer import Term
from seedflood.training.gasloc.reach import WIDE
from seedflood.training.gasloc.trainer import Trainer

PIECE_SECONDS = 1.0
"""How long a job of local steps should take."""

UNFIT = (ValueError, LookupError, TypeError, OSError, ArithmeticError, RuntimeError)
"""Exceptions that a copy may raise if it is not a valid checkpoint; a neighbour made it."""


class Resumed(NamedTuple):
    """Parameters were loaded from a file: a "checkpoint", or a "copy". step: the next one."""

    what: str
    step: int


class Trouble(NamedTuple):
    """Something went wrong, but the node goes on."""

    sentence: str
    reason: str


class Work:
    """Carries out orders. Facts of them: `Resumed`, `LocalSteps`, `Mixed` and `Trouble`. node: must be set before the
    first order."""

    node: GaslocNode

    def __init__(self, trainer: Trainer, incoming: Incoming, snapshots: Snapshots, run_id: bytes) -> None:
        """snapshots: the checkpoints. run_id: of the run to which they belong."""
        self._trainer = trainer
        self._incoming, self._snapshots = incoming, snapshots
        self._run_id = run_id.hex()
        self._piece = 1
        """How many local steps one job takes."""

    def begin(self, order: orders.Order) -> Callable[[], Done]:
        """What the compute thread is to do. Called on the loop."""
        if isinstance(order, orders.Mix):
            return partial(self._mix, order, self._incoming.all())
        carry_out: Mapping[type[orders.Order], Callable[[Any], Done]] = {
            orders.Restore: self._restore,
            orders.TakeLocalSteps: self._take_steps,
            orders.Encode: self._encode,
            orders.Publish: lambda _: Done(orders.Ready(self._trainer.content())),
            orders.Take: self._take,
            orders.KeepCheckpoint: self._keep_checkpoint,
            orders.OpenCopy: self._open_copy,
            orders.Adopt: self._adopt,
        }
        return partial(carry_out[type(order)], order)

    # To begin

    def _restore(self, _: orders.Restore) -> Done:
        snapshot = self._snapshots.load_latest(self._is_usable)
        if snapshot is None:
            return Done(orders.Restored(None))
        self._trainer.restore(snapshot.arrays, snapshot.facts)
        restored = orders.Restored(int(snapshot.facts["next_round"]))
        return Done(restored, [Resumed("checkpoint", self._trainer.worker.step)])

    def _is_usable(self, facts: Facts) -> bool:
        return facts.get("run_id") == self._run_id and self._trainer.is_restorable(facts)

    # Rounds

    def _take_steps(self, order: orders.TakeLocalSteps) -> Done:
        count = min(order.count, self._piece)
        taken = self._trainer.worker.take_steps(count)
        self._piece = max(1, int(PIECE_SECONDS * taken.steps / max(taken.seconds, 1e-6)))
        if order.count > count:
            return Done(None, [taken], rest=replace(order, count=order.count - count))
        return Done(orders.Stepped(), [taken])

    def _encode(self, order: orders.Encode) -> Done:
        if not self._trainer.is_sane:
            raise ConfigError(
                "the parameters of this host have grown beyond what any other takes: begin the run anew, with a lower "
                "learning_rate in [run.gasloc]."
            )
        return Done(orders.Encoded(self._trainer.outer.propose(cast(EncodingName, order.encoding))))

    def _mix(self, order: orders.Mix, left: Collection[Path]) -> Done:
        """left: files of this round or of an earlier life, which are deleted afterwards. Later files belong to the next
        round."""
        terms, refused = [], []
        for share in order.partners:
            payload = StoredArray(path_of(share.sink), np.uint8, share.sink.held)
            try:
                difference = self._trainer.difference(payload, share.digest)
            except PeerError:
                refused.append(share.partner)
            else:
                terms.append(Term(share.weight, difference))
        width = WIDE if self.node.rules.is_closing(order.round) else 1.0
        mixed = self._trainer.outer.mix(terms, has_momentum=order.has_momentum, width=width)
        remove(left)
        return Done(orders.RoundMixed(tuple(refused)), [mixed])

    # The end

    def _take(self, order: orders.Take) -> Done:
        path, trainer = path_of(order.sink), self._trainer
        payload = StoredArray(path, np.uint8, order.sink.held)
        try:
            is_taken = trainer.take(payload, order.digest, may_be_far=order.is_backed)
        except PeerError:
            return Done(orders.Taken(None))
        finally:
            remove([path])
        return Done(orders.Taken(trainer.content()) if is_taken else orders.Taken(None, is_far=True))

    # Checkpoints, and copies of them

    def _keep_checkpoint(self, order: orders.KeepCheckpoint) -> Done:
        arrays, facts = self._trainer.snapshot()
        facts |= {"run_id": self._run_id, "next_round": str(order.round)}
        try:
            self._snapshots.save(order.round, arrays, facts)
        except DiskFullError as error:  # the one before it stays
            unwritten = orders.Checkpointed(order.round, is_written=False)
            return Done(unwritten, [Trouble("no checkpoint was written", str(error))])
        return Done(orders.Checkpointed(order.round))

    def _open_copy(self, order: orders.OpenCopy) -> Done:
        if (path := self._snapshots.newest()) is not None:
            with contextlib.suppress(OSError, ValueError, LookupError):
                content, round_ = FileContent(path, load_digest(path)), int(load_facts(path)["next_round"])
                return Done(orders.Opened(order.peer, content, round_))
        return Done(orders.Opened(order.peer, None, 0))

    def _adopt(self, order: orders.Adopt) -> Done:
        path = path_of(order.sink)
        try:
            is_right = load_digest(path) == order.digest and self._load_copy(path)
        except UNFIT:
            is_right = False
        finally:
            remove([path])
        if is_right:
            return Done(orders.Adopted(True), [Resumed("copy", self._trainer.worker.step)])
        reason = f"what {self.node.membership.name(order.donor)} sent is no copy of this run"
        return Done(orders.Adopted(False), [Trouble("a copy was not taken", reason)])

    def _load_copy(self, path: Path) -> bool:
        """Loads a copy, if it is usable. Raises one of `UNFIT` if the file is not a checkpoint."""
        arrays, facts = load(path)
        is_usable = 0 <= int(facts["step"]) <= STEP_MAX and self._is_usable(facts)
        return is_usable and self._trainer.adopt(arrays, facts)
