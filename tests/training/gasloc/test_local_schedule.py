from itertools import pairwise

import pytest

from seedflood.training.gasloc.schedule import Schedule


def test_it_warms_up_and_goes_down_to_its_floor():
    schedule = Schedule(warmup_steps=4, steps=24, floor=0.1)
    factors = [schedule.factor(step) for step in range(30)]
    assert factors[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert factors[14] == pytest.approx(0.55)
    assert factors[24:] == pytest.approx([0.1] * 6)
    assert all(before > after for before, after in pairwise(factors[4:25]))


def test_constant_stays_after_its_warm_up():
    schedule = Schedule(warmup_steps=1, steps=3, floor=1.0)
    assert [schedule.factor(step) for step in range(5)] == [0.5, 1, 1, 1, 1]
    assert Schedule(0, 1, floor=1.0).factor(0) == 1


def test_a_run_that_is_all_warm_up_ends_at_its_floor():
    assert Schedule(warmup_steps=3, steps=3, floor=0.2).factor(4) == pytest.approx(0.2)
