"""The owner of the links: what they ask of the node behind them, and its settings."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from seedflood.errors import SeedfloodError
from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import NEIGHBOURS_MAX, Hello, Message
from seedflood.transport.answer import EPOCH_BYTES_MAX, AnswerItem
from seedflood.transport.budget import Use
from seedflood.transport.queue import QUEUE_BUNDLES_MAX


class Owner(ABC):
    """The node that owns the links. Every method is called on the event loop and must return soon.

    Only `is_welcome` and `received` may raise, and only PeerError: then the link is closed and the fault counted. Who
    welcomes nobody has no links, and learns nothing of them.
    """

    @abstractmethod
    def hello(self) -> Hello:
        """Our hello, up to date."""

    @abstractmethod
    def is_welcome(self, hello: Hello) -> None:
        """Raises PeerError if the sender may not take part. Run, base model and version have been compared before. Who
        names no base model is a relay that has still to learn it, and only gets our hello. Whom the operator has
        removed (reason "removed") gets our roster, and believes that."""

    @abstractmethod
    def refused(self, address: str, error: SeedfloodError) -> None:
        """A peer that we dialled does not fit: RunMismatchError or PeerError. It is dialled again, slowly."""

    @abstractmethod
    def failed(self, error: Exception) -> None: ...

    def connected(self, peer: OriginId, hello: Hello) -> None: ...

    def disconnected(self, peer: OriginId, reason: str) -> None: ...

    def received(self, peer: OriginId, message: Message) -> Use:
        """Takes a message and returns what it was good for. Raises PeerError."""
        return Use()

    def pulled(self, peer: OriginId, is_complete: bool) -> None: ...

    def progressed(self, peer: OriginId) -> None:
        """A part of an item came; more parts of that item are still missing."""

    def next_content(self, peer: OriginId) -> bytes | None:
        """The next frame for the connection for contents; asked while that has room. None: nothing until `carry`."""
        return None

    def pull_answer(self, frontier: tuple[Held, ...]) -> Iterator[AnswerItem]:
        """Everything that the frontier lacks, read while it is sent. The asker gets it item by item in `received`."""
        return iter(())


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """listen: host:port. links_max: with this many links we refuse peers that dial us. Peers that we dial are linked
    as long as our statement has room to name them. epoch_bytes_max: the most bytes of a neighbour's sum, compressed.
    has_contents: each link has a second connection, for contents."""

    listen: str
    links_max: int = NEIGHBOURS_MAX
    epoch_bytes_max: int = EPOCH_BYTES_MAX
    has_contents: bool = False
    hello_seconds: float = 10.0
    redial_seconds_min: float = 0.25
    redial_seconds_max: float = 30.0
    queue_bundles_max: int = QUEUE_BUNDLES_MAX
