from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from origins import A, B, C, epoch, is_signed, make_rules, verify

from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.epochs import CLOSING_ROUNDS, EPOCH_BYTES_MAX, RETURN_ROUNDS, Closings
from seedflood.protocol.seedflood.outputs import SumEpoch
from seedflood.protocol.seedflood.quorum import Quorum
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.statement import Closed
from seedflood.protocol.swarm.gate import Gate

PERIOD = 4
SETTLED = PERIOD + CLOSING_ROUNDS
"""The first step at which the first epoch may be closed."""


def closings_of(rules):
    return Closings(rules, Quorum(rules, Gate(verify), is_signed))


def make_closings(*bundles, steps=100, **rules):
    closings = closings_of(make_rules(steps=steps, refresh_period=PERIOD, **rules))
    for bundle in bundles:
        closings.note([bundle])
    return closings


def due(closings, step, held_before=STEP_MAX):
    """Which epochs are to be closed at this step, if everything below another one is held?"""
    return [order.epoch for order in closings.due(step, lambda end: end <= held_before)]


def make_closed(*sums, bundles=()):
    """At the end of a run of so many epochs, all of them closed."""
    steps = PERIOD * len(sums)
    closings = make_closings(*bundles, steps=steps)
    for order, total in zip(closings.due(steps, lambda _: True), sums, strict=True):
        closings.summed(epoch(order.epoch, *order.frontier, total=total))
    return closings


def closed_by(origin, closings, **said):
    """The statement of an origin that has closed the same."""
    return origin.member(closed=closings.statement(), **said)


# Closing


def test_a_bundle_that_comes_late_makes_the_sum_void():
    closings = make_closed(3, 4, bundles=[A.bundle(0)])
    closings.note([B.bundle(1)])
    assert closings.before == 0
    (order,) = closings.due(2 * PERIOD, lambda _: True)
    assert (order.epoch, {held.origin for held in order.frontier}) == (0, {A.id, B.id})
    closings.summed(epoch(0, *order.frontier, total=5))
    assert closings.before == 2 * PERIOD


def test_a_bundle_that_is_taken_out_makes_the_sum_void():
    closings = make_closed(3, 4, bundles=[A.bundle(0), A.bundle(1), B.bundle(1)])
    closings.take_out([B.bundle(1), A.bundle(1)])
    assert closings.before == 0
    (order,) = closings.due(2 * PERIOD, lambda _: True)
    assert (order.epoch, order.frontier) == (0, (A.held(1),))


def test_steps_in_compacted_sums_are_known_by_origin():
    closings = make_closed(3, bundles=[A.bundle(0), B.bundle(1)])
    assert closings.compacted(A.id).held() == ()
    closings.agreed([closed_by(one, closings) for one in (A, B)])
    assert closings.compacted(A.id).held() == (A.held(1),)


def test_a_sum_that_was_being_taken_when_a_bundle_came_does_not_count():
    closings = make_closings(A.bundle(0), steps=PERIOD)
    (order,) = closings.due(PERIOD, lambda _: True)
    closings.note([B.bundle(1)])
    closings.summed(epoch(0, *order.frontier, total=5))
    assert closings.before == 0
    assert due(closings, PERIOD) == [0]


def test_a_sum_that_was_ordered_before_the_last_bundle_came_does_not_count_for_a_later_order():
    closings = make_closings(A.bundle(0), steps=PERIOD)
    (early,) = closings.due(PERIOD, lambda _: True)
    closings.note([B.bundle(1)])
    (late,) = closings.due(PERIOD, lambda _: True)
    closings.summed(epoch(0, *early.frontier, total=3))
    assert closings.before == 0
    closings.summed(epoch(0, *late.frontier, total=5))
    assert closings.before == PERIOD


def test_an_epoch_is_closed_some_rounds_after_its_end():
    closings = make_closings()
    assert due(closings, PERIOD) == due(closings, SETTLED - 1) == []
    assert due(closings, SETTLED) == [0]


