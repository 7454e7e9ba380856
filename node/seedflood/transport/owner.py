"""The owner of the links: what they ask of the node behind them, and its settings."""

from dataclasses import dataclass
from typing import Protocol

from seedflood.errors import SeedfloodError
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import NEIGHBOURS_MAX, Hello
from seedflood.transport.answer import EPOCH_BYTES_MAX
from seedflood.transport.link import LinkOwner
from seedflood.transport.queue import QUEUE_BUNDLES_MAX


class Owner(LinkOwner, Protocol):
    """The node that owns the links. Every method is called on the event loop and must return soon.

    Only `is_welcome` and `received` may raise, and only PeerError: then the link is closed and the fault counted.
    """

    def hello(self) -> Hello:
        """Our hello, up to date."""

    def is_welcome(self, hello: Hello) -> None:
        """Raises PeerError if the sender may not take part. Run, base model and version have been compared before."""

    def connected(self, peer: OriginId, hello: Hello) -> None: ...

    def disconnected(self, peer: OriginId, reason: str) -> None: ...

    def refused(self, address: str, error: SeedfloodError) -> None:
        """A peer that we dialled does not fit: RunMismatchError or PeerError. It is dialled again, slowly."""

    def met(self, run: str) -> None:
        """A host of a kindred run has dialled us, or was dialled."""


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """listen: host:port. links_max: from so many on, whoever dials us is refused; whomever we dial is not, while a
    statement has room to name it.
    epoch_bytes_max: of a sum that a neighbour tells, as it is told.
    kindred_runs: those that the same hosts train before and after this one, as refusals show them. Whoever is in one of
    them will soon fit, and is dialled again as often as a host that is down."""

    listen: str
    links_max: int = NEIGHBOURS_MAX
    epoch_bytes_max: int = EPOCH_BYTES_MAX
    hello_seconds: float = 10.0
    redial_seconds_min: float = 0.25
    redial_seconds_max: float = 30.0
    queue_bundles_max: int = QUEUE_BUNDLES_MAX
    kindred_runs: frozenset[str] = frozenset()
    kindred_seconds_max: float = 2.0
