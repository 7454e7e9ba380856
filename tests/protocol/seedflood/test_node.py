import math

import pytest
from nodes import (
    PATIENCE,
    PROBES,
    answer_pull,
    applied_steps,
    end_pulls,
    events,
    hear,
    linked,
    measure_of,
    publish,
    sent,
    sent_bundles,
    started,
    tick,
    waiting_for,
    windows,
)
from origins import A, B, C, D, Origin, epoch, make_rules

from seedflood.errors import PeerError
from seedflood.protocol.frontier import RANGES_MAX, is_sendable
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.bundles import Updates
from seedflood.protocol.seedflood.catchup import SETTLE_SECONDS
from seedflood.protocol.seedflood.holdings import BACK_SECONDS
from seedflood.protocol.seedflood.outputs import Measure, Measured, Pulled
from seedflood.protocol.seedflood.phase import Phase
from seedflood.protocol.seedflood.rounds import FOREMOST_ROUNDS_MAX
from seedflood.protocol.swarm.delays import HOP_SECONDS_MIN
from seedflood.protocol.swarm.messages import Members, Opaque, Ping, Pong

# Joining


def test_a_new_node_says_that_nobody_need_wait_for_it_yet():
    node = A.node(make_rules())
    out = node.collect()
    assert [member.first_step for member in out.members] == [STEP_MAX]
    assert out.is_durable
    assert measure_of(out) is None
    assert node.phase is Phase.JOINING


def test_a_node_that_stands_still_says_for_whom_it_waits():
    node = A.node(make_rules())
    said = []
    for second in range(35):
        node.tick(float(second))
        said += [event.facts["waiting_for"] for event in node.collect().events if event.name == "waiting"]
    assert said == [["any neighbour"]] * 2


def test_a_node_alone_in_its_run_begins_at_once():
    assert measure_of(A.node(make_rules(clients=1)).collect()) == Measure(0, 1)


def test_a_node_measures_once_a_neighbour_has_told_that_it_lacks_nothing():
    node = started()
    node.connected(B.id, B.hello(), 0.0)
    assert measure_of(node.collect()) is None
    out = answer_pull(node, B)
    assert measure_of(out) == Measure(0, 1)
    assert out.members[-1].first_step == 0
    assert node.phase is Phase.MEASURING


def test_a_joining_node_pulls_and_says_nothing_before_it_has_caught_up():
    node = started(window="bounded")
    node.connected(B.id, B.hello([B.held(3)]), 0.0)
    out = node.collect()
    assert out.pull == [(B.id, ())]
    node.answer(Measured(0, PROBES), 0.0)
    assert node.collect().bundles == []
    out = answer_pull(node, B, B.updates(0, 1, 2))
    assert measure_of(out) == Measure(2, 1)
    assert out.bundles == list(B.updates(0, 1, 2).bundles)


def test_a_node_that_joins_late_begins_where_the_others_are_and_declares_what_it_skipped():
    node = started(window="bounded")
    node.connected(B.id, B.hello([B.held(5)]), 0.0)
    node.collect()
    out = answer_pull(node, B, B.updates(0, 1, 2, 3, 4))
    assert applied_steps(out) == [((4, 3), [0, 1, 2, 3])]
    assert measure_of(out) == Measure(4, 1)
    (own,) = publish(node).bundles
    assert (own.step, own.skipped, own.first_covered) == (4, 4, 0)


def test_one_who_joins_does_not_begin_in_an_epoch_that_the_foremost_have_left_behind():
    node = started(clients=4, refresh_period=4, window="bounded")
    others = [B.member(), C.member(), D.member()]
    node.connected(B.id, B.hello([B.held(9), C.held(3), D.held(2)], members=others), 0.0)
    node.collect()
    out = answer_pull(node, B, B.updates(*range(9)), C.updates(0, 1, 2), D.updates(0, 1))
    assert measure_of(out) == Measure(8, 1)


