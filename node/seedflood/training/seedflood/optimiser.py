"""Adam (arXiv 1412.6980) on the coefficients of an epoch, the same on every host.

The state must be equal bit for bit, because digests are compared. So it is computed in float64, one IEEE 754 operation
at a time, by numpy functions that work element by element and are rounded correctly everywhere: no fused multiply-add,
no library's powers, no matrix products.

Why only A stands for a closed epoch: docs/explanation/learning.md.
"""

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Annotated, Any

import numpy
from pydantic import PlainSerializer, PlainValidator

from seedflood.training.seedflood.schedule import FACTOR_BITS

INCREMENT_UNIT_BITS = 40
"""A is an integer in units of 2^-40 (9e-13). A step of Adam moves each entry by about a learning rate, 1e-4; 2^23 is
far."""

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8

STEP_MAX = 2.0**50
"""The most that one step adds to an increment, in units: a thousand. Even a run that has diverged stays within
integers."""


def _from_text(kind: type[numpy.generic]) -> PlainValidator:
    """Arrays that may be written, or torch warns of them."""
    return PlainValidator(lambda text: numpy.frombuffer(bytearray(b64decode(text)), kind))


_AS_TEXT = PlainSerializer(lambda array: b64encode(array.tobytes()).decode())
Floats = Annotated[numpy.ndarray[Any, numpy.dtype[numpy.float64]], _from_text(numpy.float64), _AS_TEXT]
Integers = Annotated[numpy.ndarray[Any, numpy.dtype[numpy.int64]], _from_text(numpy.int64), _AS_TEXT]
"""Arrays of a state, which can be put aside as JSON (`aggregation`)."""


@dataclass(frozen=True, slots=True)
class State:
    """The state after some steps. increment_F: A in units of 2^-40. first_F, second_F: the moments. decay_1, decay_2:
    beta_1 and beta_2 to the power of the number of steps, made by multiplication.

    Do not write to its arrays.
    """

    increment_F: Integers
    first_F: Floats
    second_F: Floats
    decay_1: float = 1.0
    decay_2: float = 1.0


def begin(increment_F: Integers) -> State:
    """The state at the beginning of an epoch, whose coordinates mean something else, or after a sum was adopted."""
    zeros_F = numpy.zeros(len(increment_F))
    return State(increment_F, zeros_F, zeros_F)


@dataclass(frozen=True, slots=True)
class Adam:
    """Adam with its settings. unit: the value of one integer of a sum in the mean over all clients. length_F:
    what its steps are divided by (`Subspace.lengths`)."""

    learning_rate: float
    unit: float
    length_F: Floats

    def step(self, state: State, sum_F: Integers, factor: int) -> State:
        """The state after a step of which this is the sum. factor: of the learning rate, in units of 2^-16."""
        gradient_F = numpy.multiply(sum_F.astype(numpy.float64), self.unit)
        rate = self.learning_rate * (factor * 2.0**-FACTOR_BITS)
        first_F = numpy.add(numpy.multiply(state.first_F, BETA_1), numpy.multiply(gradient_F, 1 - BETA_1))
        square_F = numpy.multiply(gradient_F, gradient_F)
        second_F = numpy.add(numpy.multiply(state.second_F, BETA_2), numpy.multiply(square_F, 1 - BETA_2))
        decay_1, decay_2 = state.decay_1 * BETA_1, state.decay_2 * BETA_2
        root_F = numpy.sqrt(numpy.divide(second_F, 1 - decay_2))
        direction_F = numpy.divide(numpy.divide(first_F, 1 - decay_1), numpy.add(root_F, EPSILON))
        step_F = numpy.divide(direction_F, self.length_F)
        units_F = numpy.rint(numpy.multiply(step_F, -rate * 2.0**INCREMENT_UNIT_BITS))
        moved_F = numpy.clip(units_F, -STEP_MAX, STEP_MAX).astype(numpy.int64)
        return State(numpy.add(state.increment_F, moved_F), first_F, second_F, decay_1, decay_2)
