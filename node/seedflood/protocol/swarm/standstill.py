"""Decides when a node that does not move should log for whom it waits."""

WAITING_SECONDS = 10.0
"""A node that does not move logs why after so long, and again after each such time."""


class Standstill:
    """Where a node stands, and since when it stands there or has said so."""

    def __init__(self) -> None:
        self._where: object = None
        self._since = 0.0

    def lasts(self, where: object, now: float) -> bool:
        """True once per WAITING_SECONDS for as long as `where` stays the same."""
        if where != self._where:
            self._where, self._since = where, now
        if now - self._since < WAITING_SECONDS:
            return False
        self._since = now
        return True
