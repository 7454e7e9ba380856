import math

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.config import RunSettings
from seedflood.training.seedflood.compression import scaled
from seedflood.training.seedflood.schedule import ONE, ROOT_STEPS, constant, factor_of, root


@pytest.mark.parametrize(("step", "factor"), [(0, 65536), (1, 65210), (100, 46340), (300, 32768), (30_000, 3777)])
def test_the_factors_of_a_root_are_what_they_always_were(step, factor):
    assert root(step) == factor


@given(step=st.integers(0, 10**9))
def test_a_root_is_that_of_the_library_to_the_last_unit(step):
    assert root(step) / ONE == pytest.approx(math.sqrt(ROOT_STEPS / (ROOT_STEPS + step)), abs=1.01 / ONE)


@given(step=st.integers(0, 2**53))
def test_every_step_counts_something_and_none_more_than_all(step):
    assert 1 <= root(step) <= constant(step) == ONE


@given(told=st.lists(st.integers(-(2**32), 2**32), min_size=1, max_size=5), factor=st.integers(1, ONE))
def test_what_was_told_is_scaled_to_the_nearest_unit_by_itself(told, factor):
    result = scaled(numpy.array(told, dtype=numpy.int64), factor).tolist()
    for before, after in zip(told, result, strict=True):
        assert abs(before * factor - after * ONE) <= ONE // 2


def test_by_reward_every_integer_stays_as_it_is():
    assert factor_of(RunSettings.of(task="reward")) is constant
    assert factor_of(RunSettings()) is root
    assert scaled(numpy.array([7, -7]), ONE).tolist() == [7, -7]
