"""The compute adapter: carries out the orders of a node that trains by GASLoC, and answers on the loop.

All orders are jobs of the one compute thread, in order. So what is kept, mixed or written is exactly what the node
means. Local steps are many short jobs: other orders run between them, and a node that is told to leave need not wait.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from seedflood.errors import DiskFullError, PeerError
from seedflood.host.compute_thread import Run, nothing
from seedflood.host.gasloc.files import FileContent, Incoming, KeptParts, StoredArray, path_of, remove
from seedflood.protocol.gasloc.node import GaslocNode
from seedflood.protocol.gasloc.orders import (
    Adopt,
    Correct,
    Drop,
    Encode,
    Keep,
    KeepCheckpoint,
    Mix,
    OpenCopy,
    Order,
    Publish,
    Restore,
    Take,
    TakeLocalSteps,
)
from seedflood.protocol.gasloc.transfer import Content
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.storage.snapshots import Facts, Snapshots, load, load_digest, load_facts
from seedflood.training.gasloc.encodings import EncodingName
from seedflood.training.gasloc.exchange import KeptDifference
from seedflood.training.gasloc.outer import Mixed, Pull
from seedflood.training.gasloc.trainer import Trainer
from seedflood.training.gasloc.worker import LocalSteps

PIECE_SECONDS = 1.0
"""How long a job of local steps should take."""

UNFIT = (ValueError, LookupError, TypeError, OSError, ArithmeticError, RuntimeError)
"""Exceptions that a copy may raise if it is not a valid checkpoint; a neighbour made it."""

Do = Callable[[Callable[[float], None]], None]
"""Runs an action on the driver: `drive` of the daemon and `do` of the driver."""


class Watcher:
    """Hears on the loop what the model did. An engine overrides the methods that it needs."""

    def loaded(self, what: str, step: int) -> None:
        """Parameters were loaded from a file. step: the next one."""

    def stepped(self, step: int, taken: LocalSteps) -> None:
        """Local steps were taken. step: the first of them."""

    def mixed(self, mixed: Mixed) -> None: ...

    def troubled(self, sentence: str, reason: str) -> None:
        """Something went wrong, but the node goes on."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where files are. snapshots: the checkpoints."""

    incoming: Incoming
    kept: KeptParts
    snapshots: Snapshots