def test_one_who_claims_to_be_far_ahead_does_not_send_newcomers_to_the_end_of_the_run():
    node = started(clients=4, steps=100_000, refresh_period=4)
    others = [B.member(), C.member(), D.member()]
    node.connected(B.id, B.hello([C.held(3), D.held(2)], members=others), 0.0)
    node.collect()
    liar = Updates((B.bundle(99_000, skipped=99_000),))
    out = answer_pull(node, B, liar, C.updates(0, 1, 2), D.updates(0, 1))
    assert measure_of(out).step <= 2 + FOREMOST_ROUNDS_MAX


def test_a_pull_that_broke_off_is_asked_for_again_at_the_next_comparison():
    node = started()
    node.connected(B.id, B.hello([B.held(3)]), 0.0)
    node.collect()
    node.answer(Pulled(B.id), 1.0)
    assert node.collect().pull == []
    node.tick(2.0)
    assert [peer for peer, _ in node.collect().pull] == [B.id]


@pytest.mark.parametrize("window", ["strict", "bounded"])
def test_one_that_has_not_spoken_yet_first_catches_up_with_what_happened_while_it_had_no_link(window):
    node = started(clients=3, steps=8, window=window, kept={"is_key_fresh": False})
    past = A.member(1, 9, neighbours=[B], last_step=-1)
    node.connected(B.id, B.hello(members=[past, C.member()]), 0.0)
    end_pulls(node, B)
    node.disconnected(B.id, 1.0)
    node.connected(B.id, B.hello([B.held(8), C.held(8)]), 99.0)
    hear(node, B, Pong(99.0), 99.0)
    assert node.phase is Phase.JOINING
    assert waiting_for(node, 99.0) == ["bob"]
    answer_pull(node, B, B.updates(*range(8)), C.updates(*range(8)), now=99.0)
    tick(node, 99.0 + SETTLE_SECONDS + PATIENCE.redial_seconds)
    assert (node.phase, node.step) == (Phase.FINISHING, 8)


def test_what_a_neighbour_only_claims_to_hold_does_not_silence_one_for_ever():
    node = started(clients=3, steps=8, window="bounded", kept={"is_key_fresh": False})
    node.connected(B.id, B.hello(members=[A.member(1, 9, neighbours=[B], last_step=-1)]), 0.0)
    end_pulls(node, B)
    node.connected(C.id, C.hello([C.held(STEP_MAX)]), 1.0)
    node.disconnected(B.id, 1.0)
    tick(node, 1.0 + PATIENCE.start_seconds - 0.1)
    assert node.phase is Phase.JOINING
    for second in range(90):
        tick(node, 1.0 + PATIENCE.start_seconds + second)
    assert node.phase is not Phase.JOINING


def test_a_node_with_a_lost_journal_learns_its_own_past_before_it_speaks():
    node = started()
    past = A.member(incarnation=4)
    node.connected(B.id, B.hello([A.held(3), B.held(4)], members=[past]), 0.0)
    out = node.collect()
    assert measure_of(out) is None
    assert node.membership.get(A.id).age > past.age
    out = answer_pull(node, B, A.updates(0, 1, 2), B.updates(0, 1, 2, 3))
    assert measure_of(out) is None
    assert measure_of(tick(node, SETTLE_SECONDS)) == Measure(3, 1)
    (own,) = publish(node).bundles
    assert (own.step, own.skipped) == (3, 0)


@pytest.mark.parametrize("window", ["strict", "bounded"])
def test_a_node_whose_journal_is_an_old_copy_asks_all_its_past_neighbours_before_it_speaks(window):
    node = restarted(window=window, neighbours=[B, C])
    node.connected(B.id, B.hello([A.held(5), B.held(5)]), 0.0)
    node.collect()
    out = answer_pull(node, B, A.updates(3, 4), B.updates(2, 3, 4))
    assert "the journal lacks a past life of this node" in events(out)
    assert measure_of(tick(node, 1e4)) is None
    assert waiting_for(node) == ["cyd"]
    node.connected(C.id, C.hello([A.held(6), B.held(5)]), 1e4)
    node.collect()
    answer_pull(node, C, A.updates(5), now=1e4)
    assert measure_of(tick(node, 2e4)) == Measure(6, 1)


