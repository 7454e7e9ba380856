"""The seams of a driver: what stands behind them differs between daemon, simulation and tests.

This is what any algorithm needs. One that computes has a seam for its model, too, and one that keeps or tells more has
seams that go on from these.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Member, Message
from seedflood.protocol.swarm.outputs import Event, Record


class Journal(Protocol):
    """The durable log. Every method raises JournalError, those that write DiskFullError if there is no space."""

    def keep(self, members: Iterable[Member], records: Iterable[Record] = (), *, durable: bool) -> None:
        """Adds to the open group; `durable`: the group is on the disk before this returns. If it raises, the whole
        group since the last `commit` is undone."""

    def commit(self) -> None:
        """Ends the open group: from here on kill -9 cannot take it away. If it raises, the group is undone."""


class Links(Protocol):
    """The neighbours. Neither method blocks or raises; what cannot be sent is repaired later."""

    def send(self, peer: OriginId, messages: Sequence[Message]) -> None: ...


class Observer(Protocol):
    """Whoever wants to know: log, metrics, a test. Called often and on the hot path: must return at once."""

    def noted(self, event: Event) -> None: ...

    def sent(self, peer: OriginId, message: Message) -> None:
        """A message was handed to the link with the peer. Answers to pulls do not pass here."""

    def finished(self) -> None: ...

    def superseded(self) -> None:
        """Another process with our key was started later: the driver has halted."""
