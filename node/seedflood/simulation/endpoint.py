"""What simulated links need of a host, of any algorithm."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.admission import MemberAdmission
from seedflood.protocol.swarm.messages import Hello


class Door(Protocol):
    """Who is let in by a node."""

    @property
    def admission(self) -> MemberAdmission: ...


class Hearer(Protocol):
    """What links tell a driver, and ask it."""

    def hello(self) -> Hello: ...

    def connected(self, peer: OriginId, hello: Hello) -> None: ...

    def disconnected(self, peer: OriginId, reason: str) -> None: ...

    def received(self, peer: OriginId, message: Any) -> None: ...

    def answer(self, frontier: Iterable[Held]) -> Iterable[Any]: ...

    def progressed(self, peer: OriginId) -> None: ...

    def pulled(self, peer: OriginId) -> None: ...


class Endpoint(Protocol):
    """What the network needs of a host."""

    index: int
    is_up: bool
    is_paused: bool
    origin: OriginId

    @property
    def node(self) -> Door: ...

    @property
    def driver(self) -> Hearer: ...

    def enter(self, action: Callable[..., None], *args: object) -> None:
        """Does it now; a host that is paused does it when it goes on."""