def test_an_own_bundle_that_turns_up_too_late_is_not_contradicted():
    node = linked(B)
    out = hear(node, B, Updates((A.bundle(0, scalar=99),)))
    assert "another host speaks with our key" in events(out)
    out = publish(node)
    assert out.bundles == []
    out = hear(node, B, B.updates(0))
    assert applied_steps(out) == [((0, 0), [0, 0])]
    assert measure_of(out) == Measure(1, 1)


@pytest.mark.parametrize("window", ["strict", "bounded"])
def test_an_own_bundle_of_a_later_step_that_turns_up_too_late_is_not_contradicted(window):
    """In bounded windows who has spoken of a later step has moved on. In strict ones this step is owed."""
    node = linked(B, window=window)
    hear(node, B, Updates((A.bundle(3, scalar=99),)))
    assert len(publish(node).bundles) == (window == "strict")


# Publishing and flooding


def test_an_own_bundle_is_durable_before_it_is_sent():
    out = publish(linked(B, C))
    (own,) = out.bundles
    assert out.is_durable
    assert own.updates() == [(A.id, 0, PROBES[0])]
    assert sent_bundles(out, B) == sent_bundles(out, C) == [own]


def test_an_own_bundle_is_signed():
    (own,) = publish(linked(B)).bundles
    other = started()
    other.connected(B.id, B.hello(members=[A.member()]), 0.0)
    assert own.signature == A.sign(own.signed_bytes(other.rules.run_id, A.public_key))


def test_a_measurement_of_another_step_than_the_awaited_one_is_not_published():
    node = linked(B)
    node.answer(Measured(1, PROBES), 0.0)
    assert node.collect().bundles == []
    publish(node)
    node.answer(Measured(0, PROBES), 0.0)
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


# Windows


def test_a_window_closes_when_all_were_heard_and_the_next_step_is_measured():
    node = linked(B, C)
    publish(node, 1.0)
    hear(node, B, B.updates(0), 2.0)
    assert waiting_for(node) == ["cyd"]
    out = hear(node, C, C.updates(0), 4.0)
    (window,) = windows(out)
    assert (window.reason, window.received, window.late, window.missing) == ("all received", 3, 0, ())
    assert window.waited_seconds == 3.0
    assert measure_of(out) == Measure(1, 1)


def test_a_window_applies_its_own_step_and_keeps_later_ones():
    node = linked(B)
    hear(node, B, B.updates(0, 1))
    assert applied_steps(publish(node)) == [((0, 0), [0, 0])]
    assert applied_steps(publish(node)) == [((1, 1), [1, 1])]


def test_strict_waits_for_ever():
    node = linked(B)
    publish(node)
    node.tick(1e9)
    assert windows(node.collect()) == []
    assert waiting_for(node) == ["bob"]


def test_strict_waits_for_those_that_never_joined():
    node = linked(B, clients=3)
    publish(node)
    assert windows(hear(node, B, B.updates(0), 1e9)) == []
    assert waiting_for(node) == ["1 host (never joined)"]


def test_bounded_closes_at_the_diameter_times_the_bound_of_a_hop():
    node = linked(B, C, window="bounded")  # B and C are two hops apart
    hear(node, B, B.updates(0))
    publish(node, 0.0)  # half of the hosts took no time
    node.tick(1.99 * HOP_SECONDS_MIN)
    assert windows(node.collect()) == []
    assert node.next_tick(0.0) == pytest.approx(2 * HOP_SECONDS_MIN)
    node.tick(node.next_tick(0.0))
    (window,) = windows(node.collect())
    assert (window.reason, set(window.missing)) == ("bound", {C.id})


