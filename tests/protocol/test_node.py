import math
from dataclasses import replace

import pytest
from origins import A, B, C, D, Origin, make_rules

from seedflood.errors import PeerError
from seedflood.protocol.frontier import RANGES_MAX, Frontier
from seedflood.protocol.messages import (
    STEP_MAX,
    FrontierDigest,
    Goodbye,
    Members,
    Ping,
    Pong,
    Updates,
)
from seedflood.protocol.node import Phase
from seedflood.protocol.outputs import Measure
from seedflood.protocol.rules import Patience
from seedflood.protocol.window import HOP_SECONDS_MIN

PROBES = [(1, 2)]
PATIENCE = Patience(repair_seconds=2.0, start_seconds=60.0, linger_seconds=60.0)


def started(*, clients=2, journal=(), members=(), incarnation=1, now=0.0, **rules):
    rules = make_rules(clients=clients, **rules)
    node = A.node(rules, bundles=journal, members=members, incarnation=incarnation, patience=PATIENCE, now=now)
    node.tick(now)
    node.collect()
    return node


def linked(*peers, frontier=(), now=0.0, clients=None, **rules):
    """A node that has caught up with its neighbours and measures its first step."""
    node = started(clients=clients or len(peers) + 1, now=now, **rules)
    for peer in peers:
        node.connected(peer.id, peer.hello(frontier), now)
    node.collect()
    return node


def publish(node, now=0.0, count=1):
    node.published(node.step, PROBES * count, now)
    return node.collect()


def hear(node, peer, message, now=0.0):
    node.received(peer.id, message, now)
    return node.collect()


def sent(out, peer, kind):
    return [message for to, message in out.send if to == peer.id and isinstance(message, kind)]


def sent_bundles(out, peer):
    return [bundle for message in sent(out, peer, Updates) for bundle in message.bundles]


def applied_steps(out):
    return [(window.steps, sorted(update.step for update in window.updates)) for window in out.apply]


def events(out):
    return [event.name for event in out.events]


def complete(*held):
    return FrontierDigest(Frontier(held).digest(), is_complete=True)


# Joining


def test_a_new_node_says_that_nobody_need_wait_for_it_yet():
    node = A.node(make_rules())
    out = node.collect()
    assert [member.first_step for member in out.members] == [STEP_MAX]
    assert out.is_durable
    assert out.measure is None
    assert node.phase is Phase.JOINING


def test_a_node_that_stands_still_says_for_whom_it_waits():
    node = A.node(make_rules())
    said = []
    for second in range(25):
        node.tick(float(second))
        said += [event.facts["waiting_for"] for event in node.collect().events if event.name == "waiting"]
    assert said == [["any neighbour"]] * 2


def test_a_node_alone_in_its_run_begins_at_once():
    assert A.node(make_rules(clients=1)).collect().measure == Measure(0, 1)


def test_a_node_measures_once_a_neighbour_holds_nothing_that_it_lacks():
    node = started()
    node.connected(B.id, B.hello(), 0.0)
    out = node.collect()
    assert out.measure == Measure(0, 1)
    assert out.members[-1].first_step == 0
    assert node.phase is Phase.MEASURING


def test_a_joining_node_pulls_and_says_nothing_before_it_has_caught_up():
    node = started()
    node.connected(B.id, B.hello([B.held(3)]), 0.0)
    out = node.collect()
    assert out.pull == [(B.id, ())]
    node.published(0, PROBES, 0.0)
    assert node.collect().bundles == []
    out = hear(node, B, B.updates(0, 1, 2))
    assert out.measure == Measure(2, 1)
    assert out.bundles == list(B.updates(0, 1, 2).bundles)


def test_a_node_that_joins_late_begins_where_the_others_are_and_declares_what_it_skipped():
    node = started()
    node.connected(B.id, B.hello([B.held(5)]), 0.0)
    out = hear(node, B, B.updates(0, 1, 2, 3, 4))
    assert applied_steps(out) == [((4, 3), [0, 1, 2, 3])]
    assert out.measure == Measure(4, 1)
    (own,) = publish(node).bundles
    assert (own.step, own.skipped, own.first_covered) == (4, 4, 0)


