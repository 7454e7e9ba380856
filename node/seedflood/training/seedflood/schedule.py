"""The factor of each step: it falls with the root of time, or by reward not at all; in integers.

`root` knows nothing of the run's length: sqrt(T / (T + t)), with T = `ROOT_STEPS`. What the noise of a step does to the
weights adds up in squares, T / (T + t), so it grows with the logarithm of the steps, while the way that the weights can
go grows with their root. A constant rate shakes a model that has nothing left to learn as hard as before, for as long
as the run lasts. (A cosine to zero at the end was an option: better in 48 steps, worse in 30,000; see `rates`.)

By reward it is constant: what is right teaches nothing, so the noise falls by itself (two-digit addition at rank 32:
0.740 after 240 steps, and 0.724 with root).

The factor is a pure function of the step, in units of 2^-16, and computed with integers alone. So told integers can be
scaled one by one, before anything is added up: c becomes round(c factor 2^-16), and sums do not depend on the order.

An optimiser that goes by steps multiplies its learning rate with the factor instead.
"""

import math
from collections.abc import Callable

from seedflood.config import RunSettings

FACTOR_BITS = 16
ONE = 1 << FACTOR_BITS

ROOT_STEPS = 100
"""After so many steps the rate has fallen to 0.71, after three times as many to half of it."""

Factor = Callable[[int], int]
"""The factor of a step in units of 2^-16: 1 to 2^16."""


def factor_of(run: RunSettings) -> Factor:
    return constant if run.objective.task == "reward" else root


def root(step: int) -> int:
    return max(1, math.isqrt(ONE * ONE * ROOT_STEPS // (ROOT_STEPS + step)))


def constant(step: int) -> int:
    return ONE
