import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from origins import A, B, C, D, E, make_rules

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.window import OpenWindows, is_received
from seedflood.protocol.swarm.access import stand_in
from seedflood.protocol.swarm.delays import BOUND_SECONDS_MAX, HOP_SECONDS_MIN, bound_seconds
from seedflood.protocol.swarm.liveness import SUSPICION_SECONDS_MAX, Liveness
from seedflood.protocol.swarm.membership import Membership

BOTH = Membership([A.member(), B.member()])


class OneWindow:
    """A node with one open window. bound: of two seconds. began_at: when the round began, if we measured it."""

    def __init__(
        self, rule, frontier, membership=BOTH, *, clients=2, step=0, steps=1, began_at=math.inf, opened_at=10.0
    ):
        rules = make_rules(clients, window=rule, local_steps=steps)
        self.liveness = Liveness()
        self.all = OpenWindows(rules, membership, frontier, self.liveness, lambda: 2.0, began_at, until_joined=50.0)
        self.all.open(step, opened_at)
        self.frontier, self.window, self.wake_at = frontier, self.all.oldest, self.all.wake_at

    @property
    def waiting(self):
        return self.window.waiting

    def close_reason(self, now):
        return self.all.close_reason(self.window, now)

    def hear(self, origin, *held, now=10.0):
        """This is held of the origin now."""
        self.frontier.add_held(held)
        self.all.received(origin.id, now)


def make_window(rule, *, heard=(A,), step=0, **more):
    return OneWindow(rule, Frontier(origin.held(step + 1) for origin in heard), step=step, **more)


@pytest.mark.parametrize(
    ("diameter", "delay", "seconds"), [(1, 0.0, 0.02), (4, 0.0, 0.08), (1, 0.5, 1.0), (8, 0.01, 0.16), (8, 0.1, 1.6)]
)
def test_the_bound_is_the_diameter_times_the_bound_of_a_hop(diameter, delay, seconds):
    assert bound_seconds(diameter, delay) == pytest.approx(seconds)


@given(diameter=st.integers(1, 100), delay=st.floats(0, 10))
def test_the_bound_grows_with_both_and_is_never_below_the_least(diameter, delay):
    bound = bound_seconds(diameter, delay)
    assert bound >= HOP_SECONDS_MIN * diameter
    assert bound_seconds(diameter + 1, delay) > bound or bound == BOUND_SECONDS_MAX
    assert bound_seconds(diameter, delay + 1) > bound or bound == BOUND_SECONDS_MAX


def test_no_claim_of_slow_hops_or_long_ways_makes_the_bound_longer_than_a_suspicion():
    assert bound_seconds(10_000, 8.192) == BOUND_SECONDS_MAX == SUSPICION_SECONDS_MAX


@pytest.mark.parametrize("rule", ["strict", "bounded"])
def test_a_window_closes_when_all_were_heard(rule):
    assert make_window(rule, heard=(A, B)).close_reason(10.0) == "all received"


def test_strict_waits_for_ever():
    window = make_window("strict")
    assert window.close_reason(1e12) is None
    assert window.wake_at() == math.inf


FOUR = Membership([A.member(), B.member(), C.member(), D.member()])


def of_four(*heard, began_at=7.0):
    """We are A, and have measured for three seconds."""
    return make_window("bounded", heard=(A, *heard), membership=FOUR, clients=4, began_at=began_at)


def test_bounded_waits_for_half_of_the_hosts():
    window = of_four()
    assert window.close_reason(1e12) is None
    assert window.wake_at() == math.inf


def test_bounded_waits_for_the_others_as_long_as_half_of_the_hosts_took():
    window = of_four()
    window.hear(B, B.held(1), now=12.0)
    assert window.wake_at() == 12.0 + (12.0 - 7.0) + 2.0
    assert window.close_reason(18.9) is None
    assert window.close_reason(19.0) == "bound"
    window.hear(C, C.held(1), now=13.0)
    assert window.wake_at() == 19.0, "only the first half counts"


def test_bounded_does_not_wait_for_those_that_usually_come_later_than_that():
    window = of_four(B)
    for origin in (C, D):
        window.liveness.seen(origin.id, 10.0 + 4.0)
    assert window.wake_at() == 10.0 + 2.0
    window.hear(C, C.held(1))
    assert window.close_reason(11.9) is None, "news would fly so long"


def test_bounded_waits_for_one_that_is_usually_in_time_beside_one_that_is_not():
    window = of_four(B)
    window.liveness.seen(C.id, 10.0 + 4.0)
    assert window.wake_at() == 10.0 + 3.0 + 2.0
    window.hear(D, D.held(1))
    assert window.wake_at() == 12.0


def test_who_is_silent_counts_in_neither_half():
    window = of_four()
    window.liveness.forget(D.id)
    assert window.liveness.review(100.0, lambda: 2.0) == sorted([B.id, C.id])
    window.all.review(B.id, 10.0)
    assert window.wake_at() == math.inf, "one of three"
    window.all.review(C.id, 10.5)
    assert window.wake_at() == 10.5 + 3.5 + 2.0, "one of two"


def test_bounded_closes_at_the_bound_and_not_before():
    window = make_window("bounded")
    assert window.close_reason(11.999) is None
    assert window.close_reason(12.0) == "bound"
    assert window.wake_at() == 12.0


def test_no_bounded_window_closes_before_all_joined_or_patience_ended():
    window = make_window("bounded", heard=(A, B), clients=3)
    assert window.close_reason(49.999) is None
    assert window.close_reason(50.0) is not None
    assert window.wake_at() == 50.0


