"""A failure detector: who has fallen silent, judged by how late each origin usually is.

Silence counts only while an open window lacks the origin: in a run that stands still everyone is quiet, and only those
who are missing count. `bounded` windows do not wait for a suspect until it speaks again. `strict` windows
only name it, for there nobody goes on without it.

An origin is suspected after its usual lateness plus four deviations (as TCP sets its retransmission time, RFC 6298),
plus twice the time that news take across the network. There is a floor, for any busy host is slow now and then, and a
ceiling.
"""

from collections.abc import Callable, Iterable

from seedflood.protocol.origin import OriginId

SUSPICION_SECONDS_MIN = 1.0
SUSPICION_SECONDS_MAX = 30.0
MEAN_GAIN, DEVIATION_GAIN = 1 / 8, 1 / 4


class Liveness:
    """What is known of each origin's punctuality. suspects: who is silent now."""

    def __init__(self) -> None:
        self.suspects: set[OriginId] = set()
        self.missing_since: dict[OriginId, float] = {}
        """Since when an open window lacks an origin."""
        self._lateness: dict[OriginId, tuple[float, float]] = {}

    def opened(self, expected: Iterable[OriginId], missing: set[OriginId], now: float) -> None:
        """A window has opened. missing: the expected origins whose updates are missing; the others were in time."""
        for origin in expected:
            if origin in missing:
                self.missing_since.setdefault(origin, now)
            elif origin in self._lateness:
                self._sample(origin, 0.0)

    def seen(self, origin: OriginId, now: float) -> bool:
        """Something new of the origin has come; was it a suspect?"""
        since = self.missing_since.pop(origin, None)
        if origin in self.suspects:
            self.suspects.discard(origin)
            return True  # how long it was dead after that says nothing about how late it is when alive
        if since is not None:
            self._sample(origin, now - since)
        return False

    def lateness(self, origin: OriginId) -> float:
        """How long windows usually lack the origin, in seconds; 0 if it never was late."""
        mean, _ = self._lateness.get(origin, (0.0, 0.0))
        return mean

    def suspicion_seconds(self, origin: OriginId, bound_seconds: float) -> float:
        """How long windows wait for the silent origin before it is suspected."""
        mean, deviation = self._lateness.get(origin, (0.0, 0.0))
        wanted = 2 * bound_seconds + mean + 4 * deviation
        return min(max(wanted, SUSPICION_SECONDS_MIN), SUSPICION_SECONDS_MAX)

    def review(self, now: float, bound_seconds: Callable[[], float]) -> list[OriginId]:
        """Suspects the origins that were silent for too long, and returns the new suspects. bound_seconds: how long
        news take across the network; called only if needed, for it may be costly."""
        new = [
            origin
            for origin, since in self.missing_since.items()
            if origin not in self.suspects
            and now - since >= self.suspicion_seconds(origin, 0.0)
            and now - since >= self.suspicion_seconds(origin, bound_seconds())
        ]
        for origin in new:
            # As late as this at least: else one that is slow would be suspected for ever.
            self._sample(origin, self.suspicion_seconds(origin, bound_seconds()))
        self.suspects.update(new)
        return sorted(new)

    def forget(self, origin: OriginId) -> None:
        """It has left: nobody waits for it any more."""
        self.suspects.discard(origin)
        self.missing_since.pop(origin, None)

    def _sample(self, origin: OriginId, seconds: float) -> None:
        if origin not in self._lateness:
            self._lateness[origin] = (seconds, seconds / 2)
            return
        mean, deviation = self._lateness[origin]
        deviation += DEVIATION_GAIN * (abs(seconds - mean) - deviation)
        self._lateness[origin] = (mean + MEAN_GAIN * (seconds - mean), deviation)
