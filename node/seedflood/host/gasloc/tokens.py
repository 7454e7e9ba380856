"""How fast tokens are learned from: by this host, and by the whole swarm as far as its hosts say how far they are."""

from collections import deque

SWARM_SECONDS = 30.0
"""Over so long a time the speed of the swarm is measured: its hosts say every few seconds how far they are."""


class Tokens:
    """count, seconds: of the local steps of this life. swarm_per_second: 0 while it is not known."""

    def __init__(self, per_round: int) -> None:
        """per_round: tokens of a host and round."""
        self.count = 0
        self.seconds = 0.0
        self.swarm_per_second = 0.0
        self._per_round = per_round
        self._told: deque[tuple[float, int]] = deque()

    @property
    def per_second(self) -> float:
        """While local steps are taken."""
        return self.count / self.seconds if self.seconds else 0.0

    def add(self, count: int, seconds: float) -> None:
        self.count += count
        self.seconds += seconds

    def heard(self, rounds: int, now: float) -> None:
        """rounds: of all hosts together. Where one comes or goes the count jumps, and begins anew."""
        if self._told and rounds < self._told[-1][1]:
            self._told.clear()
        self._told.append((now, rounds))
        while len(self._told) > 2 and now - self._told[1][0] >= SWARM_SECONDS:
            self._told.popleft()
        (began, first), (ended, last) = self._told[0], self._told[-1]
        if ended > began:
            self.swarm_per_second = (last - first) * self._per_round / (ended - began)