def test_a_pull_that_broke_off_is_asked_for_again_at_the_next_comparison():
    node = started()
    node.connected(B.id, B.hello([B.held(3)]), 0.0)
    node.collect()
    node.pulled(B.id, 1.0)
    assert node.collect().pull == []
    node.tick(2.0)
    assert [peer for peer, _ in node.collect().pull] == [B.id]


def test_a_node_with_a_lost_journal_learns_its_own_past_before_it_speaks():
    node = started()
    past = A.member(incarnation=4)
    node.connected(B.id, B.hello([A.held(3), B.held(4)], members=[past]), 0.0)
    out = node.collect()
    assert out.measure is None
    assert node.membership.get(A.id).age > past.age
    out = hear(node, B, Updates((*A.updates(0, 1, 2).bundles, *B.updates(0, 1, 2, 3).bundles)))
    assert out.measure == Measure(3, 1)
    (own,) = publish(node).bundles
    assert (own.step, own.skipped) == (3, 0)


def test_an_own_bundle_that_turns_up_too_late_is_not_contradicted():
    node = linked(B)
    out = hear(node, B, Updates((A.bundle(0, scalar=99),)))
    assert "another host speaks with our key" in events(out)
    out = publish(node)
    assert out.bundles == []
    out = hear(node, B, B.updates(0))
    assert applied_steps(out) == [((0, 0), [0, 0])]
    assert out.measure == Measure(1, 1)


# Publishing and flooding


def test_an_own_bundle_is_durable_before_it_is_sent():
    out = publish(linked(B, C))
    (own,) = out.bundles
    assert out.is_durable
    assert own.updates() == [(A.id, 0, *PROBES[0])]
    assert sent_bundles(out, B) == sent_bundles(out, C) == [own]


def test_an_own_bundle_is_signed():
    (own,) = publish(linked(B)).bundles
    other = started()
    other.connected(B.id, B.hello(members=[A.member()]), 0.0)
    assert own.signature == A.sign(own.signed_bytes(other.rules.run_id, A.public_key))


def test_a_measurement_of_another_step_than_the_awaited_one_is_not_published():
    node = linked(B)
    node.published(1, PROBES, 0.0)
    assert node.collect().bundles == []
    publish(node)
    node.published(0, PROBES, 0.0)
    assert node.collect().bundles == []


def test_a_new_bundle_is_forwarded_once_and_not_back():
    node = linked(B, C)
    out = hear(node, B, B.updates(0))
    assert out.bundles == list(B.updates(0).bundles)
    assert sent_bundles(out, C) == out.bundles
    assert sent_bundles(out, B) == []
    assert sent_bundles(hear(node, C, B.updates(0)), B) == []


def test_a_foreign_bundle_need_not_be_durable():
    assert not hear(linked(B, C), B, B.updates(0)).is_durable


def test_duplicates_are_dropped_and_counted():
    node = linked(B, C)
    hear(node, B, B.updates(0, 0))
    out = hear(node, C, B.updates(0))
    assert out.bundles == []
    assert out.send == []
    assert node.duplicates == 1
    assert node.frontier.count() == 1


def test_members_go_before_updates():
    node = linked(B, C)
    node.received(B.id, Updates((B.bundle(0),)), 0.0)
    node.received(B.id, Members((D.member(),)), 0.0)
    kinds = [type(message) for to, message in node.collect().send if to == C.id]
    assert kinds == [Members, Updates]


def test_a_reconnecting_neighbour_is_offered_what_waits_for_its_window():
    node = linked(B, C)
    hear(node, B, B.updates(0, 1))
    node.disconnected(C.id, 1.0)
    node.connected(C.id, C.hello([B.held(1)]), 2.0)
    assert sent_bundles(node.collect(), C) == [B.bundle(1)]


