import pytest

from seedflood.protocol.gasloc.pace import Pace
from seedflood.protocol.gasloc.phase import TRANSITIONS, Lifecycle, Phase
from seedflood.protocol.gasloc.rules import CLOSING_ROUNDS, Bounds, GaslocRules
from seedflood.protocol.swarm.delays import HopDelays

PEER = 5


def make_pace(*, size=1_000_000, local_seconds=10.0, **bounds):
    pace = Pace(Bounds(**bounds), HopDelays())
    pace.size, pace.local_seconds = size, local_seconds
    return pace


def test_a_partner_is_waited_for_as_long_as_local_steps_take():
    bounds = Bounds(wait_factor=0.5, floor_seconds=2.0)
    assert bounds.wait_seconds(local_seconds=60.0, hop_seconds=0.1) == pytest.approx(30 + 2 + 0.4)


def test_a_transfer_gets_several_times_what_its_link_promises():
    bounds = Bounds(transfer_factor=3.0, floor_seconds=2.0, keep_bytes_per_second=1e8)
    assert bounds.transfer_seconds(10**8, 1e7, 0.1) == pytest.approx(3 * (10 + 1) + 2 + 0.8)


def test_a_link_of_which_nothing_is_known_or_that_crawls_gets_what_the_slowest_is_allowed():
    bounds = Bounds(throughput_min=1e6)
    assert bounds.transfer_seconds(10**7, None, 0.0) == bounds.transfer_seconds(10**7, 10.0, 0.0)


def test_whatever_is_measured_nothing_takes_longer_than_the_limit():
    bounds = Bounds(seconds_max=100.0)
    assert bounds.wait_seconds(1e9, 1.0) == 100.0
    assert bounds.transfer_seconds(10**12, 1.0, 1.0) == 100.0


@pytest.mark.parametrize(("seconds", "slow"), [(1, 0), (10, 0), (12, 0), (13, 1), (19, 1), (26, 2), (60, 3), (1e5, 6)])
def test_a_link_is_as_slow_as_its_transfers_are_longer_than_local_steps(seconds, slow):
    pace = make_pace()
    pace.measured(PEER, pace.size / seconds)
    assert pace.slow.get(PEER, 0) == slow


def test_a_class_does_not_change_with_every_measurement():
    pace = make_pace()
    pace.measured(PEER, pace.size / 19)
    for seconds in (21, 24, 18, 9, 22, 11):
        pace.measured(PEER, pace.size / seconds)
        assert pace.slow[PEER] == 1


def test_a_link_that_is_fast_again_exchanges_in_every_round():
    pace = make_pace()
    pace.measured(PEER, pace.size / 100)
    for _ in range(10):
        pace.measured(PEER, pace.size / 0.1)
    assert pace.slow == {}


def test_a_transfer_that_did_not_end_says_that_the_link_is_slower():
    pace = make_pace(throughput_min=1e6)
    for _ in range(6):
        pace.failed(PEER)
    assert pace.throughput[PEER] == 1e6 / 64
    assert pace.slow[PEER] >= 2


def test_before_local_steps_were_measured_no_link_is_slow():
    pace = make_pace(local_seconds=0.0)
    pace.measured(PEER, 1.0)
    assert pace.slow == {}


@pytest.mark.parametrize(("local_seconds", "patience"), [(1.0, 60.0), (10.0, 160.0)])
def test_who_comes_to_no_later_round_for_long_stands_still_whatever_else_it_states(local_seconds, patience):
    pace = make_pace(local_seconds=local_seconds)
    pace.reached({PEER: 1, 6: 1}, 100.0)
    pace.reached({PEER: 0, 6: 2}, 140.0)
    pace.reached({PEER: 1, 6: 2}, 150.0)
    assert pace.silent(100.0 + patience) == set()
    assert pace.silent(101.0 + patience) == {PEER}


def test_rounds_follow_from_steps():
    rules = GaslocRules(bytes(32), bytes(32), 4, steps=1000, local_steps=50, matching="one")
    assert (rules.training_rounds, rules.rounds) == (20, 20 + CLOSING_ROUNDS)
    assert [rules.slots_of(round_) for round_ in (19, 20)] == [1, None]
    assert [rules.encoding_of(round_) for round_ in (19, 20)] == ["bfloat16", "float32"]


@pytest.mark.parametrize("before", Phase)
@pytest.mark.parametrize("after", Phase)
def test_the_table_of_phases_is_kept(before, after):
    life = Lifecycle()
    life.phase = before
    if after in TRANSITIONS[before]:
        life.enter(after)
        assert life.phase is after
    else:
        with pytest.raises(AssertionError, match="does not follow"):
            life.enter(after)
        assert life.phase is before