def test_rounds_count_and_not_steps():
    closings = make_closings(local_steps=2)
    assert due(closings, PERIOD + 2 * CLOSING_ROUNDS - 2) == []
    assert due(closings, PERIOD + 2 * CLOSING_ROUNDS) == [0]


def test_the_last_epochs_are_closed_at_the_end_of_the_run():
    assert due(make_closings(steps=8), 7) == []
    assert due(make_closings(steps=8), 8) == [0, 1]


def test_an_epoch_that_the_run_does_not_fill_is_not_closed():
    assert due(make_closings(steps=7), 7) == [0]


def test_an_epoch_is_closed_only_if_everyone_has_had_his_say():
    closings = make_closings()
    assert due(closings, SETTLED, held_before=PERIOD - 1) == []
    assert due(closings, SETTLED, held_before=PERIOD) == [0]


def test_an_open_epoch_keeps_all_later_ones_open():
    assert due(make_closings(), 99, held_before=0) == []


def test_what_is_summed_are_the_bundles_of_the_epoch_with_all_that_they_cover():
    closings = make_closings(A.bundle(3), A.bundle(6, skipped=2), B.bundle(1, skipped=1), B.bundle(4))
    assert closings.due(SETTLED + PERIOD, lambda _: True) == [
        SumEpoch(0, tuple(sorted((A.held(0, (3, 3)), B.held(2)), key=lambda one: one.origin))),
        SumEpoch(1, tuple(sorted((A.held(0, (4, 6)), B.held(0, (4, 4))), key=lambda one: one.origin))),
    ]


def test_an_epoch_in_which_nobody_spoke_is_closed_too():
    assert make_closings().due(SETTLED, lambda _: True) == [SumEpoch(0, ())]


def test_no_epoch_is_summed_twice():
    closings = make_closings()
    assert due(closings, SETTLED) == [0]
    assert due(closings, 99) == []
    closings.summed(epoch(0))
    assert due(closings, SETTLED) == []
    assert due(closings, SETTLED + PERIOD) == [1]


def test_closed_is_what_has_been_summed_without_a_gap():
    closings = make_closings()
    assert due(closings, SETTLED + PERIOD) == [0, 1]
    closings.summed(epoch(1))
    assert closings.before == 0
    closings.summed(epoch(0))
    assert closings.before == 2 * PERIOD


def test_sums_larger_than_the_wire_carries_are_not_made():
    rules = Rules(b"r" * 32, b"b" * 32, 2, 100, refresh_period=PERIOD, epoch_bytes=EPOCH_BYTES_MAX + 1)
    assert closings_of(rules).due(100, lambda _: True) == []


@given(
    data=st.data(),
    steps=st.integers(1, 60),
    rounds=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=30),
)
def test_in_any_run_every_epoch_is_summed_at_most_once_and_only_when_it_is_complete(data, steps, rounds):
    closings, asked, pending = make_closings(steps=steps), Counter(), []
    for step, held_before in sorted(rounds):
        for order in closings.due(min(step, steps), lambda end, held=held_before: end <= held):
            end = (order.epoch + 1) * PERIOD
            assert end <= min(held_before, steps)
            assert min(step, steps) >= min(end + CLOSING_ROUNDS, steps)
            asked[order.epoch] += 1
            pending.append(order.epoch)
        while pending and data.draw(st.booleans()):
            closings.summed(epoch(pending.pop(data.draw(st.integers(0, len(pending) - 1)))))
    assert set(asked.values()) <= {1}
    assert sorted(asked) == list(range(len(asked)))
    assert closings.before <= PERIOD * len(asked)


# What was closed before


def test_what_the_journal_keeps_as_a_sum_is_closed_and_compact():
    closings = make_closings()
    closings.restore(epoch(0, A.held(4)))
    assert closings.before == PERIOD
    assert due(closings, SETTLED) == []


def test_sums_are_restored_in_any_order():
    closings = make_closings()
    closings.restore(epoch(1))
    assert closings.before == 0
    closings.restore(epoch(0))
    assert closings.before == 2 * PERIOD