def test_a_bounded_run_waits_for_who_left_before_it_began_as_if_it_had_never_come():
    gone = Membership([A.member(), B.member(last_step=-1)])
    first = make_window("bounded", membership=gone, clients=2)
    assert first.close_reason(1000.0) is None
    assert [word.origin for word in first.all.to_return(first.window)] == [B.id]
    later = make_window("bounded", membership=gone, clients=2, step=1)
    assert later.close_reason(1000.0) is not None
    with_most = make_window("bounded", membership=gone, clients=3, heard=(A, C))
    assert with_most.close_reason(1000.0) is None  # two of three have still to come
    assert make_window("strict", membership=gone, clients=2).close_reason(10.0) is not None  # all agree on who left


def test_strict_waits_for_ever_for_those_that_never_joined():
    window = make_window("strict", heard=(A, B), clients=3)
    assert window.close_reason(1e12) is None


def test_an_origin_that_does_not_take_part_yet_is_waited_for_as_unjoined():
    membership = Membership([A.member(), B.member(first_step=STEP_MAX)])
    window = make_window("strict", membership=membership)
    assert window.waiting == set()
    assert window.close_reason(10.0) is None


@given(
    rule=st.sampled_from(["strict", "bounded"]),
    heard=st.sampled_from([(A,), (A, B)]),
    clients=st.integers(1, 3),
    opened_at=st.floats(0, 100),
    now=st.floats(0, 100),
)
def test_a_window_that_does_not_close_now_says_a_later_time_at_which_it_does(rule, heard, clients, opened_at, now):
    window = make_window(rule, heard=heard, clients=clients, opened_at=opened_at)
    now = max(now, opened_at)
    if window.close_reason(now) is None:
        wake_at = window.wake_at()
        assert wake_at > now
        assert wake_at == math.inf or window.close_reason(wake_at) is not None


def test_hearing_one_takes_it_off_the_list():
    window = make_window("strict")
    assert window.waiting == {B.id}
    window.hear(B, B.held(1))
    assert window.waiting == set()


def test_hearing_another_step_or_a_stranger_changes_nothing():
    window = make_window("strict", step=4)
    window.hear(B, B.held(4))
    window.hear(C, C.held(9))
    assert window.waiting == {B.id}


def test_who_leaves_is_not_waited_for():
    membership = Membership([A.member(), B.member(version=1, last_step=3)])
    assert make_window("strict", step=4, membership=membership).waiting == set()


@pytest.mark.parametrize(("rule", "is_taken_as_heard"), [("strict", False), ("bounded", True)])
def test_who_speaks_of_a_later_step_has_moved_on_unless_windows_are_strict(rule, is_taken_as_heard):
    assert is_received(Frontier([B.held(3, (8, 8))]), B.id, 0, 5, rule) is is_taken_as_heard


@pytest.mark.parametrize(("rule", "is_taken_as_heard"), [("strict", False), ("bounded", True)])
def test_an_earlier_bundle_that_is_still_on_its_way_keeps_only_strict_windows_open(rule, is_taken_as_heard):
    assert is_received(Frontier([B.held(3, (5, 5))]), B.id, 0, 5, rule) is is_taken_as_heard


@pytest.mark.parametrize("rule", ["strict", "bounded"])
def test_what_was_lost_before_an_origin_takes_part_is_not_waited_for(rule):
    returned = Membership([A.member(), B.member(version=1, first_step=5)])
    window = make_window(rule, step=6, membership=returned)
    assert window.waiting == {B.id}
    window.hear(B, B.held(3, (5, 6)))
    assert window.waiting == set()


@pytest.mark.parametrize("rule", ["strict", "bounded"])
@given(
    held=st.sets(st.integers(0, 6)),
    joined=st.integers(0, 6),
    first=st.integers(0, 6),
    more=st.integers(0, 2),
)
def test_a_step_lacks_exactly_if_the_origin_is_not_heard(rule, held, joined, first, more):
    membership = Membership([B.member(first_step=joined)])
    frontier = Frontier()
    for step in held:
        frontier.add(B.id, step, step)
    windows, last = OneWindow(rule, frontier, membership, step=first, steps=more + 1), first + more
    lacking = windows.all.first_lacking(windows.window, B.id)
    start = min(joined, last)
    assert (lacking is None) == is_received(frontier, B.id, start, last, rule)
    assert lacking is None or (start <= lacking <= last and not frontier.holds(B.id, lacking))


def closed(spoken, removed, listed, *, came=()):
    """What is known of a closed run: who has spoken, who was removed, of them who came before, how many are listed."""
    membership = Membership(one.member() for one in (*spoken, *came))
    silenced = {one.id: stand_in(one.public_key, one.name) for one in removed}
    membership.silence(silenced, lambda _: False, {one.id for one in removed}, listed)
    return membership


@pytest.mark.parametrize(
    ("known", "is_open"),
    [
        (closed([A, B], removed=[C], listed=3), True),  # another one was admitted in its place
        (closed([A, B, D], removed=[C], listed=3), False),
        (closed([A, B], removed=[C], listed=2), False),  # nobody was
        (closed([A, B], removed=[C], came=[C], listed=3), False),  # it was there when the run began
        (closed([A, B], removed=[C, E], listed=4), True),
    ],
)
def test_a_strict_run_begins_with_all_whom_the_roster_lists(known, is_open):
    first = make_window("strict", heard=(A, B, D), clients=3, membership=known)
    assert first.all.is_waiting_for_joins(first.window, 1000.0) is is_open
    assert (first.close_reason(1000.0) is None) is is_open
    assert first.all.unjoined(first.window) == is_open


def test_who_was_removed_before_it_came_holds_up_no_later_window():
    known = closed([A, B], removed=[C], listed=3)
    window = make_window("strict", heard=(A, B), clients=3, membership=known, step=4)
    assert window.close_reason(10.0)
