"""When an address is dialled again: for ever, with capped exponential back-off. It knows no clock and no chance.

If the peer answers that there is a link already, it is dialled again when that link ends.
"""

from typing import Literal, NamedTuple

from seedflood.protocol.origin import OriginId
from seedflood.transport.owner import LinkSettings

DOUBLINGS_MAX = 30
"""More of them change nothing, and a number that doubles for weeks is no float any more."""


class Dialled(NamedTuple):
    """What came of a dial. linked: there was a link, and it has ended. duplicate: there is another link with this peer.
    stopping: it ends, or begins anew. refused: it does not fit. peer: who is there, if that is known. why: for the log,
    if it is not linked."""

    outcome: Literal["linked", "duplicate", "stopping", "refused", "failed"]
    why: str = ""
    peer: OriginId | None = None


class Redial:
    """The pauses between dials of one address."""

    def __init__(self, settings: LinkSettings) -> None:
        self._settings = settings
        self._failures = 0
        self._last = ""

    def is_news(self, why: str) -> bool:
        """Is this to be logged? Once, not for every of countless dials."""
        before, self._last = self._last, why
        return why not in ("", before)

    def pause_seconds_max(self, dialled: Dialled, seconds: float) -> float:
        """The longest pause after this dial, which took so long."""
        settings = self._settings
        if dialled.outcome == "linked" and seconds > settings.redial_seconds_max:
            self._failures = 0
        pause = settings.redial_seconds_min * 2.0 ** min(self._failures, DOUBLINGS_MAX)
        self._failures += 1
        if dialled.outcome == "refused":
            return settings.redial_seconds_max
        return min(pause, settings.redial_seconds_max)
