"""Port mapping: a router is asked, by UPnP, to pass a port on to this host.

A router that does lets strangers in. So it is asked only where the operator has said so (`listen = "upnp:PORT"`), for
the port that others dial, and a port that it passes on to another host stays with that one. A mapping ends by itself
after `LEASE_SECONDS`, however this process ends. It is renewed much earlier, each time from the start: a router that
was switched on again has forgotten it, and may answer elsewhere.

miniupnpc blocks, and a router may hang. So it has a thread, a daemon thread, because the interpreter waits for others;
and nobody waits for the router longer than `WAIT_SECONDS`. Whoever answers in the local network is taken for the
router, as always with UPnP. He could keep the port closed or name a wrong address; who answers there still has to prove
its key.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Any

from seedflood.errors import RouterError

FIND_MILLISECONDS = 1000
"""How long a router has to answer each of four searches."""

WAIT_SECONDS = 5.0
LEASE_SECONDS, RENEW_SECONDS = 1800, 600.0
RETRY_SECONDS = 60.0
"""After a failure: a host may start faster than its router."""

NO_ROUTER = (
    "no connected router answers to UPnP: switch it on there, let a firewall of this host pass the answers (from UDP "
    "port 1900), or forward the port by hand"
)
NOT_PUBLIC = "the router has no public address ({}): another one stands before it, so use a relay or an overlay"
TAKEN = "the router passes port {} on to {}:{}: choose another port in [node] listen"
UNREADABLE = "what the router says of port {} cannot be read ({}): choose another port in [node] listen"

_OPEN: set["PortMapping"] = set()


class Router:
    """A router that answers, for one port. All methods block, and raise RouterError."""

    def __init__(self, port: int) -> None:
        from miniupnpc import UPnP  # of an extra

        self._port, self._upnp = port, UPnP(discoverdelay=FIND_MILLISECONDS)
        try:
            self._upnp.discover()
            self._upnp.selectigd()
            self._outside = IPv4Address(self._upnp.externalipaddress())
        except Exception:  # miniupnpc has no errors of its own
            raise RouterError(NO_ROUTER) from None

    def look(self) -> str:
        """The address that others can dial once the port is passed on."""
        if not self._outside.is_global:
            raise RouterError(NOT_PUBLIC.format(self._outside))
        if (holder := self._holder()) not in (None, (self._upnp.lanaddr, self._port)):
            raise RouterError(TAKEN.format(self._port, *holder))
        return f"{self._outside}:{self._port}"

    def open(self) -> str:
        """The same, and from now on the port is passed on to us."""
        address = self.look()
        try:
            self._upnp.addportmapping(self._port, "TCP", self._upnp.lanaddr, self._port, "seedflood", "", LEASE_SECONDS)
        except Exception as error:
            raise RouterError(f"the router does not pass port {self._port} on ({error}): forward it by hand") from None
        return address

    def close(self) -> None:
        """Undoes `open`."""
        with contextlib.suppress(Exception):
            if self._holder() == (self._upnp.lanaddr, self._port):
                self._upnp.deleteportmapping(self._port, "TCP")

    def _holder(self) -> Any:
        """(address, port) to which it is passed on, or None."""
        try:
            found = self._upnp.getspecificportmapping(self._port, "TCP")
        except Exception as error:  # such as another program's text that is not UTF-8
            raise RouterError(UNREADABLE.format(self._port, error)) from None
        return found and found[:2]


def close_ports() -> None:
    """Ends all mappings of this process, which is about to end at once. Blocks."""
    for one in list(_OPEN):
        one.end()


class PortMapping:
    """Opens the port at once, and keeps it open until `close`."""

    def __init__(self, port: int, tell: Callable[..., None]) -> None:
        """tell: of an event (its name, its level, facts), on the loop, whenever there is news."""
        self._port, self._tell = port, tell
        self._told: dict[str, str] = {}
        self._loop, self._tried, self._closing = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="port mapping", daemon=True)
        self._thread.start()
        _OPEN.add(self)

    async def tried(self) -> None:
        """Returns when the router has answered, or had time to."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._tried.wait(), WAIT_SECONDS)

    async def close(self) -> None:
        await asyncio.to_thread(self.end)

    def end(self) -> None:
        """The same, and blocks."""
        _OPEN.discard(self)
        self._closing.set()
        self._thread.join(WAIT_SECONDS)

    def _work(self) -> None:
        router: Router | None = None
        while not self._closing.is_set():
            try:
                answers = Router(self._port)
                if self._closing.is_set():  # meanwhile, and the port may already be of the next
                    break
                router = answers
                found, pause = ("port mapped", "info", {"address": router.open()}), RENEW_SECONDS
            except RouterError as error:
                found, pause = ("port not mapped", "warning", {"reason": str(error)}), RETRY_SECONDS
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody has waited for us
                self._loop.call_soon_threadsafe(self._done, *found)
            self._closing.wait(pause)
        if router is not None:
            router.close()

    def _done(self, event: str, level: str, facts: dict[str, str]) -> None:
        self._tried.set()
        if facts != self._told and not self._closing.is_set():
            self._told = facts
            self._tell(event, level, **facts)