def test_bounded_waits_for_the_others_as_long_as_half_of_the_hosts_took_from_the_beginning_of_the_round():
    node = linked(B, C, window="bounded")
    publish(node, 0.3)
    hear(node, B, B.updates(0), 0.4)
    assert node.view(0.4).window.bound_seconds == pytest.approx(0.1 + 0.4 + 2 * HOP_SECONDS_MIN)
    hear(node, C, C.updates(0), 0.7)
    assert node.step == 1
    publish(node, 0.8)
    hear(node, B, B.updates(1), 0.8)
    assert node.view(0.8).window.bound_seconds == pytest.approx(2 * HOP_SECONDS_MIN), "C usually comes later than that"


def test_the_bound_grows_with_the_measured_delay():
    node = started(window="bounded")
    node.connected(B.id, B.hello(), 0.0)
    (ping,) = sent(node.collect(), B, Ping)
    answer_pull(node, B, Pong(ping.sent_at), now=0.5)
    publish(node, 0.5)
    assert node.next_tick(0.5) == pytest.approx(0.5 + 2 * 0.25)


def test_a_pong_that_answers_no_ping_measures_nothing():
    node = linked(B, window="bounded")
    hear(node, B, Pong(-1e9), 0.5)
    hear(node, B, Pong(-1e9), 0.5)
    publish(node, 0.5)
    assert node.next_tick(0.5) == pytest.approx(0.5 + 0.5 + HOP_SECONDS_MIN)


def test_bounded_waits_for_those_that_never_joined_only_so_long():
    node = linked(B, clients=3, window="bounded")
    publish(node)
    hear(node, B, B.updates(0), 59.9)
    assert node.step == 0
    node.tick(60.0)
    assert measure_of(node.collect()) == Measure(1, 1)


def test_who_is_missing_from_many_windows_is_told_once_and_so_is_that_all_are_back():
    node, now, told = linked(B, window="bounded", steps=9), 0.0, []
    for is_heard in (False, False, True, False, True, True, True):
        step = node.step
        if is_heard:
            hear(node, B, B.updates(step), now)
        node.seedflood.windows.began_at = now  # the round takes no time
        happened = [*publish(node, now).events, *tick(node, now + 0.5).events]
        hear(node, B, B.updates(step), now + 0.5)  # late at worst, and never a suspect
        lines = [event for event in happened if event.name == "window closed"]
        told += [(event.level, event.facts["missing"]) for event in lines]
        now += 0.6 * BACK_SECONDS
    missing, heard = ("debug", ["bob"]), ("debug", [])
    assert told == [("info", ["bob"]), missing, heard, missing, heard, ("info", []), heard]


def test_late_updates_are_applied_in_a_later_window():
    node = linked(B, window="bounded")
    publish(node)
    tick(node, 0.5)
    assert windows(hear(node, B, B.updates(0), 0.5)) == []
    publish(node, 0.5)
    (window,) = windows(tick(node, 1.0))
    assert sorted((u.step, u.origin == B.id) for u in window.updates) == [(0, True), (1, False)]
    assert (window.steps, window.late, window.received) == ((1, 1), 1, 1)


def test_a_node_that_fell_behind_moves_on_with_the_others_and_declares_what_it_skipped():
    node = linked(B, window="bounded")
    hear(node, B, B.updates(*range(8)))
    out = publish(node)
    assert measure_of(out) == Measure(7, 1)
    (own,) = publish(node).bundles
    assert (own.step, own.skipped) == (7, 6)


