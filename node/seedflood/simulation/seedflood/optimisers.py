"""Optimisers of integers: what makes the coefficients of an epoch of what was told of each of its steps.

`sgd` adds it up: any order will do. The others go by steps, as those of the replica do
(training/seedflood/aggregation.py): what all told of one step may come in any order, but another order of steps, or a
step that is gone through in two halves, gives other coefficients. A state begins anew with an epoch, and where a sum of
another host takes the place of bundles.

Integers of 512 bits that wrap around, each for all coefficients of an epoch.
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
    """As a host is told it that is given the coefficients: each of them has 64 bits and a sign."""
    return ((total + _HALF) & _MASK) - _HALF


def after_steps(optimizer: OptimizerName, total: int, sums: Mapping[int, int]) -> int:
    """What `total` comes to after these steps. sums: what was told of each."""
    if optimizer == "sgd":
        return total + sum(sums.values())
    first = second = 0
    for told in _in_turn(sums):
        first = (5 * first + told) & _MASK
        if optimizer == "adam":
            second = (3 * second + told * told) & _MASK
        total = wrapped(total - first * (2 * second + 1))
    return total


def _in_turn(sums: Mapping[int, int]) -> Iterable[int]:
    """A step of which zeros were told leaves no trace."""
    return (sums[step] for step in sorted(sums) if sums[step])
