"""When a node that does not move should say for whom it waits."""

WAITING_SECONDS = 10.0
"""How long it stands still before it says so, and between two such lines."""


class Standstill:
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
