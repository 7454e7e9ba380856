"""When an address is dialled again: for ever, with capped exponential back-off. It knows no clock and no chance.

If the peer answers that there is a link already, it is dialled again when that link ends. A host in another run of our
course will soon fit, and is dialled often; if all have ended its run, it is told so, once.
"""

from typing import Literal, NamedTuple

from seedflood.protocol.origin import OriginId
from seedflood.transport.owner import LinkSettings

DOUBLINGS_MAX = 30
"""More of them change nothing, and a number that doubles for weeks is no float any more."""


class Dialled(NamedTuple):
    """What came of a dial. linked: there was a link, and it has ended. duplicate: there is another link with this peer.
    kindred: the peer is in another run of our course. stopping: it ends, or begins anew. refused: it does not fit.
    peer: who is there, if that is known. run: of a kindred one. why: for the log, if it is not linked."""

    outcome: Literal["linked", "duplicate", "kindred", "stopping", "refused", "failed"]
    why: str = ""
    peer: OriginId | None = None
    run: str = ""


class Redial:
    """The pauses between dials of one address."""

    def __init__(self, settings: LinkSettings) -> None:
        self._settings = settings
        self._failures = 0
        self._said = self._run_told = ""

    def is_news(self, why: str) -> bool:
        """Is this to be told? Once, not for every of countless dials."""
        said, self._said = self._said, why
        return why not in ("", said)

    def is_to_be_told(self, dialled: Dialled) -> bool:
        """Has the peer still to learn that all have ended its run, if they have?"""
        return dialled.outcome == "kindred" and dialled.run != self._run_told

    def told(self, run: str) -> None:
        """The peer has learned that all have ended this run."""
        self._run_told, self._failures = run, 0

    def pause_seconds_max(self, dialled: Dialled, seconds: float) -> float:
        """The longest pause after this dial, which took so long."""
        settings = self._settings
        if dialled.outcome == "linked" and seconds > settings.redial_seconds_max:
            self._failures = 0
        pause = settings.redial_seconds_min * 2.0 ** min(self._failures, DOUBLINGS_MAX)
        self._failures += 1
        if dialled.outcome == "refused":
            return settings.redial_seconds_max
        most = settings.kindred_seconds_max if self.is_to_be_told(dialled) else settings.redial_seconds_max
        return min(pause, most, settings.redial_seconds_max)
