"""A periodic call on the event loop."""

import asyncio
from collections.abc import Callable


class Every:
    """Calls `act` at this interval until it is stopped."""

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