def test_a_message_that_arrives_after_its_link_went_down_is_dropped():
    node = linked(B, C)
    node.disconnected(B.id, 1.0)
    node.collect()
    assert hear(node, B, B.updates(0)).bundles == []


# Refusing


def refused(node, peer, *bundles):
    out = hear(node, peer, Updates(bundles))
    assert out.bundles == []
    assert out.send == []
    return node.admission.refused


def test_an_unknown_origin_is_refused():
    assert refused(linked(B), B, D.bundle(0)) == {"unknown origin": 1}


def test_what_lies_beyond_the_run_is_refused():
    assert refused(linked(B, steps=10), B, B.bundle(10), B.bundle(0, skipped=1)) == {"beyond the run": 2}


def test_what_is_not_a_round_is_refused():
    node = linked(B, steps=10, local_steps=5)
    assert refused(node, B, B.bundle(0), B.bundle(1, count=5), B.bundle(0, count=6)) == {"not a round": 3}


def test_equivocation_is_refused():
    node = linked(B)
    hear(node, B, B.updates(0, 1))
    assert refused(node, B, B.bundle(2, skipped=1, scalar=9)) == {"equivocation": 1}


def test_of_two_contradicting_bundles_in_one_message_the_first_counts():
    node = linked(B)
    out = hear(node, B, Updates((B.bundle(1, skipped=1), B.bundle(1))))
    assert out.bundles == [B.bundle(1, skipped=1)]


def test_more_holes_than_a_frontier_may_have_are_refused():
    node = linked(B, steps=10_000)
    hear(node, B, B.updates(*range(2, 2 + 2 * RANGES_MAX, 2)))
    assert refused(node, B, B.bundle(9_000)) == {"too far ahead": 1}


def test_good_bundles_beside_a_refused_one_are_taken():
    node = linked(B)
    assert hear(node, B, Updates((D.bundle(0), B.bundle(0)))).bundles == [B.bundle(0)]


def test_a_bundle_with_a_wrong_signature_raises_and_nothing_of_its_message_is_used():
    node = linked(B, C)
    forged = replace(B.bundle(1), probes=((5, 5),))
    with pytest.raises(PeerError) as caught:
        node.received(B.id, Updates((B.bundle(0), forged)), 0.0)
    assert caught.value.reason == "signature"
    assert node.admission.refused == {"signature": 1}
    assert node.frontier.count() == 0
    out = node.collect()
    assert (out.bundles, out.send, out.apply) == ([], [], [])


def test_a_bundle_of_another_run_has_a_wrong_signature():
    node = B.node(replace(make_rules(clients=1), run_id=b"x" * 32))
    node.published(0, PROBES, 0.0)
    (foreign,) = node.collect().bundles
    with pytest.raises(PeerError):
        linked(B).received(B.id, Updates((foreign,)), 0.0)


def test_a_statement_with_a_wrong_signature_raises_and_nothing_of_its_message_is_used():
    node = linked(B)
    forged = replace(D.member(), name="dora")
    with pytest.raises(PeerError, match="dora"):
        node.received(B.id, Members((C.member(), forged)), 0.0)
    assert C.id not in node.membership
    assert node.collect().members == []


def test_an_old_statement_is_not_even_verified():
    node = linked(B)
    out = hear(node, B, Members((replace(B.member(), incarnation=0, name="bill"),)))
    assert out.members == []
    assert node.membership.name(B.id) == "bob"


def test_a_second_hello_is_refused():
    with pytest.raises(PeerError, match="second hello"):
        linked(B).received(B.id, B.hello(), 0.0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"run_id": b"x" * 32}, "run"),
        ({"base_digest": b"x" * 32}, "base model"),
        ({"member": replace(B.member(), name="bill")}, "signature"),
        ({"members": (replace(C.member(), name="carl"),)}, "signature"),
    ],
)
def test_a_hello_that_does_not_belong_with_us_is_refused(change, reason):
    with pytest.raises(PeerError) as caught:
        started().admission.check_hello(replace(B.hello(), **change))
    assert caught.value.reason == reason


