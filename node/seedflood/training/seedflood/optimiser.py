"""An optimiser on the coefficients of an epoch: momentum or Adam (arXiv 1412.6980, 1711.05101), the same everywhere.

It goes by steps: after step t the state is a pure function of what the origins told of steps 0..t together, whatever
order that came in. So it needs complete steps (strict windows), and every host that holds the same has the same state.

Equal bit for bit, for one host must have the digest of another: float64, one operation of IEEE 754 at a time, by numpy
functions that work element by element (add, subtract, multiply, divide and square root are rounded correctly; fused
multiply-add and powers of a library are not the same everywhere, and matrix products depend on the library). The powers
of beta are made by multiplication. What a step adds to the increments A is rounded to integers in units of 2^-40, so A
is a sum of integers again: it stands for the epoch when that is closed, in digests, sums and snapshots.

A state begins anew with every epoch, for its coordinates mean something else in another basis; so what stands for a
closed epoch is A alone.

A step about which nothing was told, or only zeros, is passed over: it leaves no trace in the sums either.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy

from seedflood.training.seedflood.schedule import FACTOR_BITS

INCREMENT_UNIT_BITS = 40
"""A is an integer in units of 2^-40 (9e-13): a step of Adam is a learning rate, 1e-4, in each of them; 2^23 is far."""

MOMENTUM = 0.9
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8

STEP_MAX = 2.0**50
"""What one step adds to an increment at most, in units: a thousand. A run that has diverged shall stay an integer."""

Floats = numpy.ndarray[Any, numpy.dtype[numpy.float64]]
Integers = numpy.ndarray[Any, numpy.dtype[numpy.int64]]

OptimizerName = Literal["momentum", "adam"]


@dataclass(frozen=True, slots=True)
class State:
    """After some steps. increment_F: A in units of 2^-40. decay_1, decay_2: beta_1, beta_2 to the power of the steps.

    Its arrays are not written to.
    """

    increment_F: Integers
    first_F: Floats
    second_F: Floats
    decay_1: float = 1.0
    decay_2: float = 1.0


def begin(increment_F: Integers) -> State:
    """Nothing is known but the increments."""
    zeros_F = numpy.zeros(len(increment_F))
    return State(increment_F, zeros_F, zeros_F)


@dataclass(frozen=True, slots=True)
class Optimiser:
    """unit: what an integer that was told is worth in the mean over all clients."""

    name: OptimizerName
    learning_rate: float
    weight_decay: float
    unit: float

    def step(self, state: State, sum_F: Integers, factor: int) -> State:
        """The state after a step of which this sum was told. factor: of the learning rate, in units of 2^-16."""
        gradient_F = numpy.multiply(sum_F.astype(numpy.float64), self.unit)
        rate = self.learning_rate * (factor * 2.0**-FACTOR_BITS)
        if self.name == "momentum":
            first_F = numpy.add(numpy.multiply(state.first_F, MOMENTUM), gradient_F)
            moved = State(state.increment_F, first_F, state.second_F)
            return self._move(moved, first_F, rate)
        first_F = numpy.add(numpy.multiply(state.first_F, BETA_1), numpy.multiply(gradient_F, 1 - BETA_1))
        square_F = numpy.multiply(gradient_F, gradient_F)
        second_F = numpy.add(numpy.multiply(state.second_F, BETA_2), numpy.multiply(square_F, 1 - BETA_2))
        decay_1, decay_2 = state.decay_1 * BETA_1, state.decay_2 * BETA_2
        root_F = numpy.sqrt(numpy.divide(second_F, 1 - decay_2))
        direction_F = numpy.divide(numpy.divide(first_F, 1 - decay_1), numpy.add(root_F, EPSILON))
        return self._move(State(state.increment_F, first_F, second_F, decay_1, decay_2), direction_F, rate)

    def _move(self, state: State, direction_F: Floats, rate: float) -> State:
        """Decay towards the base model, then the step."""
        units_F = numpy.multiply(direction_F, -rate * 2.0**INCREMENT_UNIT_BITS)
        if self.weight_decay:
            decay_F = numpy.multiply(state.increment_F.astype(numpy.float64), -rate * self.weight_decay)
            units_F = numpy.add(units_F, decay_F)
        units_F = numpy.clip(numpy.rint(units_F), -STEP_MAX, STEP_MAX)
        increment_F = numpy.add(state.increment_F, units_F.astype(numpy.int64))
        return State(increment_F, state.first_F, state.second_F, state.decay_1, state.decay_2)
