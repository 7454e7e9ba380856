"""Optimisers of integers: they turn the updates of an epoch's steps into its coefficients.

`sgd` adds them up, in any order. The others go by steps, like Adam in the replica
(training/seedflood/aggregation.py): whatever comes late is computed at its step, and the later steps again. What comes
beside another host's sum adds nothing. The state of an optimiser starts again with each epoch.

All coefficients of an epoch are one integer of 512 bits that wraps around.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

OptimizerName = Literal["sgd", "momentum", "adam"]
OPTIMIZERS: tuple[OptimizerName, ...] = get_args(OptimizerName)

COEFFICIENTS = 8
COEFFICIENT_MAX = 1 << 63
_BITS = 64 * COEFFICIENTS
_MASK = (1 << _BITS) - 1
_HALF = sum(1 << (64 * k + 63) for k in range(COEFFICIENTS))


def wrapped(total: int) -> int:
    """The integer that a host gets which receives the coefficients as signed integers of 64 bits."""
    return ((total + _HALF) & _MASK) - _HALF


def after_steps(optimizer: OptimizerName, total: int, sums: Mapping[int, int]) -> int:
    """The coefficients after these steps. total: before them. sums: the sum of the updates of each step."""
    if optimizer == "sgd":
        return total + sum(sums.values())
    first = second = 0
    for sum_ in _in_turn(sums):
        first = (5 * first + sum_) & _MASK
        if optimizer == "adam":
            second = (3 * second + sum_ * sum_) & _MASK
        total = wrapped(total - first * (2 * second + 1))
    return total


def _in_turn(sums: Mapping[int, int]) -> Iterable[int]:
    """The sums in the order of steps. A sum of zero counts as no step."""
    return (sums[step] for step in sorted(sums) if sums[step])