def test_a_hello_of_our_run_is_accepted():
    started().admission.check_hello(B.hello([B.held(3)], members=[C.member()]))


# Windows


def test_a_window_closes_when_all_were_heard_and_the_next_step_is_measured():
    node = linked(B, C)
    publish(node, 1.0)
    hear(node, B, B.updates(0), 2.0)
    assert node.waiting_for() == ["cyd"]
    out = hear(node, C, C.updates(0), 4.0)
    (window,) = out.apply
    assert (window.reason, window.heard, window.late, window.missing) == ("all heard", 3, 0, ())
    assert window.waited_seconds == 3.0
    assert out.measure == Measure(1, 1)


def test_a_window_applies_its_own_step_and_keeps_later_ones():
    node = linked(B)
    hear(node, B, B.updates(0, 1))
    assert applied_steps(publish(node)) == [((0, 0), [0, 0])]
    assert applied_steps(publish(node)) == [((1, 1), [1, 1])]


def test_strict_waits_for_ever():
    node = linked(B)
    publish(node)
    node.tick(1e9)
    assert node.collect().apply == []
    assert node.waiting_for() == ["bob"]


def test_strict_waits_for_those_that_never_joined():
    node = linked(B, clients=3)
    publish(node)
    assert hear(node, B, B.updates(0), 1e9).apply == []
    assert node.waiting_for() == ["(never joined)"]


def test_bounded_closes_at_the_diameter_times_the_bound_of_a_hop():
    node = linked(B, C, window="bounded")  # B and C are two hops apart
    publish(node, 1.0)
    node.tick(1.0 + 1.99 * HOP_SECONDS_MIN)
    assert node.collect().apply == []
    assert node.next_tick(1.0) == pytest.approx(1.0 + 2 * HOP_SECONDS_MIN)
    node.tick(node.next_tick(1.0))
    (window,) = node.collect().apply
    assert (window.reason, set(window.missing)) == ("bound", {B.id, C.id})


def test_the_bound_grows_with_the_measured_delay():
    node = started(window="bounded")
    node.connected(B.id, B.hello(), 0.0)
    (ping,) = sent(node.collect(), B, Ping)
    hear(node, B, Pong(ping.sent_at), 0.5)
    publish(node, 1.0)
    assert node.next_tick(1.0) == pytest.approx(1.0 + 2 * 0.25)


def test_a_pong_that_answers_no_ping_measures_nothing():
    node = linked(B, window="bounded")
    hear(node, B, Pong(-1e9), 0.5)
    hear(node, B, Pong(-1e9), 0.5)
    publish(node, 1.0)
    assert node.next_tick(1.0) == pytest.approx(1.0 + HOP_SECONDS_MIN)


def test_bounded_waits_for_those_that_never_joined_only_so_long():
    node = linked(B, clients=3, window="bounded")
    publish(node)
    hear(node, B, B.updates(0), 59.9)
    assert node.step == 0
    node.tick(60.0)
    assert node.collect().measure == Measure(1, 1)


def test_none_closes_at_once():
    (window,) = publish(linked(B, window="none")).apply
    assert window.reason == "no waiting"


def test_late_updates_are_applied_in_a_later_window():
    node = linked(B, window="none")
    publish(node)
    assert hear(node, B, B.updates(0)).apply == []
    (window,) = publish(node).apply
    assert sorted((u.step, u.origin == B.id) for u in window.updates) == [(0, True), (1, False)]
    assert (window.steps, window.late, window.heard) == ((1, 1), 1, 1)


def test_a_node_that_fell_behind_moves_on_with_the_others_and_declares_what_it_skipped():
    node = linked(B, window="bounded")
    hear(node, B, B.updates(*range(8)))
    out = publish(node)
    assert out.measure == Measure(7, 1)
    (own,) = publish(node).bundles
    assert (own.step, own.skipped) == (7, 6)


