"""The access of a closed run: who passes it, and when a roster counts."""

import hashlib
from dataclasses import replace

import pytest
from origins import A, B, C, D, E, pretend_signature, verify

from seedflood.errors import PeerError
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.swarm.access import AccessList, stand_in
from seedflood.protocol.swarm.membership import Membership
from seedflood.protocol.swarm.roster import Entry, Roster

OPERATOR, NAME = hashlib.sha256(b"operator").digest(), "n"


def signed(serial, *entries, operator=OPERATOR, run=NAME):
    return Roster(serial, entries).signed(lambda message: pretend_signature(operator, message), operator, run)


def entry(origin, *roles, **times):
    return Entry(origin.name, origin.public_key, roles or ("train",), **times)


def access(*entries, clock=lambda: 0.0):
    return AccessList(verify, OPERATOR, NAME, signed(1, *entries), clock)


def test_everyone_passes_the_gate_of_an_open_run():
    one = AccessList(verify)
    assert not one.is_closed
    assert one.may_link(A.public_key)
    assert one.objection(A.member()) is None
    assert one.trainers is None
    assert not one.is_news(signed(9))
    assert not one.refresh()


def test_nobody_passes_the_gate_of_a_closed_run_without_a_roster():
    one = AccessList(verify, OPERATOR, NAME)
    assert not one.may_link(A.public_key)
    assert one.objection(A.member()) == one.objection_to(A.id) == "stranger"
    assert one.is_news(signed(1))


def test_roles_and_times_decide_who_links_and_who_trains():
    now = [100.0]
    one = access(
        entry(A),
        entry(B, "relay"),
        Entry("cyd", C.public_key, ()),
        entry(D, not_before=50, not_after=99),
        clock=lambda: now[0],
    )
    assert [one.may_link(who.public_key) for who in (A, B, C, D)] == [True, True, False, False]
    assert one.trainers == {A.id}
    assert one.former == {C.id, D.id}
    assert [one.objection(who.member()) for who in (A, B, C, D)] == [None, "role", "removed", "removed"]
    assert one.objection(B.member(first_step=STEP_MAX)) is None
    assert [one.objection_to(who.id) for who in (B, C, D)] == ["role", "removed", "removed"]
    now[0] = 60.0
    assert one.refresh()
    assert not one.refresh()
    assert one.trainers == {A.id, D.id}
    assert one.former == {C.id}
    now[0] = 40.0
    one.refresh()
    assert one.former == {C.id}  # whose time has not come has said nothing yet


def test_a_roster_of_an_old_serial_is_not_even_verified():
    asked = []
    one = AccessList(lambda *about: asked.append(about) or verify(*about), OPERATOR, NAME, signed(5, entry(A)))
    assert not one.is_news(signed(4, entry(A), entry(B)))
    assert not one.is_news(signed(5, entry(A)))
    assert asked == []
    assert one.is_news(signed(6, entry(A)))
    assert len(asked) == 1


@pytest.mark.parametrize(
    "roster",
    [
        signed(2, entry(B), operator=B.public_key),
        signed(2, entry(B), run="other"),
        Roster(2, (entry(B),)),
        replace(signed(2, entry(A)), entries=(entry(B),)),
    ],
)
def test_a_roster_that_the_operator_has_not_signed_for_this_run_is_refused(roster):
    one = access(entry(A))
    with pytest.raises(PeerError) as caught:
        one.is_news(roster)
    assert caught.value.reason == "roster"
    assert one.roster == signed(1, entry(A))


def test_two_rosters_with_one_serial_are_noticed_and_one_of_them_counts_everywhere():
    one, other = signed(2, entry(A)), signed(2, entry(A), entry(B))
    chosen = []
    for first, second in ((one, other), (other, one)):
        asked = access(entry(A))
        asked.adopt(first)
        if asked.is_news(second):
            asked.adopt(second)
        assert asked.contradictions == 1
        chosen.append(asked.roster)
    assert chosen[0] == chosen[1]


def stand_ins(*origins):
    return {one.id: stand_in(one.public_key, one.name) for one in origins}


def test_nothing_counts_that_a_silenced_host_has_stated_and_nobody_is_told_of_it():
    membership = Membership([A.member(neighbours=[B, C]), B.member(neighbours=[A, C]), C.member(neighbours=[A, B])])
    without = Membership([A.member(neighbours=[B, C]), B.member(neighbours=[A, C])])
    assert membership.silence(stand_ins(C), lambda _: False) == {C.id}
    assert membership.silence(stand_ins(C), lambda _: False) == set()
    assert not membership.is_expected(C.id, 3)
    assert membership.present() == {A.id, B.id}
    assert membership.diameter() == 1
    assert set(membership.to_send()) == set(without.to_send())
    assert membership.digest() == without.digest()
    assert membership.taking_part == 3  # windows do not wait for another one in its place
    assert not membership.believe(C.member(version=9))
    assert membership.get(C.id).public_key == C.public_key
    assert (membership.name(C.id), membership.took_part(C.id)) == (C.name, True)


