"""The factor of each step: it falls with the root of time, or by reward not at all.

It is a pure function of the step, in units of 2^-16, and computed with integers alone. So updates can be scaled one
by one, before anything is added up, and sums do not depend on the order. An optimiser that goes by steps multiplies its
learning rate with the factor instead. Why the root of time: docs/explanation/learning.md.
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
    # By reward what is right teaches nothing, so the noise falls by itself.
    return constant if run.objective.task == "reward" else root


def root(step: int) -> int:
    return max(1, math.isqrt(ONE * ONE * ROOT_STEPS // (ROOT_STEPS + step)))


def constant(step: int) -> int:
    return ONE
