"""Decides when a node that does not move should log for whom it waits."""

WAITING_SECONDS, WAITING_SECONDS_MAX = 10.0, 600.0
"""A node that does not move logs why after so long; then after twice as long each time, up to the second."""


class Standstill:
    """Where a node stands, and since when it stands there or has said so."""

    def __init__(self) -> None:
        self._where: object = None
        self._since = 0.0
        self._pause = WAITING_SECONDS

    def lasts(self, where: object, now: float) -> bool:
        """Is it time to log? More and more seldom for as long as `where` stays the same: a run that waits for a whole
        night must not push everything else out of the events."""
        if where != self._where:
            self._where, self._since, self._pause = where, now, WAITING_SECONDS
        if now - self._since < self._pause:
            return False
        self._since, self._pause = now, min(2 * self._pause, WAITING_SECONDS_MAX)
        return True
