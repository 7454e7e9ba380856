"""What a node that trains by SeedFlood states of itself now."""

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.catchup import CatchUp
from seedflood.protocol.seedflood.statement import Remains, Rows, Stated, pack


class OwnState:
    """The algorithm's part of our statement. unsaid_from: our first step that could not be kept yet, and is not told
    before it is. rows: what we measure on, if that is to be stated. remains: what we hold
    of removed hosts. has_ended: we have ended the run, in this life. is_relay: we only relay."""

    def __init__(self, origin: OriginId, frontier: Frontier, past: CatchUp) -> None:
        self.unsaid_from: int | None = None
        self.rows: Rows | None = None
        self.remains: tuple[Remains, ...] = ()
        self.has_ended = False
        self.is_relay = False
        self._origin = origin
        self._frontier = frontier
        self._past = past

    def packed(self) -> bytes:
        has_ended = self.has_ended or self._past.has_ended
        return pack(Stated(self._said_before(), self.rows, self.remains, has_ended, self.is_relay))

    def last_said(self) -> int:
        """Our last step that may be told; -1 if none."""
        return self._frontier.last(self._origin) if self.unsaid_from is None else self.unsaid_from - 1

    def _said_before(self) -> int:
        said = max(self._frontier.last(self._origin) + 1, self._past.said_before)
        return said if self.unsaid_from is None else min(said, self.unsaid_from)
