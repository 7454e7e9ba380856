"""The seams of a driver: interfaces that daemon, simulation and tests implement differently.

Any algorithm needs these. One that keeps or reports more extends its journal and its observer.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Member, Message
from seedflood.protocol.swarm.outputs import Event, Record


class Journal(Protocol):
    """The durable log. Every method raises JournalError; those that write raise DiskFullError if there is no space."""

    def keep(self, members: Iterable[Member], records: Iterable[Record] = (), *, durable: bool) -> None:
        """Adds to the open group. durable: the group is on the disk before this returns. If it raises, everything since
        the last `commit` is rolled back."""

    def commit(self) -> None:
        """Ends the open group: afterwards `kill -9` cannot undo it. If it raises, the group is rolled back."""


class Links(Protocol):
    """The links to neighbours. No method blocks or raises; repair makes up for what cannot be sent."""

    def send(self, peer: OriginId, messages: Sequence[Message]) -> None: ...

    def pull(self, peer: OriginId, frontier: tuple[Held, ...]) -> object:
        """Asks the peer for everything that the frontier lacks. At the end `Driver.pulled` is called."""

    def carry(self, peer: OriginId) -> None:
        """Something waits for the connection for contents (`Driver.next_content`)."""

    def drop(self, peer: OriginId, reason: str) -> None:
        """Ends the link with the peer. Nothing more comes from it; `Driver.disconnected` is called some time later."""


class Observer(Protocol):
    """Gets what happens: log, metrics, a test. It is called often, on the hot path, and must return at once."""

    def noted(self, event: Event) -> None: ...

    def sent(self, peer: OriginId, message: Message) -> None:
        """A message was given to the link with the peer. Not called for answers to pulls."""

    def finished(self) -> None: ...

    def superseded(self) -> None:
        """Another process with our key was started later. The driver has halted."""

    def removed(self) -> None:
        """The roster does not list this host any more. The driver has halted."""