def test_a_host_that_is_admitted_again_is_new():
    membership = Membership([A.member(), B.member()])
    membership.silence(stand_ins(B), lambda _: False)
    assert membership.silence({}, lambda _: True) == {B.id}
    assert B.id not in membership
    assert membership.believe(B.member())
    assert (membership.is_expected(B.id, 3), membership.taking_part) == (True, 2)


def test_a_relay_may_say_that_it_is_there_and_takes_part_in_nothing():
    membership = Membership([A.member()])
    membership.silence(stand_ins(B), lambda key: key == B.public_key)
    assert not membership.is_news(B.member())
    mute = B.member(first_step=STEP_MAX, neighbours=[A])
    assert [event.name for event in membership.describe_news(mute, 4)] == ["member joined"]
    assert membership.believe(mute)
    membership.silence(stand_ins(B), lambda key: key == B.public_key)
    assert membership.get(B.id) == mute
    assert membership.present() == {A.id, B.id}
    assert membership.taking_part == 1


def test_hosts_that_were_removed_before_they_came_are_not_awaited():
    membership = Membership([A.member(), B.member()])
    membership.silence(stand_ins(C, D), lambda _: False, {D.id})
    assert membership.taking_part == 3
    assert len(membership.to_send()) == 2
    assert membership.believe(E.member())
    assert membership.taking_part == 4, "it does not take the place of the one that was removed"


def test_stand_ins_take_no_places():
    membership = Membership([A.member()], origins_max=2)
    membership.silence(stand_ins(C, D), lambda _: False)
    assert membership.believe(B.member())


DECADES = 43 * 365 * 86_400.0


def test_our_own_entry_stays_valid_whatever_our_clock_reads():
    now = [100.0]
    one = AccessList(
        verify,
        OPERATOR,
        NAME,
        signed(1, entry(A, not_before=50, not_after=199), entry(B)),
        lambda: now[0],
        ours=A.public_key,
    )
    for reading, is_untimely in ((100.0, False), (DECADES, True), (0.0, True), (150.0, False)):
        now[0] = reading
        one.refresh()
        assert one.is_untimely == is_untimely
        assert one.trainers == {A.id, B.id}
        assert one.former == frozenset()


def test_a_clock_that_reads_too_late_for_us_ends_no_other_entry_that_lasts_as_long_as_ours():
    now = [100.0]
    entries = entry(A, not_after=199), entry(B, not_after=199), entry(C, not_after=99)
    one = AccessList(verify, OPERATOR, NAME, signed(1, *entries), lambda: now[0], ours=A.public_key)
    now[0] = DECADES
    assert not one.refresh()
    assert (one.trainers, one.former) == ({A.id, B.id}, {C.id})


def test_a_host_by_whose_clock_nobody_else_may_take_part_waits_as_well():
    now = [100.0]
    one = AccessList(
        verify, OPERATOR, NAME, signed(1, entry(A), entry(B, not_after=199)), lambda: now[0], ours=A.public_key
    )
    assert not one.is_untimely
    now[0] = DECADES
    one.refresh()
    assert one.is_untimely
    now[0] = 100.0
    one.refresh()
    assert not one.is_untimely
    alone = AccessList(verify, OPERATOR, NAME, signed(1, entry(A), Entry("bob", B.public_key, ())), ours=A.public_key)
    assert not alone.is_untimely  # the operator has removed the others, and no clock


def test_a_newer_roster_that_gives_us_more_time_ends_the_wait():
    one = AccessList(
        verify, OPERATOR, NAME, signed(1, entry(A, not_after=9), entry(B)), lambda: 100.0, ours=A.public_key
    )
    assert one.is_untimely
    one.adopt(signed(2, entry(A, not_after=999), entry(B)))
    assert not one.is_untimely


def test_whom_the_operator_has_removed_no_clock_keeps():
    one = AccessList(verify, OPERATOR, NAME, signed(1, Entry("ada", A.public_key, ()), entry(B)), ours=A.public_key)
    assert not one.may_link(A.public_key)
    assert not one.is_untimely


def test_others_are_judged_by_the_time_that_has_settled():
    now = [DECADES]
    one = AccessList(
        verify,
        OPERATOR,
        NAME,
        signed(1, entry(A), entry(B, not_after=199), entry(C)),
        lambda: now[0],
        settled=lambda: 100.0,
        ours=A.public_key,
    )
    assert one.trainers == {A.id, B.id, C.id}
    assert not one.is_untimely
