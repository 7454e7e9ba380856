import math

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.training.seedflood.optimiser import INCREMENT_UNIT_BITS, STEP_MAX, Adam, begin

UNIT = 2.0**-24
SUMS = [[1 << 22, -(3 << 20), 7, 0], [12345, -(1 << 30), -7, 0], [-(1 << 22), 99, 1, 1]]
LENGTHS = [1.0, 3.0, 64.0, 724.0773, 1e5, 1.0, 16.0, 640.0, 12953.0]
FACTORS = [65536, 64536, 63536]

KNOWN = (
    [-521136335, 756632673, -312823600, -158305426],
    ["-0x1.32f4b9db22d0cp-8", "-0x1.719ca98e978d3p+2", "0x1.2f1a9fbe76c8ep-29", "0x1.9999999999998p-28"],
    ["0x1.05e2143e71c46p-13", "0x1.05e25479de84cp+2", "0x1.94e6ef4909c5dp-52", "0x1.0624dd2f1aa00p-58"],
)


def run(optimiser, sums, factors):
    state = begin(numpy.zeros(len(sums[0]), numpy.int64))
    for sum_F, factor in zip(sums, factors, strict=True):
        state = optimiser.step(state, numpy.array(sum_F, numpy.int64), factor)
    return state


def test_every_bit_is_known():
    state = run(Adam(3e-4, UNIT, numpy.ones(4)), SUMS, FACTORS)
    increments, first, second = KNOWN
    assert state.increment_F.tolist() == increments
    assert [value.hex() for value in state.first_F.tolist()] == first
    assert [value.hex() for value in state.second_F.tolist()] == second


def one_by_one(rate, length, sums, factors):
    """One coefficient in Python's floats, which are IEEE 754 doubles, as the paper writes it."""
    increment, first, second = 0, 0.0, 0.0
    power_1 = power_2 = 1.0
    for told, factor in zip(sums, factors, strict=True):
        gradient, lr = told * UNIT, rate * (factor / 65536)
        first = first * 0.9 + gradient * (1 - 0.9)
        second = second * 0.999 + gradient * gradient * (1 - 0.999)
        power_1, power_2 = power_1 * 0.9, power_2 * 0.999
        direction = first / (1 - power_1) / (math.sqrt(second / (1 - power_2)) + 1e-8) / length
        step = direction * (-lr * 2**INCREMENT_UNIT_BITS)
        increment += int(max(-STEP_MAX, min(STEP_MAX, round(step))))
    return increment


@given(
    sums=st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=12),
    rate=st.floats(1e-7, 1.0),
    factor=st.integers(1, 65536),
)
def test_many_coefficients_at_once_are_each_by_itself_to_the_last_bit(sums, rate, factor):
    factors = [factor] * len(sums)
    columns = [[told, -told, 0, 3 * told, told // 1000, 1, told, -told, told] for told in sums]
    state = run(Adam(rate, UNIT, numpy.array(LENGTHS)), columns, factors)
    expected = [
        one_by_one(rate, length, column, factors)
        for length, column in zip(LENGTHS, zip(*columns, strict=True), strict=True)
    ]
    assert state.increment_F.tolist() == expected


def test_the_first_step_of_adam_is_a_learning_rate_to_the_length_of_its_coordinate_whatever_the_gradient():
    state = run(
        Adam(1e-3, UNIT, numpy.array([1.0, 1.0, 2.0, 1.0])),
        [[1 << 30, 1 << 10, -(1 << 20), 0]],
        [65536],
    )
    changes = state.increment_F * 2.0**-INCREMENT_UNIT_BITS
    assert changes == pytest.approx([-1e-3, -1e-3, 0.5e-3, 0], rel=1e-3)


def test_a_run_that_diverges_stays_an_integer():
    state = run(Adam(1e9, 1.0, numpy.ones(2)), [[1 << 62, -(1 << 62)]] * 3, [65536] * 3)
    assert state.increment_F.tolist() == [-3 << 50, 3 << 50]
