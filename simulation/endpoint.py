"""What simulated links need of a host, whatever its algorithm."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Hello


class Hearer(Protocol):
    """The methods of a driver that links call."""

    def hello(self) -> Hello: ...

    def check_hello(self, hello: Hello) -> None: ...

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
    def driver(self) -> Hearer: ...

    def next_content(self, peer: OriginId) -> bytes | None:
        """The next frame for the connection for contents to the peer."""

    def enter(self, action: Callable[..., None], *args: object) -> None:
        """Calls the action now, or if the host is paused, when it resumes."""
