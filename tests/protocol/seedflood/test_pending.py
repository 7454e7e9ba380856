"""What waits for its window: exactly what the rule says, in memory that a fast host cannot fill, at the cost of what is
taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from origins import make_rules

from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.seedflood.bundles import make_bundle
from seedflood.protocol.seedflood.pending import AHEAD_BUNDLES, Pending
from seedflood.protocol.seedflood.window import Window

CLIENTS = 4
BUNDLES = st.sets(st.tuples(st.integers(1, CLIENTS), st.integers(0, 400)), max_size=60)


def bundle(origin, step):
    return make_bundle(origin, step, ((step, origin),))


def take(pending, step, rule):
    """What is applied with the window of this step when it closes."""
    return pending.take_window(Window(step, step, 0.0, 0.0), make_rules(CLIENTS, window=rule), "all received", 1.0)


def names(closed):
    return sorted((update.origin, update.step) for update in closed.updates)


@given(BUNDLES, st.integers(0, 400))
def test_a_strict_window_takes_its_own_round_and_what_came_late_and_nothing_more(there, step):
    pending = Pending()
    pending.add(bundle(*name) for name in there)
    due = sorted(name for name in there if name[1] <= step)
    assert names(take(pending, step, "strict")) == due
    assert len(pending) == len(there) - len(due)
    assert {(one.origin, one.step) for one in pending} == there - set(due)


def test_what_a_fast_host_says_does_not_pile_up():
    pending = Pending()
    said = 0
    for step in range(100):  # of the slow ones; the fast one says 200 bundles meanwhile
        pending.add(bundle(1, said + k) for k in range(200))
        pending.add(bundle(origin, step) for origin in range(2, CLIENTS + 1))
        said += 200
        closed = take(pending, step, "bounded")
        assert {(o, step) for o in range(2, CLIENTS + 1)} <= set(names(closed))
        assert len(pending) <= AHEAD_BUNDLES * CLIENTS
    pending.take_before(said)
    assert pending.applied.held() == (Held(1, said), *(Held(o, 100) for o in range(2, CLIENTS + 1)))


def test_a_bounded_window_leaves_to_later_ones_what_is_a_few_rounds_ahead():
    pending = Pending()
    pending.add(bundle(origin, step) for origin in range(1, CLIENTS + 1) for step in range(AHEAD_BUNDLES // 2))
    closed = take(pending, 3, "bounded")
    assert {update.step for update in closed.updates} == {0, 1, 2, 3}


@given(BUNDLES, st.integers(0, 400), st.integers(0, 400))
def test_taking_costs_what_is_taken(there, early, later):
    looked_at = []

    class Counted(Pending):
        def drop(self, is_meant):
            pytest.fail("everything that waits was looked at")

        def _note(self, taken):
            looked_at.extend(taken)
            super()._note(taken)

    pending = Counted()
    pending.add(bundle(*name) for name in there)
    for step in sorted([early, later]):
        take(pending, step, "bounded")
        pending.take_before(step + 1)
    assert len(looked_at) == len(there) - len(pending)


@given(BUNDLES, st.lists(st.integers(0, 400), min_size=CLIENTS, max_size=CLIENTS))
def test_what_another_frontier_covers_is_taken_and_no_more(there, marks):
    frontier = Frontier(Held(origin, mark) for origin, mark in enumerate(marks, 1))
    pending = Pending()
    pending.add(bundle(*name) for name in there)
    closed = pending.take_covered(frontier)
    covered = sorted(name for name in there if frontier.holds(*name))
    assert (names(closed) if closed is not None else []) == covered
    assert {(one.origin, one.step) for one in pending} == there - set(covered)