def test_strict_never_skips():
    node = linked(B)
    hear(node, B, B.updates(*range(8)))
    assert publish(node).measure == Measure(1, 1)


def test_several_local_steps_share_one_bundle_and_one_window():
    node = started(local_steps=5)
    node.connected(B.id, B.hello(), 0.0)
    assert node.collect().measure == Measure(0, 5)
    (own,) = publish(node, count=5).bundles
    assert (own.step, own.last) == (0, 4)
    out = hear(node, B, Updates((B.bundle(0, count=5),)))
    assert applied_steps(out) == [((0, 4), sorted([*range(5), *range(5)]))]
    assert out.measure == Measure(5, 5)


# Leaving and returning


def test_a_leave_shrinks_the_open_window_at_once():
    node = linked(B, C)
    publish(node)
    hear(node, B, B.updates(0))
    out = hear(node, B, Members((C.member(version=1, last_step=-1),)))
    assert out.measure == Measure(1, 1)
    assert "member left" in events(out)


def test_the_last_step_of_who_left_is_still_waited_for():
    node = linked(B)
    publish(node)
    assert hear(node, B, Members((B.member(version=1, last_step=0),))).apply == []
    assert hear(node, B, B.updates(0)).measure == Measure(1, 1)


def test_a_node_that_leaves_says_so_and_then_only_relays():
    node = linked(B, C)
    publish(node)
    node.leave(1.0)
    out = node.collect()
    (said,) = out.members
    assert (said.last_step, out.is_durable, node.phase) == (0, True, Phase.LEFT)
    assert sent(out, B, Members) == [Members((said,))]
    assert sent_bundles(hear(node, B, B.updates(0)), C) == [B.bundle(0)]
    assert node.collect().measure is None


def test_a_node_that_leaves_while_it_measures_does_not_publish():
    node = linked(B)
    node.leave(1.0)
    node.collect()
    assert publish(node).bundles == []


def test_leaving_twice_says_it_once():
    node = linked(B)
    node.leave(1.0)
    node.collect()
    node.leave(2.0)
    assert node.collect().members == []


def test_who_left_and_returns_takes_part_from_where_the_others_are():
    left = A.member(version=5, last_step=1)
    node = started(journal=[A.bundle(0), A.bundle(1)], members=[left], incarnation=2)
    assert not node.membership.is_expected(A.id, 5)
    node.connected(B.id, B.hello([A.held(2), B.held(6)]), 0.0)
    node.collect()
    out = hear(node, B, B.updates(*range(6)))
    assert out.measure == Measure(5, 1)
    assert out.members[-1].last_step is None
    (own,) = publish(node).bundles
    assert (own.step, own.skipped) == (5, 3)


def test_who_returns_is_still_expected_in_the_steps_it_measured_before():
    node = started(journal=[A.bundle(0), A.bundle(1)], members=[A.member(last_step=1)], incarnation=2)
    assert [node.membership.is_expected(A.id, step) for step in range(3)] == [True, True, False]


def test_a_swarm_does_not_stall_while_one_that_left_catches_up_again():
    node = linked(B, C)
    publish(node)
    hear(node, C, Members((C.member(version=1, last_step=-1),)))
    returning = C.node(make_rules(clients=3), members=[C.member(version=1, last_step=-1)], incarnation=2)
    hear(node, C, Members(tuple(returning.collect().members)))
    assert hear(node, B, B.updates(0)).measure == Measure(1, 1)


def test_those_that_left_do_not_hold_back_one_that_joins():
    node = started(clients=5)
    others = [B.member(), *(origin.member(last_step=1) for origin in (C, D, Origin("eve")))]
    node.connected(B.id, B.hello([B.held(9), C.held(2), D.held(2)], members=others), 0.0)
    node.collect()
    hear(node, B, Updates((*C.updates(0, 1).bundles, *D.updates(0, 1).bundles)))
    assert hear(node, B, B.updates(*range(9))).measure == Measure(8, 1)


# Crashing


