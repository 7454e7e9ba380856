"""The calendar of a host: a jump of its clock counts only when it has stood."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.protocol.swarm.calendar import HOLD_SECONDS, JUMP_SECONDS, Calendar

DECADES = 43 * 365 * 86_400.0


class Clocks:
    """A wall clock that a test sets, beside a steady one."""

    def __init__(self):
        self.wall, self.steady = 1e9, 50.0
        self.calendar = Calendar(lambda: self.wall, lambda: self.steady)

    def pass_by(self, seconds):
        self.wall += seconds
        self.steady += seconds
        return self.calendar.settled()


def test_time_passes_as_the_wall_clock_says():
    clocks = Clocks()
    assert clocks.pass_by(10.0) == 1e9 + 10
    clocks.wall += JUMP_SECONDS / 2  # set right by its operator
    assert clocks.pass_by(10.0) == pytest.approx(1e9 + 20 + JUMP_SECONDS / 2)


@given(
    st.sampled_from([DECADES, -1e9, 2 * JUMP_SECONDS, -2 * JUMP_SECONDS]), st.lists(st.floats(0.0, 60.0), max_size=50)
)
def test_a_jump_that_is_taken_back_within_the_hour_never_counts(jump, moments):
    clocks = Clocks()
    clocks.wall += jump
    passed = 0.0
    for seconds in moments:
        passed += seconds
        assert clocks.pass_by(seconds) == pytest.approx(1e9 + passed)
    clocks.wall -= jump
    assert clocks.pass_by(1.0) == pytest.approx(1e9 + passed + 1)


def test_a_jump_that_stands_for_an_hour_counts():
    """A machine without a battery begins in 1970, and is set right when it has a network."""
    clocks = Clocks()
    clocks.wall += DECADES
    assert clocks.pass_by(1.0) == 1e9 + 1
    assert clocks.pass_by(HOLD_SECONDS - 1) == 1e9 + HOLD_SECONDS
    assert clocks.pass_by(2.0) == 1e9 + DECADES + HOLD_SECONDS + 2


def test_a_clock_that_jumps_to_and_fro_is_not_believed():
    clocks = Clocks()
    for _ in range(10):
        for jump in (DECADES, -DECADES):
            clocks.wall += jump
            clocks.pass_by(HOLD_SECONDS / 2)
    assert clocks.pass_by(0.0) == pytest.approx(1e9 + 10 * HOLD_SECONDS)


def test_a_machine_that_was_suspended_has_not_jumped():
    clocks = Clocks()
    assert clocks.pass_by(30 * JUMP_SECONDS) == 1e9 + 30 * JUMP_SECONDS
