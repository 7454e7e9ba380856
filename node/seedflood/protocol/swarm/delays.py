"""How long a hop takes, measured by pings: half a round trip, with event loops and queues of both sides.

Every node states the 99th percentile of its hops, so all know the slowest hop of the network. It states a power of two,
and a new one only when the delay has doubled or fallen to a quarter, because each statement floods to everyone.
"""

from bisect import bisect_left
from collections import deque

from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.liveness import SUSPICION_SECONDS_MAX
from seedflood.protocol.view import Hops

SAMPLES_MAX = 256
PERCENTILE = 0.99
HOP_MILLISECONDS_MAX = 8192
"""A longer delay is believed of nobody, so that no liar can hold windows open."""

HOP_SECONDS_MIN = 0.02
"""Shortest bound per hop: below it the wake-up of a busy host, not the network, decides."""

HOP_SAFETY = 2.0
"""The bound is this many times the measured delay of a hop: delays along a path do not all peak together."""

BOUND_SECONDS_MAX = SUSPICION_SECONDS_MAX
"""The longest bound, whatever hosts state of hops and links: a host that is silent for so long is suspected anyway."""


HOP_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds of the histogram of hops, in seconds."""


class HopDelays:
    """The hop delays that a node measures on its links. slow_seconds: the 99th percentile of the last ones; 0 before
    the first."""

    def __init__(self) -> None:
        self.slow_seconds = 0.0
        self._sent: dict[OriginId, float] = {}
        self._delays: deque[float] = deque(maxlen=SAMPLES_MAX)
        self._latest: dict[OriginId, float] = {}
        self._counts = [0] * (len(HOP_BOUNDS) + 1)
        self._sum_seconds = 0.0

    def ping(self, peer: OriginId, now: float) -> None:
        """A ping is sent to the peer."""
        self._sent[peer] = now

    def pong(self, peer: OriginId, sent_at: float, now: float) -> None:
        """Takes an answer; one that does not answer the last ping is not believed."""
        if self._sent.get(peer) == sent_at:
            del self._sent[peer]
            seconds = (now - sent_at) / 2
            self._delays.append(seconds)
            self._latest[peer] = seconds
            self._counts[bisect_left(HOP_BOUNDS, seconds)] += 1
            self._sum_seconds += seconds
            self.slow_seconds = sorted(self._delays)[int(PERCENTILE * (len(self._delays) - 1) + 0.5)]

    def forget(self, peer: OriginId) -> None:
        """The link is down."""
        self._sent.pop(peer, None)
        self._latest.pop(peer, None)

    def view(self) -> Hops:
        return Hops(tuple(self._delays), dict(self._latest), HOP_BOUNDS, tuple(self._counts), self._sum_seconds)

    def milliseconds_to_state(self, stated: int) -> int:
        """What our statement should say, given that it says `stated` now: the measured delay, rounded up to a power of
        two."""
        if not self._delays:
            return stated
        measured = round(self.slow_seconds * 1000)
        wanted = min(1 << max(0, measured - 1).bit_length(), HOP_MILLISECONDS_MAX)
        return wanted if wanted > stated or 4 * wanted <= stated else stated


def bound_seconds(diameter: int, hop_delay_seconds: float) -> float:
    """How long news may take across the network: the diameter times the bound of a hop."""
    return min(diameter * max(HOP_SECONDS_MIN, HOP_SAFETY * hop_delay_seconds), BOUND_SECONDS_MAX)
