from itertools import count

import hypothesis.strategies as st
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from seedflood.protocol.frontier import RANGES_MAX, Frontier, Held, is_sendable, sendable

ORIGINS = st.integers(1, 3)
STEPS = st.integers(0, 40)
SPANS = st.tuples(STEPS, st.integers(1, 6)).map(lambda span: (span[0], span[0] + span[1] - 1))
ADDITIONS = st.lists(st.tuples(ORIGINS, SPANS), max_size=15)


def frontier_of(additions):
    frontier = Frontier()
    for origin, span in additions:
        frontier.add(origin, *span)
    return frontier


def steps_of(additions):
    return {(origin, step) for origin, (first, last) in additions for step in range(first, last + 1)}


class FrontierAgainstASet(RuleBasedStateMachine):
    """The frontier and the simplest thing that could be right: a set of (origin, step)."""

    def __init__(self):
        super().__init__()
        self.frontier = Frontier()
        self.steps = set()

    def holds_all(self, origin, first, last):
        return all((origin, step) in self.steps for step in range(first, last + 1))

    @rule(origin=ORIGINS, span=SPANS)
    def add(self, origin, span):
        self.frontier.add(origin, *span)
        self.steps |= steps_of([(origin, span)])

    @rule(origin=ORIGINS, count=st.integers(1, 5), skipped=st.integers(0, 5))
    def add_what_follows(self, origin, count, skipped):
        first = self.frontier.last(origin) + 1
        self.add(origin, (first, first + count + skipped - 1))

    @rule(origin=ORIGINS, span=SPANS)
    def holds(self, origin, span):
        assert self.frontier.holds(origin, *span) == self.holds_all(origin, *span)
        assert self.frontier.holds(origin, span[0]) == ((origin, span[0]) in self.steps)

    @rule(origin=ORIGINS, span=SPANS)
    def holds_any(self, origin, span):
        assert self.frontier.holds_any(origin, *span) == bool(self.steps & steps_of([(origin, span)]))

    @rule(additions=ADDITIONS)
    def covers(self, additions):
        assert self.frontier.covers(frontier_of(additions).held()) == (steps_of(additions) <= self.steps)

    @rule(before=st.integers(0, 50), extra=ADDITIONS)
    def digest_speaks_of_the_steps_below(self, before, extra):
        other = Frontier(self.frontier.held())
        for origin, span in extra:
            other.add(origin, *span)
        is_equal = {s for s in self.steps if s[1] < before} == {
            s for s in self.steps | steps_of(extra) if s[1] < before
        }
        assert (self.frontier.digest(before) == other.digest(before)) == is_equal

    @rule()
    def starts_again_from_its_own_values(self):
        self.frontier = Frontier(self.frontier.held())

    @rule(origin=ORIGINS, step=STEPS)
    def next_lacking(self, origin, step):
        lacking = next(one for one in count(step) if (origin, one) not in self.steps)
        assert self.frontier.next_lacking(origin, step) == lacking

    @invariant()
    def mark_and_last_agree(self):
        for origin in (1, 2, 3):
            own = {step for o, step in self.steps if o == origin}
            assert self.frontier.last(origin) == max(own, default=-1)
            assert self.frontier.mark(origin) == next(step for step in count() if step not in own)

    @invariant()
    def count_agrees(self):
        assert self.frontier.count() == len(self.steps)

    @invariant()
    def only_what_was_added_is_an_origin(self):
        assert set(self.frontier.origins) == {origin for origin, _ in self.steps}

    @invariant()
    def the_same_set_has_one_form(self):
        naive = Frontier()
        for origin, step in self.steps:
            naive.add(origin, step, step)
        assert self.frontier == naive


FrontierAgainstASet.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestFrontierAgainstASet = FrontierAgainstASet.TestCase


@given(additions=ADDITIONS, seed=st.randoms(use_true_random=False))
def test_the_order_of_arrival_leaves_no_trace(additions, seed):
    shuffled = list(additions)
    seed.shuffle(shuffled)
    assert frontier_of(additions).held() == frontier_of(shuffled).held()
    assert frontier_of(additions).digest() == frontier_of(shuffled).digest()


@given(additions=ADDITIONS)
def test_a_copy_does_not_follow_its_original(additions):
    original = frontier_of(additions)
    copy = Frontier(original.held())
    assert copy == original
    original.add(1, 50, 50)
    assert copy != original


@given(additions=ADDITIONS, span=SPANS, limit=st.integers(1, 4))
def test_what_is_new_is_added_whole_or_not_at_all(additions, span, limit):
    frontier = Frontier(frontier_of(additions).held(), ranges_max=limit)
    frontier.digest()
    before = Frontier(frontier.held())
    may_be_added = not before.holds_any(1, *span) and frontier.can_add(1, span[0])
    assert frontier.add_new(1, *span) is may_be_added
    if may_be_added:
        before.add(1, *span)
    assert frontier == before
    assert frontier.digest() == before.digest()


@given(spans=st.lists(SPANS, max_size=30), limit=st.integers(1, 4))
def test_ranges_above_the_mark_stay_within_the_limit_if_can_add_is_obeyed(spans, limit):
    frontier = Frontier(ranges_max=limit)
    for first, last in spans:
        if frontier.can_add(1, first):
            frontier.add(1, first, last)
        assert all(len(one.beyond) <= limit for one in frontier.held())


def test_a_full_frontier_still_takes_what_follows_the_mark():
    frontier = Frontier([Held(1, 3, ((10, 10),))], ranges_max=1)
    assert not frontier.can_add(1, 5)
    assert frontier.can_add(1, 3)
    assert frontier.can_add(2, 5)


def test_ranges_disappear_when_the_hole_is_filled():
    frontier = frontier_of([(1, (0, 2)), (1, (4, 5)), (1, (7, 9))])
    assert frontier.held() == (Held(1, 3, ((4, 5), (7, 9))),)
    frontier.add(1, 3, 6)
    assert frontier.held() == (Held(1, 10),)


def test_a_frontier_is_not_equal_to_something_else_and_has_no_hash():
    assert Frontier() != ()
    assert Frontier.__hash__ is None
    assert repr(frontier_of([(1, (0, 0))])) == "Frontier((Held(origin=1, mark=1, beyond=()),))"


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 3 * RANGES_MAX)), max_size=6))
def test_whatever_is_held_no_more_is_told_than_others_accept(origins) -> None:
    """origins: (origin, mark, ranges above it)."""
    frontier = Frontier()
    for origin, mark, ranges in origins:
        frontier.add_held([Held(origin, mark, tuple((mark + 2 * k + 1, mark + 2 * k + 1) for k in range(ranges)))])
    told = sendable(frontier.held())
    assert is_sendable(told)
    assert frontier.covers(told)
    assert [one.mark for one in told] == [one.mark for one in frontier.held()]
    assert is_sendable(frontier.held()) == (told == frontier.held())


def test_a_frontier_of_more_origins_than_a_frame_holds_is_told_in_part():
    held = [Held(origin, 7, ((9, 9),)) for origin in range(200_000)]
    told = sendable(held)
    assert is_sendable(told)
    assert not is_sendable(held)
    assert len(told) == 16_384


def test_ten_thousand_ranges_are_noted_in_any_order():
    frontier = Frontier()
    for step in [*range(1, 20_001, 4), *range(3, 20_001, 4)]:
        frontier.add(1, step, step)
    assert len(frontier.held()[0].beyond) == 10_000
    for step in range(0, 20_001, 2):
        frontier.add(1, step, step)
    assert frontier.held() == (Held(1, 20_001),)
