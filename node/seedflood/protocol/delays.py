"""How long a hop takes, measured by pings: half a round trip, event loops and queues of both sides included."""

from collections import deque

from seedflood.protocol.messages import OriginId

SAMPLES_MAX = 64


class HopDelays:
    """The last round trips of all links of a node."""

    def __init__(self) -> None:
        self._sent: dict[OriginId, float] = {}
        self._delays: deque[float] = deque(maxlen=SAMPLES_MAX)

    def ping(self, peer: OriginId, now: float) -> None:
        self._sent[peer] = now

    def pong(self, peer: OriginId, sent_at: float, now: float) -> None:
        """Takes an answer; one that does not answer the last ping is not believed."""
        if self._sent.get(peer) == sent_at:
            del self._sent[peer]
            self._delays.append((now - sent_at) / 2)

    @property
    def slowest_seconds(self) -> float:
        """Of the last samples (the 98th percentile of a full set); 0 before any."""
        return max(self._delays, default=0.0)
