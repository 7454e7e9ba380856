"""Whose turn a round is."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from nodes import hear, linked
from origins import A, B, make_rules

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.seedflood.bundles import Updates
from seedflood.protocol.seedflood.turns import ALL, Turns
from seedflood.protocol.seedflood.window import OpenWindows
from seedflood.protocol.swarm.liveness import Liveness
from seedflood.protocol.swarm.membership import Membership

origins = st.integers(0, 2**64 - 1)
turns = st.builds(Turns, st.integers(1, 20), st.integers(1, 4), st.binary(min_size=32, max_size=32))


def measured(turns, origin, end):
    """The steps before `end` that the origin measures."""
    return [step for step in range(end) if turns.has(origin, step)]


@given(turns=turns, origin=origins)
def test_in_each_turn_an_origin_measures_one_round(turns, origin):
    rounds = [step // turns.local_steps for step in measured(turns, origin, 5 * turns.steps)]
    assert Counter(rounds).keys() == {*rounds}
    assert set(Counter(rounds).values()) == {turns.local_steps}
    assert [one // turns.rounds for one in sorted({*rounds})] == [0, 1, 2, 3, 4]


@given(turns=turns, origin=origins, end=st.integers(-1, 200))
def test_the_last_step_of_an_origin_is_the_last_of_those_that_it_measures(turns, origin, end):
    assert turns.last(origin, end) == max(measured(turns, origin, end + 1), default=-1)


@given(turns=turns, origin=origins)
def test_an_origin_has_nothing_to_measure_for_no_longer_than_the_spread(turns, origin):
    steps = [-1, *measured(turns, origin, 6 * turns.steps)]
    assert max(after - before - 1 for before, after in pairwise(steps)) <= turns.spread


def test_without_participants_every_origin_measures_every_step():
    assert measured(ALL, A.id, 4) == [0, 1, 2, 3]
    assert ALL.spread == 0


def test_about_as_many_measure_a_round_as_shall():
    turns = Turns(16, 1, bytes(32))
    counts = [sum(turns.has(origin, step) for origin in range(1024)) for step in range(64)]
    assert sum(counts) == 1024 * 64 // 16
    assert min(counts) > 32  # binomial: 64, and four deviations of 7.7
    assert max(counts) < 96
    assert len({tuple(measured(turns, origin, 64)) for origin in range(64)}) > 60, "others together in each turn"


def make_window(rules, step, *heard):
    both = Membership([A.member(), B.member()])
    windows = OpenWindows(rules, both, Frontier(heard), Liveness(), lambda: 0.0)
    windows.open(step, 0.0)
    return windows.oldest


def test_a_window_waits_for_those_who_measure_it_and_for_what_they_owe_of_earlier_ones():
    rules = make_rules(steps=32, turn_rounds=4)
    first, second, *_ = measured(rules.turns, B.id, 32)
    waits = [bool(make_window(rules, step, A.held(32)).waiting) for step in range(32)]
    assert waits == [step >= first for step in range(32)]
    waits = [bool(make_window(rules, step, A.held(32), B.held(first + 1)).waiting) for step in range(32)]
    assert waits == [step >= second for step in range(32)]


def test_a_bundle_of_a_round_that_is_not_its_turn_is_refused():
    node = linked(B, steps=32, turn_rounds=4)
    first = measured(node.rules.turns, B.id, 32)[0]
    wrong = next(step for step in range(32) if not node.rules.turns.has(B.id, step))
    assert hear(node, B, Updates((B.bundle(wrong),))).bundles == []
    assert node.admission.refused == {"not its turn": 1}
    bundle = B.bundle(first, skipped=first)
    assert hear(node, B, Updates((bundle,))).bundles == [bundle]