def test_an_epoch_between_two_that_were_adopted_is_summed():
    closings = make_closings()
    closings.restore(epoch(0))
    closings.restore(epoch(2))
    assert due(closings, 99 - PERIOD, held_before=3 * PERIOD) == [1]
    closings.summed(epoch(1))
    assert closings.before == 3 * PERIOD


# Adopting


def test_an_open_epoch_may_be_adopted():
    assert make_closings(A.bundle(0)).may_adopt(epoch(0, A.held(4)))


def test_an_epoch_that_is_being_summed_may_not_be_adopted():
    closings = make_closings()
    due(closings, SETTLED)
    assert not closings.may_adopt(epoch(0, A.held(4)))
    assert closings.may_adopt(epoch(1, A.held(8)))


def test_a_sum_in_the_journal_is_replaced_only_by_one_that_stands_for_all_of_it_and_more():
    closings = make_closings()
    closings.restore(epoch(0, A.held(4)))
    assert closings.may_adopt(epoch(0, A.held(4), B.held(4)))
    assert not closings.may_adopt(epoch(0, A.held(3), B.held(4)))


def test_an_adopted_sum_is_summed_again_with_what_is_held_beside_it():
    closings = make_closings(B.bundle(0))
    closings.restore(epoch(0, A.held(4)))
    assert closings.before == 0
    (order,) = closings.due(SETTLED, lambda _: True)
    assert set(order.frontier) == {A.held(4), B.held(1)}


def test_a_sum_of_ours_whose_bundles_are_here_still_may_be_replaced_by_another():
    closings = make_closed(7, bundles=[A.bundle(0)])
    assert closings.may_adopt(epoch(0, B.held(4)))


def test_a_bundle_that_comes_late_for_a_compacted_epoch_is_summed_with_it():
    """So nodes that compacted the epoch before it came, and nodes that had it in time, state the same in the end."""
    closings = make_closings()
    closings.restore(epoch(0, A.held(4)))
    before = closings.statement()
    closings.note([B.bundle(0)])
    assert closings.before == 0
    (order,) = closings.due(SETTLED, lambda _: True)
    assert set(order.frontier) == {A.held(4), B.held(1)}
    renewed = epoch(0, *order.frontier, total=9)
    assert closings.summed(renewed) == [renewed]  # it takes the place of the old one at once
    assert closings.statement() == make_restored(renewed).statement() != before


def make_restored(*closed):
    closings = make_closings()
    for one in closed:
        closings.restore(one)
    return closings


def test_a_sum_of_bundles_alone_waits_for_the_others_before_it_takes_their_place():
    closings = make_closings(steps=PERIOD)
    due(closings, PERIOD)
    assert closings.summed(epoch(0)) == []


# Compacting


def test_compaction_needs_everyone_who_takes_part():
    closings = make_closed(7, bundles=[A.bundle(0)])
    ours = closed_by(A, closings)
    assert closings.agreed([ours, B.member()]) == []
    assert closings.agreed([ours, closed_by(B, closings), C.member()]) == []
    (settled,) = closings.agreed([ours, closed_by(B, closings), closed_by(C, closings)])
    assert settled.epoch == 0
    assert settled.frontier == (A.held(1),)


def test_what_others_say_of_the_same_bundles_is_disputed_once_it_is_compacted():
    ours, theirs = make_closed(1, 2, 3), make_closed(1, 5, 3)
    (told,) = theirs.told()
    assert ours.disputed(told.digests) == []
    ours.agreed([closed_by(A, ours), closed_by(B, ours)])
    assert ours.latest() == [2]
    assert ours.disputed(told.digests) == [1]
    assert ours.disputed(told.digests[:1]) == []
    (other,) = make_closed(1, 5, 3, bundles=[A.bundle(5)]).told()
    assert ours.disputed(other.digests) == [], "they stand for other bundles"


