"""Reachability: under which address a host is seen, and whether it can be dialled there.

A host cannot know this of itself, so whoever is dialled tries to dial the dialler back. That must not make hosts dial
victims: the address is the one that the link comes from, the link is admitted, and attempts are few. It counts only if
the peer's key is proven there, where links are encrypted. What is found is shown to operators, and nothing else
follows.

More: docs/explanation/links.md.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import unquote

from seedflood.errors import PeerError
from seedflood.transport.codec import Seen
from seedflood.transport.credentials import Credentials
from seedflood.transport.link import BROKEN, Link
from seedflood.transport.server import LOOK, DialledStream

LOOK_SECONDS_MAX = 3.0
AGAIN_SECONDS = 600.0
"""For an address there is one attempt in so many seconds, whoever comes from there."""

PAUSES = (0.0, 5.0, 30.0)
"""Before each attempt, in seconds. The others follow only if it fails: who has just come up may be too busy to
answer."""

REMEMBERED = 256
"""Of how many addresses the last attempt is remembered: more than that in ten minutes, and none is made."""


class _Attempts(NamedTuple):
    """For an address. since: when the first was made. seen: what came of them. key: whose was looked for."""

    since: float
    tries: int
    seen: Seen
    key: bytes


class LookBack:
    """clock: seconds. tasks: attempts that are under way."""

    def __init__(self, credentials: Credentials, clock: Callable[[], float]) -> None:
        self._credentials = credentials
        self._clock = clock
        self._turn = asyncio.Lock()
        self._made: OrderedDict[str, _Attempts] = OrderedDict()
        """By host, the oldest first."""
        self.tasks: set[asyncio.Task[None]] = set()

    def begin(self, link: Link, port: int) -> asyncio.Task[None]:
        """Of a link that the peer has dialled, who says that it listens at this port; 0: nowhere. To be cancelled when
        the link ends: else who links again and again would have us keep links that wait for their turn."""
        task = asyncio.create_task(self._look(link, port), name="look back")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _look(self, link: Link, port: int) -> None:
        for pause in PAUSES:
            await asyncio.sleep(pause)
            if (seen := await self._see(link, port)) is None:
                return
            link.looked_back = seen.is_reachable
            link.send(seen)
            if seen.is_reachable or not port:
                return

    async def _see(self, link: Link, port: int) -> Seen | None:
        """By an attempt, if there may be one. None: nothing is known."""
        host, key = unquote(link.source.partition(":")[2]), link.hello.member.public_key
        address = f"{host}:{port}"
        if not port:
            return Seen(address, False)
        async with self._turn:
            now = self._clock()
            while self._made and now - next(iter(self._made.values())).since > AGAIN_SECONDS:
                self._made.popitem(last=False)
            made = self._made.get(host, _Attempts(now, 0, Seen(address, False), key))
            is_crowded = not made.tries and len(self._made) >= REMEMBERED
            if is_crowded or (made.seen.address, made.key) != (address, key):
                return None
            if not made.seen.is_reachable and made.tries < len(PAUSES):
                made = self._made[host] = made._replace(tries=made.tries + 1)  # it counts even if the link ends now
                made = self._made[host] = made._replace(seen=Seen(address, await self._answers(address, key)))
            return made.seen

    async def _answers(self, address: str, key: bytes) -> bool:
        """Does the host with this key answer there?"""
        try:
            async with (
                contextlib.aclosing(DialledStream(self._credentials, address, listen_port=LOOK)) as stream,
                asyncio.timeout(LOOK_SECONDS_MAX),
            ):
                await stream.connect()
                return not stream.is_secure or stream.proven == key
        except (*BROKEN, TimeoutError, PeerError):
            return False
