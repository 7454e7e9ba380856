"""Whose word about our replica counts.

A neighbour whose digest differs from ours may be wrong, or lie: 64 bytes must not make us rebuild for nothing again and
again. So we doubt ourselves only if most of the neighbours that could be compared differ from us. If a rebuild then
changes nothing, the word of those neighbours counts for nothing for a while, twice as long every time. That is forgiven
after as long a time without a false alarm.
"""

from collections.abc import Collection, Iterable, Mapping

from seedflood.protocol.origin import OriginId

MUTED_SECONDS_MIN, MUTED_SECONDS_MAX = 60.0, 3600.0
"""How long the word of a neighbour counts for nothing after its false alarm, in seconds."""


class Credibility:
    """Whose word counts, and what most of them say."""

    def __init__(self) -> None:
        self._muted: dict[OriginId, tuple[float, float]] = {}
        """By origin: until when its word counts for nothing, and for how long."""

    def counts(self, origin: OriginId, now: float) -> bool:
        """Does its word count now?"""
        return now >= self._muted.get(origin, (now, 0.0))[0]

    def accusers(
        self, verdicts: Mapping[OriginId, bool], now: float, *, witnesses: Collection[OriginId]
    ) -> list[OriginId]:
        """The neighbours that differ from us, if they are most of the witnesses whose word counts; else none. verdicts:
        is their digest of one and the same frontier equal to ours? Of witnesses that have not reported it there is
        none."""
        counted = [peer for peer in witnesses if self.counts(peer, now)]
        unequal = [peer for peer in counted if verdicts.get(peer) is False]
        return unequal if 2 * len(unequal) > len(counted) else []

    def mute(self, accusers: Iterable[OriginId], now: float) -> None:
        """These neighbours raised a false alarm: their word counts for nothing for a while."""
        self._muted = {o: (until, length) for o, (until, length) in self._muted.items() if now < until + length}
        for origin in accusers:
            length = min(2 * self._muted[origin][1], MUTED_SECONDS_MAX) if origin in self._muted else MUTED_SECONDS_MIN
            self._muted[origin] = (now + length, length)