def test_an_epoch_is_compacted_once():
    closings = make_closed(7)
    members = [closed_by(A, closings), closed_by(B, closings)]
    assert closings.agreed(members) == [epoch(0, total=7)]
    assert closings.agreed(members) == []


def test_all_epochs_that_everyone_has_closed_are_compacted_in_order():
    closings = make_closed(1, 2, 3)
    assert [closed.epoch for closed in closings.agreed([closed_by(A, closings), closed_by(B, closings)])] == [0, 1, 2]


def test_a_sum_behind_a_gap_is_not_compacted():
    closings = make_closings(steps=12)
    due(closings, 12)
    closings.summed(epoch(0))
    closings.summed(epoch(2))
    assert [closed.epoch for closed in closings.agreed([closed_by(A, closings), closed_by(B, closings)])] == [0]


@pytest.mark.parametrize("absent", [{"last_step": 3}, {"first_step": STEP_MAX}])
def test_who_has_finished_or_never_took_part_is_not_waited_for(absent):
    closings = make_closed(7)
    assert closings.agreed([closed_by(A, closings), closed_by(B, closings), C.member(**absent)]) == [epoch(0, total=7)]


def test_who_has_finished_with_other_sums_is_heeded():
    """A liar may have told two halves of a swarm different things, and both are at the end of the run."""
    closings, other = make_closed(7, bundles=[A.bundle(0)]), make_closed(8, bundles=[A.bundle(0)])
    finished = closed_by(C, other, last_step=PERIOD - 1)
    assert closings.agreed([closed_by(A, closings), closed_by(B, closings), finished]) == []
    assert closings.agreed(
        [closed_by(A, closings), closed_by(B, closings), closed_by(C, closings, last_step=PERIOD - 1)]
    )


@pytest.mark.parametrize("window", ["strict", "bounded", "none"])
def test_who_left_on_the_way_may_return_and_need_our_bundles(window):
    """Two sides of a network may each believe that the other has left, and go on, each without the other's bundles."""
    closings = make_closings(steps=2 * PERIOD, window=window)
    due(closings, 2 * PERIOD)
    closings.summed(epoch(0))
    closings.summed(epoch(1))
    ours = [closed_by(A, closings), closed_by(B, closings)]
    assert closings.agreed([*ours, C.member(last_step=2)]) == []
    assert closings.agreed([*ours, C.member(last_step=2 * PERIOD - 1)]) == [epoch(0), epoch(1)]


def test_who_left_and_never_spoke_is_not_waited_for():
    closings = make_closings(steps=2 * PERIOD)
    due(closings, 2 * PERIOD)
    closings.summed(epoch(0))
    members = [closed_by(A, closings), closed_by(B, closings), C.member(last_step=-1)]
    assert closings.agreed(members) == [epoch(0)]


def test_who_left_long_ago_is_not_waited_for():
    period, steps = RETURN_ROUNDS, 4 * RETURN_ROUNDS
    closings = closings_of(make_rules(steps=steps, refresh_period=period))
    due(closings, steps)
    closings.summed(epoch(0))
    gone = C.member(last_step=0)
    assert closings.agreed([closed_by(A, closings), closed_by(B, closings), gone]) == []
    closings.summed(epoch(1))
    assert closings.agreed([closed_by(A, closings), closed_by(B, closings), gone]) == [epoch(0), epoch(1)]


def test_nobody_is_its_own_witness():
    closings = make_closed(7)
    assert closings.agreed([closed_by(A, closings)]) == []
    assert closings.agreed([closed_by(A, closings), closed_by(B, closings, last_step=3)]) == [epoch(0, total=7)]


def test_one_who_is_alone_in_its_run_needs_no_witness():
    closings = make_closings(steps=4, clients=1)
    due(closings, 4)
    closings.summed(epoch(0))
    assert closings.agreed([closed_by(A, closings)]) == [epoch(0)]


