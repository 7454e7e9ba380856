import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from origins import B, C

from seedflood.protocol.swarm.delays import HOP_MILLISECONDS_MAX, SAMPLES_MAX, HopDelays


def measured(*round_trips):
    delays = HopDelays()
    for k, seconds in enumerate(round_trips):
        delays.ping(B.id, 1000.0 * k)
        delays.pong(B.id, 1000.0 * k, 1000.0 * k + seconds)
    return delays


def test_a_hop_is_half_a_round_trip():
    assert measured(0.5).slow_seconds == pytest.approx(0.25)


def test_the_slow_end_of_all_links_counts():
    delays = HopDelays()
    for peer, seconds in ((B, 0.1), (C, 0.9)):
        delays.ping(peer.id, 0.0)
        delays.pong(peer.id, 0.0, seconds)
    assert delays.slow_seconds == pytest.approx(0.45)


def test_one_hiccup_among_hundreds_does_not_count_and_several_do():
    assert measured(*[0.2] * 199, 60.0).slow_seconds == pytest.approx(0.1)
    assert measured(*[0.2] * 195, *[60.0] * 5).slow_seconds == pytest.approx(30.0)


def test_old_delays_are_forgotten():
    assert measured(*[60.0] * 9, *[0.2] * SAMPLES_MAX).slow_seconds == pytest.approx(0.1)


def test_only_the_answer_to_the_last_ping_is_believed_and_only_once():
    delays = HopDelays()
    delays.pong(B.id, 0.0, 9.0)
    delays.ping(B.id, 1.0)
    delays.ping(B.id, 2.0)
    delays.pong(B.id, 1.0, 9.0)
    delays.pong(C.id, 2.0, 9.0)
    assert delays.slow_seconds == 0.0
    delays.pong(B.id, 2.0, 2.2)
    delays.pong(B.id, 2.0, 99.0)
    assert delays.slow_seconds == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("hop_seconds", "milliseconds"),
    [
        (0.0, 1),
        (0.0004, 1),
        (0.001, 1),
        (0.002, 2),
        (0.003, 4),
        (0.1, 128),
        (1.024, 1024),
        (1.025, 2048),
        (999.0, 8192),
    ],
)
def test_a_statement_says_the_power_of_two_above(hop_seconds, milliseconds):
    assert measured(2 * hop_seconds).milliseconds_to_state(0) == milliseconds


@pytest.mark.parametrize(
    ("said", "says"), [(0, 128), (64, 128), (127, 128), (128, 128), (256, 256), (511, 511), (512, 128), (8192, 128)]
)
def test_it_is_said_again_only_when_it_has_doubled_or_fallen_to_a_quarter(said, says):
    assert measured(0.2).milliseconds_to_state(said) == says


@pytest.mark.parametrize("said", [0, 128])
def test_what_a_past_life_measured_stands_until_something_is_measured(said):
    assert HopDelays().milliseconds_to_state(said) == said


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20), st.integers(0, 2 * HOP_MILLISECONDS_MAX))
def test_what_was_just_said_stands(round_trips, said):
    delays = measured(*round_trips)
    now_said = delays.milliseconds_to_state(said)
    assert delays.milliseconds_to_state(now_said) == now_said


def test_hops_are_shown_as_they_were_measured():
    delays = measured(0.5, 0.001, 0.002, 60.0)
    hops = delays.view()
    assert hops.recent == pytest.approx((0.25, 0.0005, 0.001, 30.0))
    assert hops.latest == {B.id: 30.0}
    assert hops.sum_seconds == pytest.approx(30.2515)
    counted = dict(zip((*hops.bounds, math.inf), hops.counts, strict=True))
    assert {bound: count for bound, count in counted.items() if count} == {0.0005: 1, 0.001: 1, 0.25: 1, math.inf: 1}


def test_who_is_not_linked_any_more_has_no_hop():
    delays = measured(0.5)
    delays.ping(B.id, 5.0)
    delays.forget(B.id)
    delays.pong(B.id, 5.0, 6.0)
    assert delays.view().latest == {}
    assert delays.view().recent == (0.25,)
