import math

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.training.seedflood.schedule import ONE, ROOT_STEPS, Schedule
from seedflood.training.seedflood.telling import scaled


def fraction(name, step, *, steps=100):
    return Schedule(name, steps=steps).factor(step) / ONE


@given(steps=st.integers(1, 10**6), step=st.integers(0, 10**6))
def test_a_cosine_is_that_of_the_library_to_the_last_unit(steps, step):
    if step < steps:
        expected = (1 + math.cos(math.pi * step / steps)) / 2
        assert fraction("cosine", step, steps=steps) == pytest.approx(expected, abs=1.01 / ONE)


@pytest.mark.parametrize(("step", "factor"), [(0, 65536), (1, 65519), (25, 55938), (50, 32767), (99, 16), (100, 1)])
def test_the_factors_of_a_cosine_are_what_they_always_were(step, factor):
    assert Schedule("cosine", steps=100).factor(step) == factor


@pytest.mark.parametrize(("step", "factor"), [(0, 65536), (1, 65210), (100, 46340), (300, 32768), (30_000, 3777)])
def test_the_factors_of_a_root_are_what_they_always_were(step, factor):
    assert Schedule("root", steps=400).factor(step) == factor


@given(step=st.integers(0, 10**9))
def test_a_root_is_that_of_the_library_to_the_last_unit(step):
    assert fraction("root", step) == pytest.approx(math.sqrt(ROOT_STEPS / (ROOT_STEPS + step)), abs=1.01 / ONE)


@given(
    name=st.sampled_from(["root", "constant", "cosine"]),
    step=st.integers(0, 2**53),
    steps=st.integers(1, 2**40),
)
def test_every_step_counts_something_and_none_more_than_all(name, step, steps):
    assert 1 <= Schedule(name, steps=steps).factor(step) <= ONE


@given(told=st.lists(st.integers(-(2**32), 2**32), min_size=1, max_size=5), factor=st.integers(1, ONE))
def test_what_was_told_is_scaled_to_the_nearest_unit_by_itself(told, factor):
    result = scaled(numpy.array(told, dtype=numpy.int64), factor).tolist()
    for before, after in zip(told, result, strict=True):
        assert abs(before * factor - after * ONE) <= ONE // 2


def test_a_constant_schedule_leaves_every_integer_as_it_is():
    assert Schedule("constant", steps=5).factor(3) == ONE
    assert scaled(numpy.array([7, -7]), ONE).tolist() == [7, -7]