def test_no_bundle_is_given_up_while_sums_contradict_each_other():
    closings, other = (make_closed(total) for total in (7, 8))
    assert closings.agreed([closed_by(A, closings), closed_by(B, other)]) == []


def test_a_statement_stays_true_when_its_epochs_are_compacted():
    closings = make_closed(7)
    ours = closings.statement()
    closings.agreed([closed_by(A, closings), closed_by(B, closings)])
    assert closings.statement() == ours


def test_epochs_that_the_slowest_has_closed_are_compacted_though_others_are_further():
    closings, slow = make_closed(1, 2, 3), make_closed(1, 2)
    members = [closed_by(A, closings), closed_by(B, slow), closed_by(C, closings)]
    assert [closed.epoch for closed in closings.agreed(members)] == [0, 1]
    assert slow.agreed(members) == []  # it cannot tell yet


# Contradictions


def test_equal_sums_make_equal_statements_and_others_do_not():
    assert make_closed(1, 2).statement() == make_closed(1, 2).statement()
    assert len({make_closed(*sums).statement() for sums in ((1, 2), (1, 3), (1, 2, 3), (1,), ())}) == 5


def test_of_two_that_contradict_each_other_both_doubt():
    ours, other = (make_closed(total) for total in (7, 8))
    members = [closed_by(A, ours), closed_by(B, other)]
    assert [member.name for member in ours.outvoted_by(members)] == ["bob"]
    assert [member.name for member in other.outvoted_by(members)] == ["ada"]


def test_who_is_with_most_does_not_doubt():
    ours, other = (make_closed(total) for total in (7, 8))
    members = [closed_by(A, ours), closed_by(B, ours), closed_by(C, other)]
    assert ours.outvoted_by(members) == []
    assert [member.name for member in other.outvoted_by(members)] == ["ada", "bob"]


def test_who_has_finished_with_our_sums_is_with_us_still():
    ours, theirs = make_closed(7), make_closed(8)
    last = {"last_step": PERIOD - 1}
    assert ours.outvoted_by([closed_by(A, ours), closed_by(B, theirs)]) == [closed_by(B, theirs)]
    members = [closed_by(A, ours), closed_by(B, theirs), closed_by(C, ours, **last)]
    assert ours.outvoted_by(members) == []
    assert len(theirs.outvoted_by(members)) == 1


def test_sums_that_stand_for_other_bundles_raise_no_doubt():
    ours, other = make_closed(7, bundles=[A.bundle(0)]), make_closed(8, bundles=[A.bundle(0), B.bundle(0)])
    members = [closed_by(A, ours), closed_by(B, other)]
    assert ours.outvoted_by(members) == other.outvoted_by(members) == []
    assert ours.agreed(members) == []


def test_who_is_at_another_epoch_or_has_left_contradicts_nobody():
    ours, other, longer = make_closed(7), make_closed(8), make_closed(8, 8)
    assert ours.outvoted_by([closed_by(A, ours), closed_by(B, longer), closed_by(C, other, last_step=3)]) == []


def test_who_has_closed_nothing_doubts_nothing():
    assert make_closings().outvoted_by([A.member(), B.member(closed=Closed(digest=b"x" * 32))]) == []


def test_sums_of_a_replica_in_doubt_are_taken_again():
    closings = make_closed(7, 8)
    closings.distrust()
    assert closings.before == 0
    assert due(closings, 8) == [0, 1]


def test_a_sum_that_everyone_agreed_on_is_not_distrusted():
    closings = make_closings(steps=8)
    due(closings, 8)
    closings.summed(epoch(0))
    closings.agreed([closed_by(A, closings), closed_by(B, closings)])
    closings.summed(epoch(1))
    closings.distrust()
    assert closings.before == PERIOD
    assert due(closings, 8) == [1]


def test_a_sum_that_was_being_taken_when_doubts_arose_is_not_used():
    closings = make_closings(steps=4)
    due(closings, 4)
    closings.distrust()
    closings.summed(epoch(0, total=666))
    assert closings.before == 0
    assert due(closings, 4) == [0]
