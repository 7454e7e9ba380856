"""Decides when a node that does not move should log for whom it waits, or ask again for what does not come."""

WAITING_SECONDS, WAITING_SECONDS_MAX = 10.0, 600.0
"""A node that does not move logs why after so long; then after twice as long each time, up to the second."""


class Standstill:
    """Where a node stands, and since when it stands there or has logged that. seconds, seconds_max: the first pause,
    and the longest."""

    def __init__(self, seconds: float = WAITING_SECONDS, seconds_max: float = WAITING_SECONDS_MAX) -> None:
        self._where: object = None
        self._since = 0.0
        self._pause = self._seconds = seconds
        self._seconds_max = seconds_max

    def lasts(self, where: object, now: float) -> bool:
        """Is it time to log? More and more seldom for as long as `where` stays the same: a run that waits for a whole
        night must not push everything else out of the events."""
        if where != self._where:
            self._where, self._since, self._pause = where, now, self._seconds
        if now - self._since < self._pause:
            return False
        self._since, self._pause = now, min(2 * self._pause, self._seconds_max)
        return True
