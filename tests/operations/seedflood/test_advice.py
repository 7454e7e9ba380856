"""What delay and round length the measured hops call for."""

import pytest

from seedflood.operations.seedflood.advice import advise

RING_OF_FOUR = {"hop_seconds": 0.1, "diameter": 2, "step_seconds": 0.042}


def test_hops_of_100_ms_on_a_ring_of_four_call_for_rounds_that_fill_the_flight():
    advice = advise(**RING_OF_FOUR, local_steps=1, delay=0)
    assert advice is not None
    assert 0.17 < advice.utilisation < 0.18
    assert (advice.local_steps, advice.delay) == (5, 5)
    assert advice.sentence() == "delay = 1 with local_steps = 5 or delay = 5"


def test_whoever_follows_the_advice_gets_no_more_of_it():
    assert advise(**RING_OF_FOUR, local_steps=5, delay=1) is None
    assert advise(**RING_OF_FOUR, local_steps=1, delay=5) is None


def test_a_near_network_calls_for_nothing():
    assert advise(hop_seconds=0.0005, diameter=4, step_seconds=0.04, local_steps=1, delay=0) is None


def test_where_no_allowed_setting_is_enough_larger_batches_are_named():
    advice = advise(hop_seconds=1.0, diameter=16, step_seconds=0.001, local_steps=1, delay=0)
    assert advice is not None
    assert advice.sentence() == "larger batches"


def test_where_rounds_are_long_enough_one_delay_is_named_once():
    advice = advise(hop_seconds=0.01, diameter=2, step_seconds=0.03, local_steps=1, delay=0)
    assert advice is not None
    assert advice.sentence() == "delay = 1"


@pytest.mark.parametrize(
    ("local_steps", "sentence"),
    [(1, "delay = 0 with larger batches and local_steps = 4"), (4, "delay = 0 with larger batches")],
)
@pytest.mark.parametrize("delay", [0, 64])
def test_adam_is_told_of_no_delay_with_which_it_learns_little(local_steps, delay, sentence):
    advice = advise(**RING_OF_FOUR, local_steps=local_steps, delay=delay, optimizer="adam")
    assert advice is not None
    assert advice.sentence() == sentence
