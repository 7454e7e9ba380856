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
    Encode,
    Encoded,
    KeepCheckpoint,
    Mix,
    OpenCopy,
    Opened,
    Order,
    Publish,
    Ready,
    Restore,
    Restored,
    RoundMixed,
    Stepped,
    Take,
    TakeLocalSteps,
    Taken,
)
from simulation.gasloc.disk import Checkpoint, MemorySink
from simulation.gasloc.replica import WIDE, Bytes, Replica, Values, digest_of, read, spell

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
                self._later(DISK_SECONDS, self._restore)
            case Encode():
                self._later(COMPUTE_SECONDS, lambda: self._encode(order.round))
            case Mix():
                self._order_mix(order)
            case Publish():
                self._later(COMPUTE_SECONDS, self._publish)
            case _:
                self._put_to_disk(order)

    def _put_to_disk(self, order: KeepCheckpoint | OpenCopy | Adopt | Take) -> None:
        match order:
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

    def _restore(self) -> None:
        host, disk = self._host, self._disk
        newest = disk.checkpoints[-1] if disk.checkpoints else None
        if newest is not None:
            self.replica.restore(newest.data)
            self.replica.mixed, self.replica.own = dict(newest.mixed), newest.own
        host.driver.answered(Restored(newest.round if newest is not None else None))

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

    def _order_mix(self, order: Mix) -> None:
        left = list(self._disk.incoming)
        self._host.exchange_ended(order.round)
        self._later(COMPUTE_SECONDS, lambda: self._mix(order, left))

    def _mix(self, order: Mix, left: list[str]) -> None:
        host, refused = self._host, []
        for share in order.partners:
            values = self._read(share.sink, share.digest)
            if values is None:
                host.refused(share.partner)
                refused.append(share.partner)
            else:
                host.took(share.partner, digest_of(_memory(share.sink).data))
                self.replica.pull((order.round, share.partner), share.weight, values, self._width(order.round))
        self.replica.finish(has_momentum=order.has_momentum)
        self._disk.remove(left)
        host.driver.answered(RoundMixed(tuple(refused)))

    def _width(self, round_: int) -> int:
        return WIDE if self._host.rules.is_closing(round_) else 1

    # The end

    def _publish(self) -> None:
        host, content = self._host, self._content()
        host.driver.answered(Ready(content))

    def _take(self, order: Take) -> None:
        host = self._host
        values = self._read(order.sink, order.digest)
        if values is None:
            host.refused(order.giver)
            host.driver.answered(Taken(None))
        elif order.is_backed or self.replica.is_near(values):
            host.took(order.giver, digest_of(_memory(order.sink).data))
            self.replica.take(values)
            host.driver.answered(Taken(self._content()))
        else:
            host.driver.answered(Taken(None, is_far=True))

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
            self._disk.save(Checkpoint(order.round, data, dict(replica.mixed), replica.own))
        except DiskFullError:
            host.driver.answered(Checkpointed(order.round, is_written=False))  # the one before it stays
            return
        host.driver.answered(Checkpointed(order.round))

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
                self.replica.restore(data)
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
