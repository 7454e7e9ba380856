"""Carries out the orders of a node as a real host does (`host/gasloc/work`): one after the other, with
local steps as many short jobs. Writes to the disk are atomic."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from seedflood.errors import DiskFullError
from seedflood.protocol.gasloc.orders import (
    Adopt,
    Adopted,
    Checkpointed,
    Correct,
    Drop,
    Encode,
    Encoded,
    Keep,
    KeepCheckpoint,
    KeptPart,
    Mix,
    OpenCopy,
    Opened,
    Order,
    Publish,
    Ready,
    Restore,
    Restored,
    Stepped,
    Take,
    TakeLocalSteps,
    Taken,
)
from seedflood.protocol.origin import OriginId
from simulation.gasloc.disk import Checkpoint, MemorySink
from simulation.gasloc.replica import Bytes, Pair, Replica, Values, digest_of, read, spell

if TYPE_CHECKING:
    from simulation.gasloc.host import GaslocHost

COMPUTE_SECONDS = (0.0005, 0.005)
"""How long an order takes that is not a local step and writes nothing."""
DISK_SECONDS = (0.001, 0.05)

UNFIT = (ValueError, LookupError, TypeError, ArithmeticError, AttributeError)
"""Exceptions for bytes that are not numbers; a neighbour made them."""


class Compute:
    """The model of one process. replica: its present state."""

    def __init__(self, host: "GaslocHost", replica: Replica) -> None:
        self.replica = replica
        self._host = host
        self._disk = host.journal

    def put(self, order: Order) -> None:
        match order:
            case TakeLocalSteps():
                self._take_steps(order.count)
            case Restore():
                needed = self._host.node.needed()
                self._later(DISK_SECONDS, lambda: self._restore(needed))
            case Encode():
                self._later(COMPUTE_SECONDS, lambda: self._encode(order.round))
            case Mix():
                self._order_mix(order)
            case Correct():
                self._later(COMPUTE_SECONDS, lambda: self._pull(order.round, order.partner, order.weight))
            case Publish():
                self._later(COMPUTE_SECONDS, self._publish)
            case _:
                self._put_to_disk(order)

    def _put_to_disk(self, order: Keep | Drop | KeepCheckpoint | OpenCopy | Adopt | Take) -> None:
        match order:
            case Keep():
                self._later(DISK_SECONDS, lambda: self._keep(order))
            case Drop():
                self._later(COMPUTE_SECONDS, lambda: self._disk.drop_part((order.round, order.partner)))
            case KeepCheckpoint():
                self._later(DISK_SECONDS, lambda: self._keep_checkpoint(order))
            case OpenCopy():
                self._later(DISK_SECONDS, lambda: self._open_copy(order))
            case Adopt():
                self._later(DISK_SECONDS, lambda: self._adopt(order))
            case Take():
                self._later(DISK_SECONDS, lambda: self._take(order))

    def _later(self, span: tuple[float, float], job: Callable[[], None]) -> None:
        self._host.work.put(self._host.rng.uniform(*span), job)

    # To begin

    def _restore(self, needed: set[Pair]) -> None:
        host, disk = self._host, self._disk
        disk.drop_other_parts(needed)
        newest = disk.checkpoints[-1] if disk.checkpoints else None
        if newest is not None:
            self.replica.restore(newest.data, is_closing=self._host.rules.is_closing(newest.round - 1))
            self.replica.mixed, self.replica.own = dict(newest.mixed), newest.own
        serial, round_ = (newest.serial, newest.round) if newest is not None else (0, 0)
        host.driver.answered(Restored(serial, round_))

    # Rounds

    def _take_steps(self, left: int) -> None:
        host = self._host
        pace = host.pace

        def step() -> None:
            self.replica.take_steps(1)
            if left > 1:
                self._take_steps(left - 1)
            else:
                host.stepped()
                host.driver.answered(Stepped())

        self._later((pace.seconds_min, pace.seconds_max), step)

    def _encode(self, round_: int) -> None:
        host = self._host
        if host.rules.is_closing(round_):
            self.replica.begin_closing()
        content = Bytes(spell(self.replica.propose(), host.padding))
        self._note(content.digest)
        host.driver.answered(Encoded(content))
        host.exchange_began()

    def _keep(self, order: Keep) -> None:
        host, pair = self._host, (order.round, order.partner)
        data = self._disk.close(_memory(order.sink))
        is_right = digest_of(data) == order.digest
        if is_right:
            try:
                difference = self.replica.difference(read(data, len(self.replica.values)))
                self._disk.keep_part(pair, difference)
            except UNFIT:
                is_right = False
            except DiskFullError:
                return  # nobody hears of it, and the round ends without the partner
        if is_right:
            host.took(order.partner, digest_of(data))
        host.driver.answered(KeptPart(*pair, order.digest, is_right))

    def _order_mix(self, order: Mix) -> None:
        left = list(self._disk.incoming)
        self._host.exchange_ended(order.round)

        def mix() -> None:
            for partner, weight in order.partners:
                self._pull(order.round, partner, weight)
            self.replica.finish(has_momentum=order.has_momentum)
            self._disk.remove(left)

        self._later(COMPUTE_SECONDS, mix)

    def _pull(self, round_: int, partner: OriginId, weight: float) -> None:
        difference = self._disk.kept.get((round_, partner))
        if difference is None:
            self._host.mistakes.append(f"lost what it had kept of round {round_}")
            return
        self.replica.pull((round_, partner), weight, difference)

    # The end

    def _publish(self) -> None:
        host, content = self._host, self._content()
        host.driver.answered(Ready(content))

    def _take(self, order: Take) -> None:
        host, content = self._host, None
        values = self._read(order.sink, order.digest)
        if values is not None:
            host.took(order.giver, order.digest)
            self.replica.take(values)
            content = self._content()
        else:
            host.refused(order.giver)
        host.driver.answered(Taken(content))

    def _content(self) -> Bytes:
        content = Bytes(spell(self.replica.values, self._host.padding))
        self._note(content.digest)
        return content

    def _read(self, sink: object, digest: bytes) -> Values | None:
        """The numbers in a sink; None if these are not the offered bytes, or not a replica."""
        data = self._disk.close(_memory(sink))
        if digest_of(data) == digest:
            with suppress(*UNFIT):
                return read(data, len(self.replica.values))
        return None

    def _note(self, digest: bytes) -> None:
        """Notes a content of this host. Of a liar, its offers are noted instead."""
        if self._host.origin not in self._host.chronicle.liars:
            self._host.wrote(digest)

    # Checkpoints, and copies of them

    def _keep_checkpoint(self, order: KeepCheckpoint) -> None:
        host, replica = self._host, self.replica
        data = replica.save(host.padding)
        host.check_checkpoint(order.round)
        host.wrote(digest_of(data))  # also if it is killed while it saves: what it saved is there
        try:
            self._disk.save(Checkpoint(order.serial, order.round, data, dict(replica.mixed), replica.own))
        except DiskFullError:
            host.driver.answered(Checkpointed(order.serial, is_written=False))  # the one before it stays
            return
        host.driver.answered(Checkpointed(order.serial))

    def _open_copy(self, order: OpenCopy) -> None:
        host, checkpoints = self._host, self._disk.checkpoints
        content = Bytes(checkpoints[-1].data) if checkpoints else None
        round_ = checkpoints[-1].round if checkpoints else 0
        host.driver.answered(Opened(order.peer, content, round_))

    def _adopt(self, order: Adopt) -> None:
        host = self._host
        data = self._disk.close(_memory(order.sink))
        is_right = digest_of(data) == order.digest
        if is_right:
            try:
                fetch = host.node.gasloc.fetch
                self.replica.restore(data, is_closing=host.rules.is_closing(fetch.round - 1))
            except UNFIT:
                is_right = False
        if is_right:
            host.adopted(order.donor, digest_of(data))
        else:
            host.refused(order.donor)
        host.driver.answered(Adopted(is_right))


def _memory(sink: object) -> MemorySink:
    assert isinstance(sink, MemorySink), "sinks are in memory here"
    return sink
