"""Reachability: under which address a host is seen, and whether it can be dialled there.

A host cannot know this of itself: a router may give it another address, and let nobody in. So whoever is dialled tells
the dialler from which address it came, and tries to dial it back there. That must not make hosts dial victims, so:

* the address is the one that the link comes from, which has answered; only the port is the peer's word
* nobody dials back before the link is admitted, and a stranger to a closed run is not
* one attempt at a time, of `LOOK_SECONDS_MAX`, and one for an address in `AGAIN_SECONDS`, whoever comes from there
* it counts only if the peer's key is proven there, where links are encrypted; nothing is sent

What is found is shown to operators, and nothing else follows from it.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable
from urllib.parse import unquote

from seedflood.errors import PeerError
from seedflood.transport.codec import Seen
from seedflood.transport.credentials import Credentials
from seedflood.transport.link import BROKEN, Link
from seedflood.transport.server import LOOK, DialledStream

LOOK_SECONDS_MAX = 3.0
AGAIN_SECONDS = 600.0

REMEMBERED = 256
"""Of how many addresses the last attempt is remembered: more than that in ten minutes, and none is made."""


class LookBack:
    """clock: seconds. tasks: attempts that are under way."""

    def __init__(self, credentials: Callable[[], Credentials], clock: Callable[[], float]) -> None:
        self._credentials = credentials
        self._clock = clock
        self._turn = asyncio.Lock()
        self._found: OrderedDict[str, tuple[float, Seen, bytes]] = OrderedDict()
        """By host: when it was tried, what came of it, and whose key was looked for."""
        self.tasks: set[asyncio.Task[None]] = set()

    def begin(self, link: Link, port: int) -> None:
        """Of a link that the peer has dialled, who says that it listens at this port; 0: nowhere."""
        task = asyncio.create_task(self._look(link, port), name="look back")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _look(self, link: Link, port: int) -> None:
        host, key = unquote(link.source.partition(":")[2]), link.hello.member.public_key
        seen = Seen(f"{host}:{port}", False)
        async with self._turn:
            now = self._clock()
            while self._found and now - next(iter(self._found.values()))[0] > AGAIN_SECONDS:
                self._found.popitem(last=False)
            if port and host in self._found:
                _, before, looked_for = self._found[host]
                if (before.address, looked_for) != (seen.address, key):
                    return
                seen = before
            elif port and len(self._found) < REMEMBERED:
                seen = Seen(seen.address, await self._answers(seen.address, key))
                self._found[host] = now, seen, key
            elif port:
                return
        link.looked_back = seen.is_reachable
        link.send(seen)

    async def _answers(self, address: str, key: bytes) -> bool:
        """Does the host with this key answer there?"""
        try:
            async with (
                contextlib.aclosing(DialledStream(self._credentials(), address, listen_port=LOOK)) as stream,
                asyncio.timeout(LOOK_SECONDS_MAX),
            ):
                await stream.connect()
                return not stream.is_secure or stream.proven == key
        except (*BROKEN, TimeoutError, PeerError):
            return False
