"""The learning rate of a run that names none: one rule for each kind of step, whatever the model's size.

A rate is near the largest that holds, so no schedule begins above it. The runs that it comes from, and what was tried
instead: docs/explanation/learning.md, and benchmarks/notes by their days.
"""

import math
from collections.abc import Sequence

from seedflood.config import SeedfloodSettings

DIRECTION_RATES = 1000.0, 0.372
"""The rates of steps along seeded directions: times the number of parameters, and in small models times the root of it.
Such steps move all weights."""

ADAM_RATE = 2.0
"""The rate of Adam, times the root of (matrices x rank^3). In each matrix `Subspace.lengths` divides it, so that a step
goes as far in a matrix of any shape."""

NORM_LEAST = 16.0
"""If a typical weight matrix has a larger Frobenius norm than this, the rate of Adam is as many times as large: the
same step changes the outputs of large weights less."""

REWARD_PART = 1 / 4
"""Of the rate for rows that tell what is right, whatever the norm. Too high a rate teaches texts of which none is worth
anything, and then nothing is left to learn from."""


def default_learning_rate(
    settings: SeedfloodSettings, shapes: Sequence[tuple[int, ...]], norms: Sequence[float] = (), *, by_reward: bool
) -> float:
    """The largest learning rate of a run, by estimate, rank and the shapes of all parameters. norms: of gradients, the
    Frobenius norms of the base model's matrices. by_reward: does the model learn from its own texts?"""
    part = REWARD_PART if by_reward else 1.0
    if settings.estimate == "gradient":
        matrices = sum(len(shape) == 2 for shape in shapes)
        longer = 1.0 if by_reward else max(1.0, _typical(norms) / NORM_LEAST)
        # Equal on all hosts: each root is rounded correctly.
        return part * longer * ADAM_RATE / math.sqrt(max(1, matrices) * settings.rank**3)
    parameters_count = sum(map(math.prod, shapes))
    by_number, by_root = DIRECTION_RATES
    return part * min(by_number / parameters_count, by_root / math.sqrt(parameters_count))


def _typical(norms: Sequence[float]) -> float:
    """The root of their mean square."""
    # `fsum` is rounded correctly. What `sum` makes of floats depends on the version of Python.
    return math.sqrt(math.fsum(norm * norm for norm in norms) / max(1, len(norms)))
