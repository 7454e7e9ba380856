"""Tokens per second: of this host, and of the whole swarm, estimated from the rounds that its hosts state."""

from collections import deque

SWARM_SECONDS = 30.0
"""The time over which the speed of the swarm is measured. Its hosts state their rounds every few seconds."""


class Tokens:
    """count, seconds: of all local steps since the process began. swarm_per_second: 0 while it is unknown."""

    def __init__(self, per_round: int) -> None:
        """per_round: tokens of one host in one round."""
        self.count = 0
        self.seconds = 0.0
        self.swarm_per_second = 0.0
        self._per_round = per_round
        self._samples: deque[tuple[float, int]] = deque()

    @property
    def per_second(self) -> float:
        """Tokens per second while local steps are taken."""
        return self.count / self.seconds if self.seconds else 0.0

    def add(self, count: int, seconds: float) -> None:
        self.count += count
        self.seconds += seconds

    def observe(self, rounds: int, now: float) -> None:
        """rounds: the sum over all hosts. When a host goes the sum falls, and the measurement starts again."""
        if self._samples and rounds < self._samples[-1][1]:
            self._samples.clear()
        self._samples.append((now, rounds))
        while len(self._samples) > 2 and now - self._samples[1][0] >= SWARM_SECONDS:
            self._samples.popleft()
        (began, first), (ended, last) = self._samples[0], self._samples[-1]
        if ended > began:
            self.swarm_per_second = (last - first) * self._per_round / (ended - began)
