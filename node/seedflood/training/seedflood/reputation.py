"""Whom a step follows: how each host's gradients agree with those of the others, over the steps of an epoch.

A host sends signs, and one size for each group of slots; a liar can choose both. So sizes are bounded by the median of
the step, and who contradicts the others over some steps does not count. All of this is a pure function of what was sent
of the steps of an epoch, in their order, and begins anew with every epoch.

What a score is, and whom signs cannot tell apart: docs/explanation/learning.md.

Shapes: I hosts, F coefficients of the groups, K groups.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from statistics import median, median_high, median_low
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from seedflood.protocol.origin import OriginId

UNIT_BITS = 20
"""Agreements are integers in units of 2^-20."""

MEMORY = 32
"""After so many steps of a host, what it said before counts about a third."""

FEWEST = 4
"""After so many steps a host may be found to agree, or to contradict."""

HOSTS_MIN = 3
"""Of two hosts nobody knows who is right: their updates add up as they are."""

AGREES, CONTRADICTS = 0.5, -1.0
"""Scores."""

TRUST_MAX = Fraction(3, 2)
"""The highest score. A host that was honest for long does not lie for long either, before it is found."""

CHUNK = 1 << 20
"""Coefficients that are multiplied at a time. Sums of so many ones are exact in float32."""

Signs = NDArray[numpy.int8]


class Reputation(NamedTuple):
    """Of one host: how many steps it published, the sum of its agreements, and that of their mean squares over all
    hosts. Older steps count less."""

    steps: int = 0
    agreement: int = 0
    square: int = 0
    contradicts: bool = False

    def after(self, agreement: int, square: int) -> "Reputation":
        squares = self.square - self.square // MEMORY + square
        agreements = self.agreement - self.agreement // MEMORY + agreement
        most = math.isqrt(math.floor(squares * TRUST_MAX**2))
        return self._replace(steps=self.steps + 1, agreement=min(agreements, most), square=squares)

    def judged(self, median_score: float) -> "Reputation":
        """median_score: of all hosts."""
        is_low = self.steps >= FEWEST and self.score < min(CONTRADICTS, median_score + CONTRADICTS)
        return self._replace(contradicts=is_low or (self.contradicts and self.score < 0))

    @property
    def slack(self) -> int:
        """By how many powers of two a size may be above the median. A tighter bound in the first steps cost honest runs
        more than a liar gains in them."""
        is_trusted = self.steps < FEWEST or self.score >= AGREES
        return 1 if is_trusted else -2

    @property
    def score(self) -> float:
        """The same on all hosts, bit for bit. Chance gives 0 with a spread of one, like a t-statistic."""
        return self.agreement / math.sqrt(self.square) if self.square else 0.0


NEW = Reputation()


@dataclass(frozen=True, slots=True)
class Reputations:
    """Of all hosts, after some steps of an epoch."""

    by_origin: Mapping[OriginId, Reputation] = field(default_factory=dict)

    def of(self, origin: OriginId) -> Reputation:
        return self.by_origin.get(origin, NEW)

    def counting(self, origins: Sequence[OriginId]) -> list[OriginId]:
        """Those of these hosts that count in the next step. If half of them contradict, nobody knows who is right."""
        counting = [origin for origin in origins if not self.of(origin).contradicts]
        return counting if 2 * len(counting) > len(origins) else list(origins)

    def after(self, origins: Sequence[OriginId], sign_IF: Signs) -> "Reputations":
        """The next step. origins: `HOSTS_MIN` at least. sign_IF: 1, 0 or -1, as each of them sent it."""
        cosine_II = _cosines(sign_IF)
        counting = set(self.counting(origins))
        agreements: dict[OriginId, int] = {}
        for origin, cosine_I in zip(origins, cosine_II, strict=True):
            others = [one for name, one in zip(origins, cosine_I, strict=True) if name != origin and name in counting]
            agreements[origin] = (median_low(others) + median_high(others)) // 2  # an integer, so the same everywhere
        square = sum(agreements[origin] ** 2 for origin in counting) // len(counting)
        known = {origin: self.of(origin).after(agreements[origin], square) for origin in origins}
        middle = median(known[origin].score for origin in counting)
        judged = {origin: one.judged(middle) for origin, one in known.items()}
        return Reputations({**self.by_origin, **judged})

    def bounds(self, origins: Sequence[OriginId], exponent_IK: NDArray[Any]) -> NDArray[Any]:
        """(I, K): exponents as they count. origins: those who count, of whom there is one at least."""
        last = len(origins) - 1
        # Of two in the middle the lower one, because liars send large sizes. But of two hosts nobody knows which lies.
        middle = last // 2 if len(origins) >= HOSTS_MIN else last
        median_K = numpy.sort(exponent_IK, axis=0)[middle]
        slack_I = numpy.array([self.of(origin).slack for origin in origins], exponent_IK.dtype)
        bounded_IK: NDArray[Any] = numpy.minimum(exponent_IK, numpy.maximum(median_K + slack_I[:, None], 0))
        return bounded_IK


def _cosines(sign_IF: Signs) -> list[list[int]]:
    """(I, I), in units of 2^-20. Products of signs are exact in whatever order they are added."""
    hosts, size = sign_IF.shape
    product_II = numpy.zeros((hosts, hosts), numpy.int64)
    for start in range(0, size, CHUNK):
        part_IC = sign_IF[:, start : start + CHUNK].astype(numpy.float32)
        product_II += (part_IC @ part_IC.T).astype(numpy.int64)
    cosines: list[list[int]] = ((product_II << UNIT_BITS) // size).tolist()
    return cosines