def restarted(**rules):
    """A node that crashed in window 2, with one bundle of B that came early."""
    journal = [A.bundle(0), B.bundle(0), A.bundle(1), B.bundle(1), A.bundle(2), B.bundle(3)]
    rules = make_rules(**rules)
    return A.node(rules, bundles=journal, members=[A.member(), B.member()], incarnation=2, patience=PATIENCE)


def test_a_restarted_node_opens_its_last_window_again():
    node = restarted()
    out = node.collect()
    assert applied_steps(out) == [((2, 1), [0, 0, 1, 1])]
    assert out.bundles == []
    node.connected(B.id, B.hello([A.held(3), B.held(2, (3, 3))]), 0.0)
    assert node.collect().measure is None
    assert node.waiting_for() == ["bob"]
    assert applied_steps(hear(node, B, B.updates(2))) == [((2, 2), [2, 2])]


def test_a_restarted_node_is_still_expected_by_the_others():
    (said,) = restarted().collect().members
    assert (said.incarnation, said.first_step, said.last_step) == (2, 0, None)


def test_a_restarted_node_waits_for_a_neighbour_before_it_goes_on():
    node = restarted(window="none")
    node.tick(100.0)
    assert node.collect().measure is None
    node.connected(B.id, B.hello([A.held(3)]), 100.0)
    assert node.collect().measure == Measure(3, 1)


def test_a_node_that_crashed_before_it_ever_spoke_is_expected_by_nobody():
    node = started(members=[A.member(), B.member()], journal=[B.bundle(0)], incarnation=2)
    assert not node.membership.is_expected(A.id, 0)


def test_an_old_statement_of_ours_makes_us_speak_last():
    node = linked(B)
    out = hear(node, B, Members((A.member(incarnation=7, last_step=3),)))
    assert [(member.incarnation, member.last_step) for member in out.members] == [(8, None)]
    assert sent(out, B, Members) == [Members(tuple(out.members))]


def test_a_restart_of_another_is_noted():
    assert "member restarted" in events(hear(linked(B), B, Members((B.member(incarnation=2),))))


# Repair


def test_neighbours_compare_digests_every_few_seconds():
    node = linked(B)
    publish(node)
    node.tick(1.9)
    assert sent(node.collect(), B, FrontierDigest) == []
    node.tick(2.0)
    assert sent(node.collect(), B, FrontierDigest) == [FrontierDigest(Frontier().digest(), before=0)]
    node.tick(4.0)
    assert sent(node.collect(), B, FrontierDigest) == [FrontierDigest(node.frontier.digest(), before=STEP_MAX)]


def test_another_digest_is_answered_by_a_pull():
    node = linked(B)
    publish(node)
    out = hear(node, B, FrontierDigest(Frontier([A.held(1), B.held(1)]).digest()))
    assert out.pull == [(B.id, (A.held(1),))]
    assert hear(node, B, FrontierDigest(node.frontier.digest())).pull == []


def test_a_statement_made_after_our_hello_reaches_the_new_neighbour():
    node = linked(B)
    node.hello()  # on its way to C when B leaves
    hear(node, B, Members((B.member(version=1, last_step=-1),)))
    node.connected(C.id, C.hello(members=[B.member()]), 1.0)
    told = {member for message in sent(node.collect(), C, Members) for member in message.members}
    assert B.member(version=1, last_step=-1) in told


def test_a_goodbye_changes_nothing():
    node = linked(B)
    out = hear(node, B, Goodbye("leaving"))
    assert (out.bundles, out.members, out.send) == ([], [], [])


# Finishing


def finishing(window="strict", now=0.0):
    """A node that closed the only window of its run and holds everything."""
    node = linked(B, steps=1, window=window, now=now)
    hear(node, B, B.updates(0), now)
    publish(node, now)
    assert node.phase is Phase.FINISHING
    return node


def test_a_finished_node_waits_for_its_neighbours():
    node = finishing()
    node.tick(50.0)
    assert not node.collect().is_finished
    out = hear(node, B, complete(A.held(1), B.held(1)), 51.0)
    assert out.is_finished
    assert out.members[-1].last_step == 0


