"""Whose word about our replica counts.

A neighbour whose digest differs from ours may be wrong, or lie: 64 bytes must not make us rebuild for nothing again and
again. So we doubt ourselves only if most of the neighbours that could be compared differ from us. If a rebuild then
changes nothing, the word of those neighbours counts for nothing for a while, twice as long every time. That is forgiven
after as long a time without a false alarm.
"""

from collections.abc import Iterable

from seedflood.protocol.origin import OriginId

MUTED_SECONDS_MIN, MUTED_SECONDS_MAX = 60.0, 3600.0
"""How long the word of a neighbour counts for nothing after its false alarm, in seconds."""


class Jury:
    """The last verdict of every linked neighbour: is its digest equal to ours?"""

    def __init__(self) -> None:
        self._verdicts: dict[OriginId, bool] = {}
        self._muted: dict[OriginId, tuple[float, float]] = {}
        """By origin: until when its word counts for nothing, and for how long."""

    def hear(self, peer: OriginId, is_equal: bool) -> None:
        self._verdicts[peer] = is_equal

    def forget(self, peer: OriginId) -> None:
        """Its link is down. A false alarm is not forgotten with it."""
        self._verdicts.pop(peer, None)

    def clear(self) -> None:
        """Our coefficients have changed, so earlier comparisons mean nothing."""
        self._verdicts.clear()

    def counts(self, origin: OriginId, now: float) -> bool:
        """Does its word count now?"""
        return now >= self._muted.get(origin, (now, 0.0))[0]

    def unequal(self) -> list[OriginId]:
        """The neighbours whose digest differs from ours."""
        return [peer for peer, is_equal in self._verdicts.items() if not is_equal]

    def accusers(self, now: float) -> list[OriginId]:
        """The neighbours that differ from us, if they are most of those whose word counts; else none."""
        said = {peer: is_equal for peer, is_equal in self._verdicts.items() if self.counts(peer, now)}
        unequal = [peer for peer, is_equal in said.items() if not is_equal]
        return unequal if 2 * len(unequal) > len(said) else []

    def mute(self, accusers: Iterable[OriginId], now: float) -> None:
        """These neighbours raised a false alarm: their word counts for nothing for a while."""
        self._muted = {o: (until, length) for o, (until, length) in self._muted.items() if now < until + length}
        for origin in accusers:
            length = min(2 * self._muted[origin][1], MUTED_SECONDS_MAX) if origin in self._muted else MUTED_SECONDS_MIN
            self._muted[origin] = (now + length, length)
