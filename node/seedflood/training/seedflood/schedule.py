"""The factor of each step: constant, with the root of time, or down to zero at the end; in integers.

`root`, the default, knows nothing of the run's length: sqrt(T / (T + t)), with T = `ROOT_STEPS`. What the noise of a
step does to the weights adds up in squares, T / (T + t), so it grows with the logarithm of the steps, while the way
that the weights can go grows with their root. A constant rate shakes a model that has nothing left to learn as hard as
before, for as long as the run lasts.

By reward the default is constant: what is right teaches nothing, so the noise falls by itself. On two-digit addition
(benchmarks/reward.py, 240 steps, means of 6 and 3 runs) rank 32 came to 0.740 with it and to 0.724 with root, rank 8 to
0.563 and 0.560, and after 600 steps (one run each) to 0.701 and 0.664.

The factor is a pure function of the step, in units of 2^-16, and computed with integers alone: a library's cosine may
differ in the last bit between two hosts. So told integers can be scaled one by one, before anything is added up: c
becomes round(c factor 2^-16), and sums do not depend on the order.

An optimiser that goes by steps multiplies its learning rate with the factor instead.
"""

import math
from typing import Literal

from seedflood.config import RunSettings

FACTOR_BITS = 16
ONE = 1 << FACTOR_BITS

ROOT_STEPS = 100
"""After so many steps the rate has fallen to 0.71, after three times as many to half of it."""

_BITS = 62
"""Fraction bits of the fixed point in which a cosine is computed."""

_PI = 0xC90FDAA22168C234  # pi 2^62, rounded down
_HALF_PI = _PI >> 1

ScheduleName = Literal["root", "constant", "cosine"]


class Schedule:
    """The factors of a run's steps."""

    def __init__(self, name: ScheduleName, *, steps: int) -> None:
        self._name = name
        self._steps = steps

    @classmethod
    def of(cls, run: RunSettings) -> "Schedule":
        return cls(run.seedflood.schedule, steps=run.steps)

    def factor(self, step: int) -> int:
        """The factor of a step in units of 2^-16: 1 to 2^16."""
        if self._name == "constant":
            return ONE
        if self._name == "root":
            return max(1, math.isqrt(ONE * ONE * ROOT_STEPS // (ROOT_STEPS + step)))
        if step >= self._steps:
            return 1
        return max(1, (((1 << _BITS) + _cosine(_PI * step // self._steps)) * ONE) >> (_BITS + 1))


def _cosine(angle: int) -> int:
    """The cosine of an angle in 0..pi, both in units of 2^-62."""
    if angle > _HALF_PI:
        return -_cosine(_PI - angle)
    square = angle * angle >> _BITS
    term = total = 1 << _BITS
    for k in range(1, 16):
        term = -(term * square >> _BITS) // ((2 * k - 1) * (2 * k))
        total += term
    return total