@pytest.mark.parametrize(("window", "first"), [("strict", 1), ("bounded", 3)])
def test_a_step_of_ours_that_nobody_has_is_measured_again_where_all_wait_for_it(window, first):
    node = started(clients=2, kept={"is_key_fresh": False}, window=window)
    past = A.member(incarnation=1, version=9, neighbours=[B], published_before=3)
    node.connected(B.id, B.hello([A.held(1, (2, 2)), B.held(1)], [past]), 0.0)
    answer_pull(node, B, Updates((A.bundle(0), A.bundle(2), B.bundle(0))))
    out = tick(node, 2 * PATIENCE.start_seconds + SETTLE_SECONDS + PATIENCE.redial_seconds)
    assert measure_of(out) == Measure(first, 1)
    (bundle,) = publish(node, 20.0).bundles
    assert (bundle.step, bundle.skipped) == (first, 0)


def test_of_steps_from_before_it_took_part_none_is_measured_again():
    rules = {"clients": 2, "steps": 100, "delay": 2}
    node = started(kept={"is_key_fresh": False}, **rules)
    past = A.member(incarnation=1, version=9, neighbours=[B], first_step=50, published_before=52)
    node.connected(B.id, B.hello([A.held(0, (51, 51)), B.held(52)], [past]), 0.0)
    answer_pull(node, B, Updates((A.bundle(51), *(B.bundle(step) for step in range(52)))))
    out = tick(node, 2 * PATIENCE.start_seconds + SETTLE_SECONDS + PATIENCE.redial_seconds)
    assert measure_of(out) == Measure(50, 1)


def test_strict_never_skips():
    node = linked(B)
    hear(node, B, B.updates(*range(8)))
    assert measure_of(publish(node)) == Measure(1, 1)


def test_several_local_steps_share_one_bundle_and_one_window():
    node = started(local_steps=5)
    node.connected(B.id, B.hello(), 0.0)
    node.collect()
    assert measure_of(answer_pull(node, B)) == Measure(0, 5)
    (own,) = publish(node, count=5).bundles
    assert (own.step, own.last) == (0, 4)
    out = hear(node, B, Updates((B.bundle(0, count=5),)))
    assert applied_steps(out) == [((0, 4), sorted([*range(5), *range(5)]))]
    assert measure_of(out) == Measure(5, 5)


# Leaving and returning


def test_a_leave_shrinks_the_open_window_at_once():
    node = linked(B, C)
    publish(node)
    hear(node, B, B.updates(0))
    out = hear(node, B, Members((C.member(version=1, last_step=-1),)))
    assert measure_of(out) == Measure(1, 1)
    assert "member left" in events(out)


def test_the_last_step_of_who_left_is_still_waited_for():
    node = linked(B)
    publish(node)
    assert windows(hear(node, B, Members((B.member(version=1, last_step=0),)))) == []
    assert measure_of(hear(node, B, B.updates(0))) == Measure(1, 1)


def test_a_node_that_leaves_says_so_and_then_only_relays():
    node = linked(B, C)
    publish(node)
    node.leave(1.0)
    out = node.collect()
    (said,) = out.members
    assert (said.last_step, out.is_durable, node.phase) == (0, True, Phase.LEFT)
    assert sent(out, B, Members) == [Members((said,))]
    assert sent_bundles(hear(node, B, B.updates(0)), C) == [B.bundle(0)]
    assert measure_of(node.collect()) is None


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
    out = answer_pull(node, B, B.updates(*range(6)))
    assert out.members[-1].last_step is None
    assert measure_of(out) is None, "nobody is known to wait for us yet"
    assert measure_of(hear(node, B, Pong(0.0))) == Measure(5, 1)
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
    assert measure_of(hear(node, B, B.updates(0))) == Measure(1, 1)


def test_those_that_left_do_not_hold_back_one_that_joins():
    node = started(clients=5, window="bounded")
    others = [B.member(), *(origin.member(last_step=1) for origin in (C, D, Origin("eve")))]
    node.connected(B.id, B.hello([B.held(9), C.held(2), D.held(2)], members=others), 0.0)
    node.collect()
    out = answer_pull(node, B, C.updates(0, 1), D.updates(0, 1), B.updates(*range(9)))
    assert measure_of(out) == Measure(8, 1)


