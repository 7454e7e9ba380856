"""What stands between a driver and links in a benchmark's own process, in the place of a daemon."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from seedflood.errors import PeerError, SeedfloodError
from seedflood.host.driver import Driver
from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Hello, Message
from seedflood.protocol.swarm.swarm import Swarm
from seedflood.transport.answer import AnswerItem
from seedflood.transport.links import Links
from seedflood.transport.owner import Owner


class Shell(Owner):
    """The owner of links that passes on what happens. Subclasses set all of these; they take and send messages."""

    node: Swarm[Any]
    driver: Driver
    links: Links
    _loop: asyncio.AbstractEventLoop
    _timer: asyncio.TimerHandle | None = None

    @abstractmethod
    def failed(self, error: BaseException) -> None:
        """From here on nothing more happens."""

    def happened(self) -> None:
        """Called after whatever has happened."""

    def hello(self) -> Hello:
        return self.driver.hello()

    def is_welcome(self, hello: Hello) -> None:
        self.driver.check_hello(hello)

    def connected(self, peer: OriginId, hello: Hello) -> None:
        self.drive(lambda: self.driver.connected(peer, hello))

    def pulled(self, peer: OriginId, is_complete: bool) -> None:
        self.drive(lambda: self.driver.pulled(peer))

    def progressed(self, peer: OriginId) -> None:
        self.driver.progressed(peer)

    def disconnected(self, peer: OriginId, reason: str) -> None:
        self.drive(lambda: self.driver.disconnected(peer, reason))

    def next_content(self, peer: OriginId) -> bytes | None:
        return self.driver.next_content(peer)

    def pull_answer(self, frontier: tuple[Held, ...]) -> Iterator[AnswerItem]:
        return self.driver.answer(frontier)

    def refused(self, address: str, error: SeedfloodError) -> None:
        self.failed(error)

    def sent(self, peer: OriginId, message: Message) -> None:
        pass

    def pull(self, peer: OriginId, frontier: tuple[Held, ...]) -> None:
        self.links.pull(peer, frontier)

    def carry(self, peer: OriginId) -> None:
        self.links.carry(peer)

    def drop(self, peer: OriginId, reason: str) -> None:
        self.links.drop(peer, reason)

    def removed(self) -> None:
        self.failed(AssertionError("the run is open"))

    def superseded(self) -> None:
        self.failed(AssertionError("every host here has a key of its own"))

    def drive(self, action: Callable[[], None]) -> None:
        """Does something with the driver, and sees to it that it is called again when it wants to be."""
        try:
            action()
        except PeerError:
            raise
        except Exception as error:
            self.failed(error)
        finally:
            self.rest()
            self._timer = self._loop.call_later(self.driver.seconds_to_tick(), self.drive, self.driver.tick)
            self.happened()

    def rest(self) -> None:
        """The driver is not called again."""
        if self._timer is not None:
            self._timer.cancel()
