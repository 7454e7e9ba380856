import pytest
from hypothesis import given
from hypothesis import strategies as st
from origins import A, B

from seedflood.protocol.swarm.liveness import SUSPICION_SECONDS_MAX, SUSPICION_SECONDS_MIN, Liveness

BOUND = 0.1


def late_by(liveness, origin, *delays, start=0.0):
    """Windows that wait for the origin, which comes so late in each."""
    for delay in delays:
        liveness.opened([origin.id], {origin.id}, start)
        liveness.seen(origin.id, start + delay)
        start += 100.0
    return liveness


def test_who_is_missing_for_too_long_is_suspected_once():
    liveness = Liveness()
    liveness.opened([A.id, B.id], {B.id}, 10.0)
    assert liveness.review(10.0 + SUSPICION_SECONDS_MIN - 0.01, lambda: BOUND) == []
    assert liveness.review(10.0 + SUSPICION_SECONDS_MIN, lambda: BOUND) == [B.id]
    assert liveness.suspects == {B.id}
    assert liveness.review(1e9, lambda: BOUND) == []


def test_silence_counts_only_while_someone_is_waited_for():
    liveness = late_by(Liveness(), B, 0.5)
    assert liveness.review(1e9, lambda: BOUND) == []


def test_silence_adds_up_over_windows():
    liveness = Liveness()
    liveness.opened([B.id], {B.id}, 0.0)
    liveness.opened([B.id], {B.id}, 0.9)
    assert liveness.review(1.0, lambda: BOUND) == [B.id]


def test_a_suspect_that_speaks_is_one_no_longer_and_that_is_news():
    liveness = Liveness()
    liveness.opened([B.id], {B.id}, 0.0)
    liveness.review(100.0, lambda: BOUND)
    assert liveness.seen(B.id, 100.0)
    assert liveness.suspects == set()
    assert not liveness.seen(B.id, 101.0)
    assert liveness.review(1e9, lambda: BOUND) == []


def test_a_death_counts_as_long_as_it_took_to_be_noticed():
    liveness, late = late_by(Liveness(), B, *[0.5] * 20), late_by(Liveness(), B, *[0.5] * 20)
    late_by(late, B, late.suspicion_seconds(B.id, BOUND), start=5000.0)
    liveness.opened([B.id], {B.id}, 5000.0)
    liveness.review(6000.0, lambda: BOUND)
    liveness.seen(B.id, 6000.0)
    assert liveness.suspicion_seconds(B.id, BOUND) == late.suspicion_seconds(B.id, BOUND)


def test_an_origin_that_is_slow_from_the_first_step_on_is_not_suspected_for_ever():
    """Each window is missing it for eight seconds."""
    liveness, suspected = Liveness(), []
    for start in range(0, 1000, 100):
        liveness.opened([B.id], {B.id}, float(start))
        times = (start + tenths / 10 for tenths in range(80))
        suspected.append(any(liveness.review(now, lambda: BOUND) for now in times))
        liveness.seen(B.id, start + 8.0)
    assert suspected[0]
    assert not any(suspected[4:])
    assert liveness.lateness(B.id) > 4.0


def test_an_origin_that_is_usually_late_is_given_more_time():
    liveness = late_by(Liveness(), B, *[4.0] * 20)
    assert 4.0 < liveness.suspicion_seconds(B.id, BOUND) < 6.0
    assert liveness.suspicion_seconds(A.id, BOUND) == SUSPICION_SECONDS_MIN


def test_an_irregular_origin_is_given_more_time_than_a_regular_one():
    regular = late_by(Liveness(), B, *[2.0] * 40)
    irregular = late_by(Liveness(), B, *[1.0, 3.0] * 20)
    assert irregular.suspicion_seconds(B.id, BOUND) > regular.suspicion_seconds(B.id, BOUND) + 1.0


def test_an_origin_that_is_in_time_again_is_given_less_time():
    liveness = late_by(Liveness(), B, *[4.0] * 20)
    for k in range(60):
        liveness.opened([B.id], set(), 5000.0 + k)
    assert liveness.suspicion_seconds(B.id, BOUND) == SUSPICION_SECONDS_MIN


def test_one_who_never_was_late_has_no_estimate_to_spoil():
    liveness = Liveness()
    for k in range(1000):
        liveness.opened([B.id], set(), float(k))
    late_by(liveness, B, 3.0, start=2000.0)
    assert liveness.suspicion_seconds(B.id, BOUND) > 3.0


def test_who_has_left_is_neither_missing_nor_a_suspect():
    liveness = Liveness()
    liveness.opened([A.id, B.id], {A.id, B.id}, 0.0)
    liveness.review(100.0, lambda: BOUND)
    liveness.forget(A.id)
    assert liveness.suspects == {B.id}
    liveness.forget(B.id)
    assert liveness.review(1e9, lambda: BOUND) == []


@pytest.mark.parametrize(("bound", "seconds"), [(0.0, 1.0), (0.5, 1.0), (2.0, 4.0), (15.0, 30.0), (1e6, 30.0)])
def test_news_have_twice_the_time_they_take_across_the_network(bound, seconds):
    assert Liveness().suspicion_seconds(B.id, bound) == seconds


@given(delays=st.lists(st.floats(0, 1e4), max_size=30), bound=st.floats(0, 1e3))
def test_the_time_stays_between_the_floor_and_the_ceiling(delays, bound):
    seconds = late_by(Liveness(), B, *delays).suspicion_seconds(B.id, bound)
    assert SUSPICION_SECONDS_MIN <= seconds <= SUSPICION_SECONDS_MAX


@given(delay=st.floats(0, 20), count=st.integers(1, 50))
def test_an_origin_that_is_always_equally_late_is_never_suspected(delay, count):
    liveness = late_by(Liveness(), B, *[delay] * count)
    liveness.opened([B.id], {B.id}, 1e6)
    assert liveness.review(1e6 + delay, lambda: BOUND) == []
