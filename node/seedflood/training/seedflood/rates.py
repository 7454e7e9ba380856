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

ADAM_RATE = 4.0
"""The rate of Adam, times the root of (matrices x rank^3). In each matrix `Subspace.lengths` divides it, so that a step
goes as far in a matrix of any shape."""

REWARD_PART = 1 / 8
"""Of the rate for rows that tell what is right. Too high a rate teaches texts of which none is worth anything, and then
nothing is left to learn from."""


def default_learning_rate(
    settings: SeedfloodSettings, shapes: Sequence[tuple[int, ...]], task: str | None = None
) -> float:
    """The largest learning rate of a run, by estimate, rank, the shapes of all parameters, and whether the task is
    "reward"."""
    if task == "reward":
        return default_learning_rate(settings, shapes) * REWARD_PART
    parameters_count = sum(map(math.prod, shapes))
    if settings.estimate == "gradient":
        matrices = sum(len(shape) == 2 for shape in shapes)
        return ADAM_RATE / math.sqrt(max(1, matrices) * settings.rank**3)  # exact: a root is rounded correctly
    by_number, by_root = DIRECTION_RATES
    return min(by_number / parameters_count, by_root / math.sqrt(parameters_count))
