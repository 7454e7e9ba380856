"""Something that is done on the loop again and again."""

import asyncio
from collections.abc import Callable


class Every:
    """Calls `act` every so many seconds, until it is stopped."""

    def __init__(self, seconds: float, act: Callable[[], object], loop: asyncio.AbstractEventLoop) -> None:
        self._seconds = seconds
        self._act = act
        self._loop = loop
        self._timer = loop.call_later(seconds, self._ring)

    def stop(self) -> None:
        self._timer.cancel()

    def _ring(self) -> None:
        self._timer = self._loop.call_later(self._seconds, self._ring)
        self._act()
