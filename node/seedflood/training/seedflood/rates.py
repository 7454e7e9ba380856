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

ADAM_RATE = 1 / 8
"""The rate of Adam, times the root of (matrices x rank^3), for weight matrices of norm 1. In each matrix
`Subspace.lengths` divides it, so that a step goes as far in a matrix of any shape."""

REWARD_PART = 1 / 8
"""Of the rate for rows that tell what is right. Too high a rate teaches texts of which none is worth anything, and then
nothing is left to learn from."""


def default_learning_rate(
    settings: SeedfloodSettings, shapes: Sequence[tuple[int, ...]], norms: Sequence[float] = (), task: str = ""
) -> float:
    """The largest learning rate of a run, by estimate, rank, the shapes of all parameters, and whether the task is
    "reward". norms: of gradients, the Frobenius norms of the base model's matrices."""
    if task == "reward":
        return default_learning_rate(settings, shapes, norms) * REWARD_PART
    parameters_count = sum(map(math.prod, shapes))
    if settings.estimate == "gradient":
        matrices = sum(len(shape) == 2 for shape in shapes)
        # Equal on all hosts: each root is rounded correctly.
        return ADAM_RATE * _typical(norms) / math.sqrt(max(1, matrices) * settings.rank**3)
    by_number, by_root = DIRECTION_RATES
    return min(by_number / parameters_count, by_root / math.sqrt(parameters_count))


def _typical(norms: Sequence[float]) -> float:
    """The root of their mean square; 1 of matrices that are all zeros."""
    mean_square = sum(norm * norm for norm in norms) / max(1, len(norms))
    return math.sqrt(mean_square) or 1.0