class ComputeAdapter:
    """node, do: must be set before the first order."""

    node: GaslocNode
    do: Do

    def __init__(self, trainer: Trainer, places: Places, run: Run, run_id: bytes, watcher: Watcher) -> None:
        """run_id: of the run to which the checkpoints belong."""
        self._trainer = trainer
        self._incoming, self._kept, self._snapshots = places.incoming, places.kept, places.snapshots
        self._run = run
        self._run_id = run_id.hex()
        self._watcher = watcher
        self._piece = 1
        """How many local steps one job takes."""
        self._numbers = len(trainer.worker.flat.values_F)

    def put(self, order: Order) -> None:
        match order:
            case Restore() | Adopt():
                self._load(order)
            case TakeLocalSteps():
                self._take_steps(order.count)
            case Encode():
                self._order_encode(order)
            case Publish() | Take():
                self._end(order)
            case Mix() | Correct():
                self._add(order)
            case Keep():
                self._order_keep(order)
            case Drop():
                self._run(lambda: self._kept.drop(order.round, order.partner), nothing)
            case KeepCheckpoint():
                self._order_checkpoint(order)
            case OpenCopy():
                self._order_copy(order)

    def _load(self, order: Restore | Adopt) -> None:
        if isinstance(order, Adopt):
            self._order_adopt(order)
        else:
            self._order_restore()

    def _add(self, order: Mix | Correct) -> None:
        if isinstance(order, Mix):
            self._order_mix(order)
        else:
            self._run(lambda: self._correct(order), self._tell_lost)

    def _end(self, order: Publish | Take) -> None:
        if isinstance(order, Take):
            self._order_take(order)
        else:
            self._run(self._trainer.content, lambda content: self.do(lambda now: self.node.published(content, now)))

    # To begin

    def _order_restore(self) -> None:
        needed = self.node.needed()

        def restore() -> tuple[int, int]:
            self._kept.drop_others(needed)
            return self._restore()

        def answer(found: tuple[int, int]) -> None:
            if found[0]:
                self._watcher.loaded("checkpoint", self._trainer.worker.step)
            self.do(lambda now: self.node.restored(*found, now))

        self._run(restore, answer)

    def _restore(self) -> tuple[int, int]:
        """Serial and round of the newest usable checkpoint, which is loaded; zeros if there is none."""
        snapshot = self._snapshots.load_latest(self._is_usable)
        self._snapshots.set_aside()
        if snapshot is None:
            return 0, 0
        self._trainer.restore(snapshot.arrays, snapshot.facts)
        self._close_offer(snapshot.facts)
        return int(snapshot.facts["serial"]), int(snapshot.facts["next_round"])

    def _is_usable(self, facts: Facts) -> bool:
        return facts.get("run_id") == self._run_id and self._trainer.is_restorable(facts)

    def _close_offer(self, facts: Facts) -> None:
        """If the checkpoint was made during an exchange, ends that round without partners. What was mixed with partners
        is added separately (`Correct`)."""
        if self._trainer.outer.offer is not None:
            is_closing = self.node.rules.is_closing(int(facts["next_round"]) - 1)
            self._trainer.outer.mix([], has_momentum=not is_closing)

    # Rounds

    def _take_steps(self, left: int) -> None:
        count = min(left, self._piece)

        def take() -> tuple[int, LocalSteps]:
            return self._trainer.worker.step, self._trainer.take_steps(count)

        def go_on(done: tuple[int, LocalSteps]) -> None:
            step, taken = done
            self._piece = max(1, int(PIECE_SECONDS * taken.steps / max(taken.seconds, 1e-6)))
            self._watcher.stepped(step, taken)
            if left > count:
                self._take_steps(left - count)
            else:
                self.do(self.node.stepped)

        self._run(take, go_on)

    def _order_encode(self, order: Encode) -> None:
        def encode() -> Content:
            return self._trainer.propose(cast(EncodingName, order.encoding))

        self._run(encode, lambda content: self.do(lambda now: self.node.encoded(content, now)))

    def _order_keep(self, order: Keep) -> None:
        def answer(is_right: bool | None) -> None:
            if is_right is None:
                self._watcher.troubled("parameters of a partner were not kept", "no space on the disk")
            else:
                self.do(
                    lambda now: self.node.kept(order.round, order.partner, order.digest, is_right=is_right, now=now)
                )

        self._run(lambda: self._keep(order), answer)

    def _keep(self, order: Keep) -> bool | None:
        """Were these the offered bytes, and are they kept? None if there is no space: then nobody hears of it, and the
        round ends without the partner."""
        path, trainer = path_of(order.sink), self._trainer
        try:
            buffer = StoredArray(path, np.uint8, order.sink.held)
            arrival = trainer.expect(len(buffer), order.digest, buffer=buffer)
            self._kept.keep(order.round, order.partner, trainer.difference(arrival).checked())
        except (PeerError, ValueError):
            return False
        except DiskFullError:
            return None
        finally:
            remove([path])
        return True

    def _order_mix(self, order: Mix) -> None:
        left = self._incoming.all()
        """Files of this round or of an earlier life, which may be deleted afterwards. Later files belong to the next
        round."""

        def mix() -> tuple[Mixed, int]:
            found = [self._pull(order.round, partner, weight) for partner, weight in order.partners]
            pulls = [one for one in found if one is not None]
            mixed = self._trainer.outer.mix(pulls, has_momentum=order.has_momentum)
            remove(left)
            return mixed, len(found) - len(pulls)

        def tell(done: tuple[Mixed, int]) -> None:
            mixed, lost = done
            self._tell_lost(lost)
            self._watcher.mixed(mixed)

        self._run(mix, tell)

    # The end

    def _order_take(self, order: Take) -> None:
        def take() -> Content | None:
            path, trainer = path_of(order.sink), self._trainer
            try:
                buffer = StoredArray(path, np.uint8, order.sink.held)
                trainer.take(trainer.expect(len(buffer), order.digest, buffer=buffer, is_last=True))
            except PeerError:
                return None
            finally:
                remove([path])
            return trainer.content()

        self._run(take, lambda content: self.do(lambda now: self.node.taken(content, now)))

    def _correct(self, order: Correct) -> int:
        """Adds the part of an earlier round. Returns how many parts were lost: 0 or 1."""
        pull = self._pull(order.round, order.partner, order.weight)
        if pull is not None:
            self._trainer.outer.correct(pull)
        return int(pull is None)

    def _pull(self, round_: int, partner: OriginId, weight: float) -> Pull | None:
        difference = self._kept.load(round_, partner, self._numbers)
        if difference is None:
            return None
        return Pull(weight, KeptDifference(difference, self._trainer.base.device))

    def _tell_lost(self, lost: int) -> None:
        if lost:
            self._watcher.troubled("a part of an exchange is lost", "the disk does not hold what was kept")

    # Checkpoints, and copies of them

    def _order_checkpoint(self, order: KeepCheckpoint) -> None:
        def write() -> str | None:
            arrays, facts = self._trainer.snapshot()
            facts |= {"run_id": self._run_id, "serial": str(order.serial), "next_round": str(order.round)}
            try:
                self._snapshots.save(order.serial, arrays, facts)
            except DiskFullError as error:  # the one before it stays, and so does all that was kept since
                return str(error)
            return None

        def answer(fault: str | None) -> None:
            if fault is None:
                self.do(lambda now: self.node.checkpointed(order.serial, now))
            else:
                self._watcher.troubled("no checkpoint was written", fault)

        self._run(write, answer)

    def _order_copy(self, order: OpenCopy) -> None:
        def answer(found: tuple[FileContent | None, int]) -> None:
            content, round_ = found
            self.do(lambda now: self.node.opened(order.peer, content, round_, now))

        self._run(self._open_copy, answer)

    def _open_copy(self) -> tuple[FileContent | None, int]:
        path = self._snapshots.newest()
        if path is None:
            return None, 0
        try:
            return FileContent(path, load_digest(path)), int(load_facts(path)["next_round"])
        except (OSError, ValueError, LookupError):
            return None, 0

    def _order_adopt(self, order: Adopt) -> None:
        def adopt() -> bool:
            path = path_of(order.sink)
            try:
                return load_digest(path) == order.digest and self._adopt(path)
            except UNFIT:
                return False
            finally:
                remove([path])

        def answer(is_right: bool) -> None:
            if is_right:
                self._watcher.loaded("copy", self._trainer.worker.step)
            else:
                name = self.node.membership.name(order.donor)
                self._watcher.troubled("a copy was not taken", f"what {name} sent is no copy of this run")
            self.do(lambda now: self.node.adopted(is_right=is_right, now=now))

        self._run(adopt, answer)

    def _adopt(self, path: Path) -> bool:
        """Loads a copy, if it is usable. Raises one of `UNFIT` if the file is not a checkpoint."""
        arrays, facts = load(path)
        is_usable = 0 <= int(facts["step"]) <= STEP_MAX and self._is_usable(facts)
        if not is_usable or not self._trainer.adopt(arrays, facts):
            return False
        self._close_offer(facts)
        return True
