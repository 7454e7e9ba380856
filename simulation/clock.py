"""Virtual time: events run in the order of their times; events of the same time in the order in which they were
added."""

import heapq
from collections.abc import Callable
from itertools import count


class Clock:
    """A queue of events. `now` is in virtual seconds and advances only by `run`."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._order = count()

    def after(self, delay_seconds: float, action: Callable[..., None], *args: object) -> None:
        self.at(self.now + delay_seconds, action, *args)

    def at(self, moment: float, action: Callable[..., None], *args: object) -> None:
        heapq.heappush(self._events, (moment, next(self._order), action, args))

    def run(self, until: Callable[[], bool], seconds_max: float) -> bool:
        """Runs events until `until()` holds, which is asked before each one. False if time or events run out first."""
        end = self.now + seconds_max
        while not until():
            if not self._events or self._events[0][0] > end:
                self.now = end
                return False
            self.now, _, action, args = heapq.heappop(self._events)
            action(*args)
        return True
