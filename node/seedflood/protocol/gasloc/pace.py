"""How fast links and hosts are, and how long to wait for them.

All waits follow from what this host has measured: its local steps, hops, and what each link carries, with a floor. What
others claim can only make them shorter.
"""

from collections.abc import Mapping
from math import ceil, log2

from seedflood.protocol.gasloc.matching import SLOW_CLASS_MAX
from seedflood.protocol.gasloc.rules import Bounds
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.delays import HOP_SAFETY, HOP_SECONDS_MIN, HopDelays

GAIN = 0.5
"""The weight of the last measurement in the mean: a link exchanges seldom, and changes in between."""

HYSTERESIS = 1.25
"""A class changes only when a link is past its border by this factor: each change is a statement that floods to
everyone."""

SILENT_SECONDS, SILENT_STEPS, SILENT_EXCHANGES = 60.0, 16, 3
"""A host is silent that comes to no later round for this long, during this many of our own rounds of local steps, and
during this many exchanges."""


class Pace:
    """local_seconds: how long our last round of local steps took. exchange_seconds: how long our last exchange took.
    size: of the last content, in bytes."""

    def __init__(self, bounds: Bounds, delays: HopDelays) -> None:
        self.local_seconds = self.exchange_seconds = 0.0
        self.size = 0
        self.slow: dict[OriginId, int] = {}
        """The class of each link that is slow."""
        self.throughput: dict[OriginId, float] = {}
        """In bytes per second, from each neighbour."""
        self._bounds = bounds
        self._delays = delays
        self._reached: dict[OriginId, tuple[int, float]] = {}
        """The latest round that each host has reported, and when it came to it. Nothing else that it states counts."""

    @property
    def hop_seconds(self) -> float:
        """The bound of one hop."""
        return max(HOP_SECONDS_MIN, HOP_SAFETY * self._delays.slow_seconds)

    def wait_seconds(self) -> float:
        return self._bounds.wait_seconds(self.local_seconds, self.hop_seconds)

    def transfer_seconds(self, peer: OriginId, size: int) -> float:
        return self._bounds.transfer_seconds(size, self.throughput.get(peer), self.hop_seconds)

    def reached(self, rounds: Mapping[OriginId, int], now: float) -> None:
        """These hosts have reported that they are in these rounds."""
        for origin, round_ in rounds.items():
            if round_ > self._reached.get(origin, (-2, 0.0))[0]:
                self._reached[origin] = round_, now

    @property
    def patience_seconds(self) -> float:
        """How long a host may stay in one round."""
        of_rounds = max(SILENT_STEPS * self.local_seconds, SILENT_EXCHANGES * self.exchange_seconds)
        return max(SILENT_SECONDS, of_rounds)

    def silent(self, now: float) -> set[OriginId]:
        """The hosts that wait, crawl or hang, though their links are up. All hosts notice this at about the same
        time."""
        return {origin for origin, (_, at) in self._reached.items() if now - at > self.patience_seconds}

    def measured(self, peer: OriginId, bytes_per_second: float) -> None:
        """The throughput of our last transfer from the peer."""
        known = self.throughput.get(peer)
        self.throughput[peer] = bytes_per_second if known is None else known + GAIN * (bytes_per_second - known)
        self._classify(peer)

    def failed(self, peer: OriginId) -> None:
        """A transfer did not end in time: the link is slower than we know."""
        self.throughput[peer] = self.throughput.get(peer, self._bounds.throughput_min) / 2
        self._classify(peer)

    def _classify(self, peer: OriginId) -> None:
        """How rarely the link should be used, so that it does not hold up our local steps."""
        allowed = self._bounds.slow_share * self.local_seconds
        if not self.size or allowed <= 0:
            return
        ratio = self.size / self.throughput[peer] / allowed
        known = self.slow.get(peer, 0)
        if 2 ** (known - 1) / HYSTERESIS < ratio <= 2**known * HYSTERESIS or (known == 0 and ratio <= HYSTERESIS):
            return
        wanted = min(max(0, ceil(log2(ratio))), SLOW_CLASS_MAX)
        if wanted:
            self.slow[peer] = wanted
        else:
            self.slow.pop(peer, None)