# Crashing


def restarted(neighbours=(), **rules):
    """A node that crashed in window 2, with one bundle of B that came early."""
    journal = [A.bundle(0), B.bundle(0), A.bundle(1), B.bundle(1), A.bundle(2), B.bundle(3)]
    rules = make_rules(**rules)
    members = [A.member(neighbours=neighbours), B.member(), *([C.member()] if C in neighbours else [])]
    return A.node(rules, bundles=journal, members=members, incarnation=2, patience=PATIENCE)


def test_a_restarted_node_opens_its_last_window_again():
    node = restarted()
    node.connected(B.id, B.hello([A.held(3), B.held(2, (3, 3))]), 0.0)
    node.collect()
    out = answer_pull(node, B)
    assert applied_steps(out) == [((2, 1), [0, 0, 1, 1])]
    assert (out.bundles, measure_of(out)) == ([], None)
    assert waiting_for(node) == ["bob"]
    assert applied_steps(hear(node, B, B.updates(2))) == [((2, 2), [2, 2])]


def test_a_restarted_node_applies_nothing_before_it_knows_what_a_neighbour_has_applied():
    assert windows(restarted().collect()) == []


def test_a_restarted_node_is_still_expected_by_the_others():
    (said,) = restarted().collect().members
    assert (said.incarnation, said.first_step, said.last_step) == (2, 0, None)


def test_a_restarted_node_waits_for_a_neighbour_before_it_goes_on():
    node = restarted(window="bounded")
    node.tick(100.0)
    assert measure_of(node.collect()) is None
    node.connected(B.id, B.hello([A.held(3)]), 100.0)
    node.collect()
    assert measure_of(answer_pull(node, B, now=100.0)) == Measure(3, 1)


def test_a_node_that_crashed_before_its_first_bundle_is_expected_as_it_said():
    node = started(members=[A.member(), B.member()], journal=[B.bundle(0)], incarnation=2)
    assert node.membership.is_expected(A.id, 0)
    assert not node.membership.get(A.id).has_spoken


def test_an_old_statement_of_ours_makes_us_speak_last():
    node = started()
    node.connected(B.id, B.hello(), 0.0)
    node.collect()
    past = A.member(incarnation=7, last_step=3)
    out = hear(node, B, Members((past,)))
    assert [(member.incarnation, member.last_step) for member in out.members] == [(7, 3), (8, None)]
    assert sent(out, B, Members) == [Members((node.membership.get(A.id),))]


def test_a_restart_of_another_is_noted():
    assert "member restarted" in events(hear(linked(B), B, Members((B.member(incarnation=2),))))


# Time


def test_next_tick_is_never_in_the_past_and_never_infinite():
    node = linked(B)
    for now in (0.0, 1.0, 1e6):
        assert now <= node.next_tick(now) < math.inf


@pytest.mark.parametrize("window", ["strict", "bounded"])
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
    assert (out.send, out.orders, out.events) == ([], [], [])


def test_a_node_with_more_ranges_than_a_peer_accepts_tells_the_first_of_them():
    """Sums of every other epoch of 3,000: each is a range of its own. Today's peers would refuse the hello for ever."""
    sums = [epoch(number, B.held(0, (2 * number, 2 * number))) for number in range(1, 3000, 2)]
    node = started(refresh_period=2, steps=10_000, members=[B.member()], kept={"closed": sums})
    assert len(node.frontier.held()[0].beyond) > RANGES_MAX
    assert is_sendable(node.hello().frontier)
    node.connected(B.id, B.hello([B.held(10)]), 0.0)
    assert all(is_sendable(frontier) for _, frontier in node.collect().pull)


def test_a_message_of_another_way_of_training_is_refused():
    node = linked(B)
    with pytest.raises(PeerError, match="does not know"):
        hear(node, B, Opaque(b"mean"))