def test_a_neighbour_that_is_complete_with_something_else_does_not_agree():
    assert not hear(finishing(), B, complete(A.held(1))).is_finished


def test_a_node_tells_its_neighbours_once_that_it_is_complete():
    node = linked(B, steps=1)
    hear(node, B, B.updates(0))
    assert sent(publish(node), B, FrontierDigest) == [complete(A.held(1), B.held(1))]


def test_a_neighbour_that_is_away_is_waited_for_only_so_long():
    node = finishing()
    hear(node, B, Members((B.member(version=1, neighbours=[A]),)))
    node.disconnected(B.id, 1.0)
    node.tick(59.0)
    assert not node.collect().is_finished
    node.tick(60.0)
    assert node.collect().is_finished


def test_clients_that_never_joined_are_waited_for_only_so_long():
    node = linked(B, steps=1, clients=3, window="none")
    publish(node)
    hear(node, B, B.updates(0))
    node.tick(60.0)  # patience for the start has ended: the only window closes
    assert node.phase is Phase.FINISHING
    assert not hear(node, B, complete(A.held(1), B.held(1)), 61.0).is_finished
    node.tick(120.0)
    assert node.collect().is_finished


def test_a_node_finishes_once():
    node = finishing()
    node.tick(60.0)
    assert node.collect().is_finished
    node.tick(70.0)
    assert not node.collect().is_finished


def test_a_bounded_run_ends_though_one_is_silent_and_a_strict_one_does_not():
    for window in ("bounded", "strict"):
        node = linked(B, steps=1, window=window)
        publish(node)
        node.tick(1.0)
        node.tick(62.0)
        assert node.collect().is_finished is (window == "bounded")


def test_updates_that_come_after_the_last_window_are_applied_at_once():
    node = linked(B, steps=1, window="none")
    publish(node)
    assert applied_steps(hear(node, B, B.updates(0))) == [((1, 0), [0])]


def test_updates_that_come_after_the_end_are_applied_too():
    node = linked(B, steps=2, window="none")
    publish(node)
    publish(node)
    node.tick(60.0)
    assert node.collect().is_finished
    assert applied_steps(hear(node, B, B.updates(1), 61.0)) == [((2, 1), [1])]


def test_who_joins_in_the_last_round_measures_nothing():
    node = started(steps=5)
    node.connected(B.id, B.hello([B.held(5)]), 0.0)
    node.collect()
    out = hear(node, B, B.updates(*range(5)))
    assert out.measure is None
    assert node.phase is Phase.FINISHING
    assert out.members[-1].last_step == -1


# Time


def test_next_tick_is_never_in_the_past_and_never_infinite():
    node = linked(B)
    for now in (0.0, 1.0, 1e6):
        assert now <= node.next_tick(now) < math.inf


@pytest.mark.parametrize("window", ["strict", "bounded", "none"])
@pytest.mark.parametrize("clients", [2, 3])
@pytest.mark.parametrize("is_heard", [True, False])
@pytest.mark.parametrize("opened_at", [0.0, 59.99, 61.0, 500.0])
@pytest.mark.parametrize("steps", [1, 9])
def test_to_tick_when_told_makes_progress_or_changes_when_to_tick_next(window, clients, is_heard, opened_at, steps):
    node = linked(B, clients=clients, window=window, steps=steps)
    if is_heard:
        hear(node, B, B.updates(0))
    publish(node, opened_at)
    now = opened_at
    for _ in range(100):
        phase, step, at = node.phase, node.step, node.next_tick(now)
        now = at
        node.tick(now)
        node.collect()
        assert (node.phase, node.step) != (phase, step) or node.next_tick(now) > at


def test_ticking_more_often_does_no_harm():
    node = linked(B)
    publish(node)
    for k in range(100):
        node.tick(k / 100)
    out = node.collect()
    assert (out.send, out.apply, out.events) == ([], [], [])
