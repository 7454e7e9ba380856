"""A fixed number of places for streams of strangers, so that a flood of them evicts its own streams first.

A stream of an unknown peer, which has sent no hello yet, costs memory for as long as its other
side likes. When all places are taken and one more stream comes, one is evicted: the oldest stream of the address that
holds most places. Hosts that behave hold few places, for a short time.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Crowd:
    """`async with crowd.enter(source)`. The block gets TimeoutError when it is evicted, or after `seconds`."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._inside: dict[asyncio.Timeout, str] = {}

    def __len__(self) -> int:
        return len(self._inside)

    @asynccontextmanager
    async def enter(self, source: str, seconds: float | None = None) -> AsyncIterator[None]:
        async with asyncio.timeout(seconds) as stay:
            self._make_room(source)
            self._inside[stay] = source
            try:
                yield
            finally:
                self._inside.pop(stay, None)

    def _make_room(self, source: str) -> None:
        if len(self._inside) < self._places:
            return
        held = Counter(self._inside.values())
        held[source] += 1
        most = max(held[one] for one in self._inside.values())
        oldest = next(stay for stay, one in self._inside.items() if held[one] == most)
        del self._inside[oldest]
        if not oldest.expired():  # else its time was up a moment ago, and it ends already
            oldest.reschedule(asyncio.get_running_loop().time())


def host_of(peer: str) -> str:
    """The address of a gRPC peer ("ipv4:10.0.0.1:4711") without its port."""
    return peer.rpartition(":")[0]
