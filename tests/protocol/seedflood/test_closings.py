"""When epochs are closed, and what becomes of their sums."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from origins import A, B, certified, epoch, make_rules, verify

from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.certificates import CERTIFIED_EPOCHS_SENT, Certificates
from seedflood.protocol.seedflood.epochs import CLOSING_ROUNDS, EPOCH_BYTES_MAX, Closings, is_small
from seedflood.protocol.seedflood.outputs import SumEpoch
from seedflood.protocol.seedflood.payload import Coefficients
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.swarm.access import AccessList
from seedflood.protocol.swarm.membership import Membership

PERIOD = 4
SETTLED = PERIOD + CLOSING_ROUNDS
"""The first step at which the first epoch may be closed."""


def closings_of(rules):
    members = Membership([A.member(), B.member()])
    return Closings(rules, Certificates(rules, AccessList(verify), members, A.id))


def make_closings(*bundles, steps=100, **rules):
    closings = closings_of(make_rules(steps=steps, refresh_period=PERIOD, **rules))
    for bundle in bundles:
        closings.note([bundle])
    return closings


def speaking(**settings):
    """A says something in every epoch of ten."""
    return make_closings(*(A.bundle(step) for step in range(0, 40, PERIOD)), **settings)


def due(closings, step, held_before=STEP_MAX):
    """Which epochs are to be closed at this step, if everything below another one is held?"""
    return [order.epoch for order in closings.due(step, lambda end: end <= held_before, lambda _: True)]


def close(closings, total=0, step=SETTLED):
    """Closes what is due, and votes for it. Returns the last sum."""
    for order in closings.due(step, lambda _: True, lambda _: True):
        closed = epoch(order.epoch, *order.frontier, total=total)
        assert closings.summed(closed) is not None
        if closings._certificates.ours_on(order.epoch) is None:
            closings._certificates.take(A.vote(closed))
    return closed


def certify(closings, closed):
    """Both have voted for this sum."""
    for vote in (A.vote(closed), B.vote(closed)):
        closings._certificates.take(vote)
    closings._certificates.review()
    agreed = closings.agreed(lambda *_: True, 0.0)
    for one in agreed:
        closings.wrote(one, 0.0)
    return agreed


# Small epochs

SMALL = 1 << 16
"""Bytes of a sum, packed or not more than the few bundles here."""


def test_an_epoch_whose_bundles_take_less_space_than_its_sum_is_not_closed():
    closings = speaking(epoch_bytes=SMALL)
    assert due(closings, 99) == []
    assert closings.overdue(99) == []
    assert closings.before == 0


def test_a_small_epoch_keeps_no_later_one_open():
    closings = make_closings(
        A.bundle(0), *(one.bundle(step) for one in (A, B) for step in range(4, 8)), epoch_bytes=600
    )
    assert due(closings, 99) == [1]
    assert closings.overdue(99) == [1]


def test_an_epoch_is_closed_once_so_much_has_come_that_its_sum_takes_less_space():
    closings = make_closings(*(A.bundle(step) for step in range(4)), epoch_bytes=1000)
    assert due(closings, 99) == []
    closings.note([B.bundle(step) for step in range(4)])
    assert due(closings, 99) == [0]


def test_what_is_taken_out_may_leave_a_small_epoch():
    closings = make_closings(*(one.bundle(step) for one in (A, B) for step in range(4)), epoch_bytes=1000)
    assert closings.overdue(99) == [0]
    closings.take_out([B.bundle(step) for step in range(4)])
    assert due(closings, 99) == closings.overdue(99) == []


@pytest.mark.parametrize("is_relay", [False, True])
def test_the_sum_of_an_epoch_that_is_small_here_is_wanted_if_enough_others_have_voted_for_one(is_relay):
    closings = make_closings(A.bundle(0), epoch_bytes=SMALL)
    assert closings.summed_elsewhere(99, is_relay=is_relay) == []
    closings._certificates.note(0, A.vote(epoch(0, B.held(4))).digests, ())
    assert closings.summed_elsewhere(99, is_relay=is_relay) == [0]


def test_epochs_on_which_nobody_has_voted_hide_no_sum_of_a_later_one():
    closings = make_closings(*(A.bundle(step) for step in range(0, 400, PERIOD)), steps=400)
    closings._certificates.note(90, A.vote(epoch(90, B.held(4))).digests, ())
    assert closings.summed_elsewhere(400, is_relay=True) == [90]


COUNTED = [
    ("measured", {}, [Held(1, 0, ((4, 7),))], 4 * 86),
    ("only what the epoch has", {}, [Held(1, 8)], 4 * 86),
    ("of all hosts", {}, [Held(1, 5), Held(2, 8)], 5 * 86),
    ("more than one step in a bundle", {"local_steps": 2}, [Held(1, 8)], 2 * 80 + 4 * 6),
    ("payloads", {"compression": Coefficients((80,))}, [Held(1, 8)], 4 * (80 + 13)),
    ("turns", {"turn_rounds": 2}, [Held(1, 8)], 2 * 86),
]


@pytest.mark.parametrize(("rules", "held", "size"), [case[1:] for case in COUNTED], ids=[case[0] for case in COUNTED])
def test_whether_an_epoch_is_small_follows_from_the_steps_that_are_held(rules, held, size):
    for is_small_expected, epoch_bytes in ((False, 2 * size), (True, 2 * size + 2)):
        made = make_rules(steps=100, refresh_period=PERIOD, epoch_bytes=epoch_bytes, **rules)
        assert is_small(made, 1, held) is is_small_expected


# Closing


def test_an_epoch_is_closed_some_rounds_after_its_end():
    assert due(speaking(), PERIOD) == due(speaking(), SETTLED - 1) == []
    assert due(speaking(), SETTLED) == [0]


def test_rounds_count_and_not_steps():
    closings = speaking(local_steps=2)
    assert due(closings, PERIOD + 2 * CLOSING_ROUNDS - 2) == []
    assert due(closings, PERIOD + 2 * CLOSING_ROUNDS) == [0]


def test_the_last_epochs_are_closed_at_the_end_of_the_run():
    assert due(speaking(steps=8), 7) == []
    assert due(speaking(steps=8), 8) == [0, 1]


def test_an_epoch_that_the_run_does_not_fill_is_not_closed():
    assert due(speaking(steps=7), 7) == [0]


def test_an_epoch_is_closed_only_if_everyone_has_had_his_say():
    assert due(speaking(), SETTLED, held_before=PERIOD - 1) == []
    assert due(speaking(), SETTLED, held_before=PERIOD) == [0]


def test_an_open_epoch_keeps_all_later_ones_open():
    assert due(speaking(), 99, held_before=0) == []


def test_what_is_summed_are_the_bundles_of_the_epoch_with_all_that_they_cover():
    closings = make_closings(A.bundle(3), A.bundle(6, skipped=2), B.bundle(1, skipped=1), B.bundle(4))
    assert closings.due(SETTLED + PERIOD, lambda _: True, lambda _: True) == [
        SumEpoch(0, tuple(sorted((A.held(0, (3, 3)), B.held(2)), key=lambda one: one.origin))),
        SumEpoch(1, tuple(sorted((A.held(0, (4, 6)), B.held(0, (4, 4))), key=lambda one: one.origin))),
    ]


def test_an_epoch_in_which_nobody_spoke_needs_no_sum():
    assert due(make_closings(A.bundle(PERIOD)), SETTLED + PERIOD) == [1]


def test_no_epoch_is_summed_twice():
    closings = speaking()
    assert due(closings, SETTLED) == [0]
    assert due(closings, 99) == []
    closings.summed(epoch(0, A.held(1)))
    assert due(closings, SETTLED) == []
    assert due(closings, SETTLED + PERIOD) == [1]


def test_sums_larger_than_the_wire_carries_are_not_made():
    rules = Rules(b"r" * 32, b"b" * 32, 2, 100, refresh_period=PERIOD, epoch_bytes=EPOCH_BYTES_MAX + 1)
    closings = closings_of(rules)
    closings.note([A.bundle(0)])
    assert closings.due(100, lambda _: True, lambda _: True) == []


def test_a_sum_that_was_being_taken_when_a_bundle_came_does_not_count():
    closings = make_closings(A.bundle(0), steps=PERIOD)
    (early,) = closings.due(PERIOD, lambda _: True, lambda _: True)
    closings.note([B.bundle(1)])
    assert due(closings, PERIOD) == [0]
    assert closings.summed(epoch(0, *early.frontier, total=3)) is None
    assert closings.digests(0) is None


@given(
    data=st.data(),
    steps=st.integers(1, 60),
    rounds=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=30),
)
def test_in_any_run_every_epoch_is_summed_at_most_once_and_only_when_it_is_complete(data, steps, rounds):
    closings, asked, pending = speaking(steps=steps), Counter(), []
    for step, held_before in sorted(rounds):
        for order in closings.due(min(step, steps), lambda end, held=held_before: end <= held, lambda _: True):
            end = (order.epoch + 1) * PERIOD
            assert end <= min(held_before, steps)
            assert min(step, steps) >= min(end + CLOSING_ROUNDS, steps)
            asked[order.epoch] += 1
            pending.append(order)
        while pending and data.draw(st.booleans()):
            order = pending.pop(data.draw(st.integers(0, len(pending) - 1)))
            closings.summed(epoch(order.epoch, *order.frontier))
    assert set(asked.values()) <= {1}
    assert sorted(asked) == list(range(len(asked)))


# After our vote


def test_a_sum_that_was_voted_for_stays_though_a_bundle_comes_late_and_the_bundle_stays_beside_it():
    closings = make_closings(A.bundle(0))
    closed = close(closings)
    closings.note([B.bundle(1)])
    (settled,) = certify(closings, closed)
    assert settled == certified(closed, A, B)
    assert closings.compacted(A.id).holds(A.id, 0)
    assert not closings.compacted(B.id).holds(B.id, 1)
    assert due(closings, 99) == []


@pytest.mark.parametrize("is_late", [False, True])
def test_it_is_known_that_something_is_beside_a_sum_of_ours_until_the_coefficients_are_made_again(is_late):
    closings = make_closings(A.bundle(0))
    closed = close(closings)
    if is_late:
        certify(closings, closed)
        assert not closings.is_any_beside
    closings.note([B.bundle(1)])
    certify(closings, closed)
    assert closings.is_any_beside
    closings.distrust()
    assert not closings.is_any_beside


def test_what_is_beside_a_sum_that_was_adopted_or_read_came_after_it_here_too():
    closings = make_closings(A.bundle(0), B.bundle(1))
    closings.restore(epoch(0, A.held(1)))
    closings.note([B.bundle(2)])
    assert not closings.is_any_beside


def test_a_sum_is_compacted_once_and_only_with_a_certificate_for_it():
    closings = make_closings(A.bundle(0))
    closed = close(closings)
    assert closings.agreed(lambda *_: True, 0.0) == []
    assert len(certify(closings, closed)) == 1
    assert closings.agreed(lambda *_: True, 0.0) == []
    assert closings.before == PERIOD


def agreed_but_unwritten(*late):
    """What is known of a sum that others have certified, and for which our disk has no space yet."""
    closings = make_closings(A.bundle(0))
    closed = close(closings)
    for vote in (A.vote(closed), B.vote(closed)):
        closings._certificates.take(vote)
    closings._certificates.review()
    (agreed,) = closings.agreed(lambda *_: True, 5.0)
    closings.note(late)
    return closings, agreed


def test_an_epoch_is_compacted_when_the_journal_has_its_sum_and_not_before():
    closings, agreed = agreed_but_unwritten(B.bundle(1))
    assert closings.before == 0
    assert not closings.is_any_beside
    assert closings.agreed(lambda *_: True, 6.0) == []
    assert closings.unwritten == [agreed]
    assert closings.overdue(SETTLED) == []
    assert due(closings, 99) == []
    assert closings.wrote(agreed, 9.0) == 5.0
    assert closings.before == PERIOD
    assert closings.is_any_beside
    assert closings.unwritten == []


def test_a_sum_that_others_have_certified_stands_though_our_coefficients_are_made_again():
    closings, agreed = agreed_but_unwritten()
    closings.distrust()
    assert closings.unwritten == [agreed]


def test_a_sum_is_not_written_of_which_something_was_taken_out_meanwhile():
    closings, _ = agreed_but_unwritten()
    closings.take_out([A.bundle(0)])
    assert closings.unwritten == []


def test_a_sum_that_the_certificate_does_not_name_is_not_compacted():
    closings = make_closings(A.bundle(0))
    closed = close(closings, total=7)
    closings._certificates.note(0, B.vote(epoch(0, *closed.frontier, total=8)).digests, ())
    assert closings.agreed(lambda *_: True, 0.0) == []
    assert closings.before == 0


@pytest.mark.parametrize("change", ["take_out", "distrust"])
def test_a_sum_is_void_when_what_it_stands_for_has_changed(change):
    closings = make_closings(A.bundle(0), A.bundle(1))
    close(closings)
    match change:
        case "take_out":
            closings.take_out([A.bundle(1)])
        case "distrust":
            closings.distrust()
    assert closings.digests(0) is None


def test_a_sum_of_what_we_voted_for_is_taken_again_and_one_of_other_steps_is_not():
    closings = make_closings(A.bundle(0))
    close(closings)
    closings.distrust()
    assert due(closings, SETTLED) == [0]
    closings.note([B.bundle(1)])
    assert due(closings, SETTLED) == []


def test_a_sum_of_what_others_have_agreed_on_is_taken_though_we_voted_otherwise():
    closings = make_closings(A.bundle(0))
    close(closings)
    closings.note([B.bundle(1)])
    closings.distrust()
    closings._certificates.note(0, B.vote(epoch(0, A.held(1), B.held(0, (1, 1)))).digests, ())
    assert due(closings, SETTLED) == [0]


# Sums of the journal and of others


def test_what_the_journal_keeps_as_a_sum_is_compact():
    closings = make_closings()
    closings.restore(epoch(1))
    assert closings.before == 0
    closings.restore(epoch(0, A.held(4)))
    assert closings.before == 2 * PERIOD
    assert due(closings, 99) == []


def test_steps_in_compacted_sums_are_known_by_origin():
    closings = make_closings(A.bundle(0), B.bundle(1))
    closed = close(closings)
    assert closings.compacted(A.id).held() == ()
    certify(closings, closed)
    assert closings.compacted(A.id).held() == (A.held(1),)


def test_a_sum_of_another_is_adopted_unless_there_is_one_or_ours_is_being_taken():
    closings = speaking()
    assert closings.may_adopt(0)
    due(closings, SETTLED)
    assert not closings.may_adopt(0)
    closings.restore(epoch(1, A.held(8)))
    assert not closings.may_adopt(1)


def test_however_many_epochs_are_certified_at_once_each_sum_has_its_certificate():
    epochs = 2 * CERTIFIED_EPOCHS_SENT
    closings = make_closings(*(A.bundle(step) for step in range(0, epochs * PERIOD, PERIOD)), steps=epochs * PERIOD)
    for order in closings.due(epochs * PERIOD, lambda _: True, lambda _: True):
        closed = epoch(order.epoch, *order.frontier)
        closings.summed(closed)
        for vote in (A.vote(closed), B.vote(closed)):
            closings._certificates.take(vote)
    closings._certificates.review()
    agreed = closings.agreed(lambda *_: True, 0.0)
    assert [len(one.certificate) for one in agreed] == epochs * [2]


def test_a_sum_is_not_compacted_when_the_votes_of_its_certificate_are_forgotten():
    closings = make_closings(A.bundle(0))
    closed = close(closings)
    closings._certificates.note(0, A.vote(closed).digests, ())
    del closings._certificates._votes[0]
    assert closings.agreed(lambda *_: True, 0.0) == []
    assert closings.summed_elsewhere(99, is_relay=False) == [0]
