"""Why a node waits: one test per kind, for whom, from which step on, and since when."""

from hypothesis import given
from hypothesis import strategies as st
from nodes import (
    agree,
    answer_pull,
    complete,
    end_pulls,
    events,
    hear,
    linked,
    publish,
    sent,
    started,
    tick,
    waiting_for,
)
from origins import A, B, C, D, Origin, make_rules, verify

from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.blockers import NAMELESS
from seedflood.protocol.seedflood.messages import Equivocation
from seedflood.protocol.seedflood.node import Node
from seedflood.protocol.seedflood.outputs import CutOff
from seedflood.protocol.seedflood.phase import Phase
from seedflood.protocol.seedflood.statement import Stated, pack
from seedflood.protocol.swarm.delays import HOP_SECONDS_MIN
from seedflood.protocol.swarm.membership import NAMED_MAX
from seedflood.protocol.swarm.messages import Member, Members, Ping, Pong
from seedflood.protocol.swarm.standstill import WAITING_SECONDS

OTHER = B.bundle(0, scalar=8)


def why(node, now=0.0):
    """(kind, name, first lacking step) of each."""
    return [(one.kind, one.name, one.first_lacking_step) for one in node.blockers(now)]


def finishing(*peers, window="strict", now=0.0, **rules):
    """A node whose run has one step, which it has measured; the peers have, too."""
    node = linked(*peers, steps=1, window=window, now=now, **rules)
    for peer in peers:
        hear(node, peer, peer.updates(0), now)
    publish(node, now)
    return node


def amnesic(*peers, published_before=0, **rules):
    """Its journal was lost; it was linked with B and C when it spoke last."""
    node = started(clients=3, kept={"is_key_fresh": False}, **rules)
    past = A.member(incarnation=1, version=9, neighbours=[B, C], published_before=published_before)
    for peer in peers:
        node.connected(peer.id, peer.hello(members=[B.member(), C.member(), past]), 0.0)
    for peer in peers:
        end_pulls(node, peer)  # one donor at a time
    return node


# While it joins


def test_it_waits_for_any_neighbour_while_it_knows_none():
    assert why(started()) == [("no link", "any neighbour", None)]


def test_it_waits_for_the_neighbours_it_had():
    node = started(members=[A.member(), B.member(neighbours=[A])], incarnation=2)
    assert why(node) == [("no link", "bob", None)]


def test_it_waits_for_its_donor():
    node = started()
    node.connected(B.id, B.hello([B.held(10)]), 0.0)
    node.collect()
    (blocker,) = node.blockers(0.0)
    assert (blocker.kind, blocker.origin, blocker.name) == ("donor", B.id, "bob")
    answer_pull(node, B, B.updates(*range(5)))  # broken off half-way
    assert why(node) == [("donor", "bob", None)]


def test_one_that_lost_its_journal_waits_for_former_neighbours():
    node = amnesic(B)
    assert why(node) == [("former neighbour", "cyd", None)]


def test_one_that_lost_its_journal_waits_for_its_own_steps():
    node = amnesic(B, C, published_before=4)
    assert why(node) == [("own past", NAMELESS["own past"], 0)]


def test_one_that_has_found_its_own_steps_waits_for_whoever_may_know_more():
    node = amnesic(B, C)
    assert why(node) == [("own past", NAMELESS["own past"], None)]


def test_who_returns_to_strict_windows_waits_until_its_neighbours_expect_it():
    left = A.member(first_step=0, last_step=-1)
    node = started(members=[left, B.member()], incarnation=2)
    node.connected(B.id, B.hello(), 0.0)
    out = end_pulls(node, B)
    assert why(node) == [("announcement", "bob", None)]
    ping = sent(out, B, Ping)[-1]
    hear(node, B, Pong(ping.sent_at))
    assert node.phase is Phase.MEASURING
    assert why(node) == []


# While it collects


def test_a_window_waits_for_an_origin_from_its_first_lacking_step_on():
    node = linked(B, C)
    publish(node, 1.0)
    hear(node, B, B.updates(0), 2.0)
    (blocker,) = node.blockers(5.0)
    assert (blocker.kind, blocker.origin, blocker.name) == ("window", C.id, "cyd")
    assert (blocker.first_lacking_step, blocker.since) == (0, 1.0)


def test_a_strict_window_lacks_the_first_hole():
    node = linked(B)
    hear(node, B, B.updates(0))
    publish(node)
    publish(node)
    hear(node, B, B.updates(2))
    assert why(node) == [("window", "bob", 1)]


def test_a_bounded_window_waits_for_what_comes_after_the_last_that_was_heard():
    node = linked(B, window="bounded")
    publish(node)
    tick(node, 2 * HOP_SECONDS_MIN)
    publish(node, 1.0)
    hear(node, B, B.updates(1), 1.0)  # the first one was lost
    publish(node, 1.0)
    assert why(node, 1.0) == [("window", "bob", 2)]


def test_it_counts_from_the_last_word_of_an_origin_that_is_missing():
    node = linked(B)
    publish(node, 1.0)
    assert [(one.first_lacking_step, one.since) for one in node.blockers(9.0)] == [(0, 1.0)]
    hear(node, B, B.updates(1), 4.0)
    assert [(one.first_lacking_step, one.since) for one in node.blockers(9.0)] == [(0, 4.0)]


def test_the_first_window_waits_for_those_who_have_not_caught_up_and_those_who_never_came():
    node = linked(B, clients=5)
    hear(node, B, Members((C.member(first_step=STEP_MAX),)))
    publish(node, 1.0)
    hear(node, B, B.updates(0), 1.0)
    assert why(node, 2.0) == [("joining", "cyd", None), ("never joined", "2 hosts", None)]
    assert {one.since for one in node.blockers(9.0)} == {1.0}
    assert waiting_for(node) == ["cyd (joining)", "2 hosts (never joined)"]


def test_a_bounded_window_stops_naming_those_who_never_came_when_it_stops_waiting_for_them():
    node = linked(B, clients=3, window="bounded")
    publish(node, 59.0)
    assert [kind for kind, _, _ in why(node, 59.0)] == ["window", "never joined"]
    assert [kind for kind, _, _ in why(node, 60.0)] == ["window"]


# While it finishes


def test_a_run_ends_when_neighbours_have_said_that_they_hold_the_same():
    node = finishing(B)
    agree(node)
    assert why(node) == [("agreement", "bob", None)]
    hear(node, B, complete(node, A.held(1), B.held(1)))
    agree(node, B)
    assert (node.phase, why(node)) == (Phase.FINISHED, [])


def test_a_neighbour_that_is_gone_is_away():
    node = finishing(B, C)
    node.received(B.id, Members((B.member(version=1, neighbours=[A]),)), 0.0)
    node.disconnected(B.id, 1.0)
    agree(node)
    assert why(node, 1.0) == [("away", "bob", None), ("agreement", "cyd", None)]


def test_a_run_lacks_the_last_words_of_an_origin():
    node = linked(B, C, steps=2, window="bounded")
    hear(node, B, B.updates(0, 1))
    hear(node, C, C.updates(0))
    for _ in range(2):
        publish(node, 1.0)
        tick(node, 1.0 + 4 * HOP_SECONDS_MIN)
    assert node.phase is Phase.FINISHING
    assert ("last words", "cyd", 1) in why(node, 2.0)
    assert [name for _, name, _ in why(node, 2.0)] == ["bob", "cyd"]


def test_without_patience_nobody_is_waited_for_but_for_what_strict_windows_need():
    node = finishing(B)
    assert [kind for kind, _, _ in why(node, 59.0)] == ["agreement"]
    assert why(node, 60.0) == []
    hear(node, B, Members((D.member(first_step=0, last_step=0),)), 59.0)
    assert why(node, 60.0) == [("last words", "dan", 0)]


def test_it_waits_for_its_own_replica():
    node = finishing(B)
    node.ends.prove(Equivocation(B.bundle(0), OTHER))
    node.ends.follow(0.0)
    node.answer(CutOff(B.id, [B.bundle(0)]), 1.0)
    assert why(node, 1.0) == [("own replica", NAMELESS["own replica"], None)]


# Whatever it does


def test_a_full_disk_stops_it_in_any_phase():
    node = linked(B)
    assert why(node) == []
    node.seedflood.note_disk(is_full=True)
    assert why(node) == [("disk full", NAMELESS["disk full"], None)]
    node.seedflood.note_disk(is_full=False)
    assert why(node) == []


def test_a_blocker_stands_since_it_was_noted_first():
    node = started()
    tick(node, 2.0)
    assert [one.since for one in node.blockers(30.0)] == [0.0]
    node.connected(B.id, B.hello([B.held(3)]), 30.0)
    node.collect()
    assert [(one.kind, one.since) for one in node.blockers(31.0)] == [("donor", 31.0)]  # it was not noted yet
    tick(node, 32.0)
    assert [(one.kind, one.since) for one in node.blockers(40.0)] == [("donor", 32.0)]


def test_asking_changes_nothing():
    node = started()
    node.connected(B.id, B.hello([B.held(3)]), 0.5)
    node.collect()
    node.blockers(1.0)
    assert [one.since for one in node.blockers(1.5)] == [1.5]


@given(st.lists(st.sampled_from(["link", "cut", "tick"]), max_size=40))
def test_what_is_remembered_is_what_stands(happened):
    node = started(clients=3)
    for second, what in enumerate(happened):
        if what == "link" and B.id not in node.neighbours:
            node.connected(B.id, B.hello([B.held(3)]), float(second))
        elif what == "cut" and B.id in node.neighbours:
            node.disconnected(B.id, float(second))
        node.tick(float(second))
        node.collect()
        assert len(node.seedflood._blockers._since) <= 1
        assert all(one.since <= second for one in node.blockers(float(second)))


def test_in_a_large_run_a_line_does_not_name_everyone():
    peers = [Origin(f"host {k:02}") for k in range(NAMED_MAX + 3)]
    node = linked(*peers)
    publish(node)
    assert len(node.blockers(0.0)) == NAMED_MAX + 3
    assert waiting_for(node)[-2:] == [f"host {NAMED_MAX - 1:02}", "and 3 more"]


def test_the_log_tells_for_whom_and_why():
    node = linked(B)
    publish(node)
    lines = [event for second in range(0, 14, 2) for event in tick(node, float(second)).events]
    (line,) = [event for event in lines if event.name == "waiting"]
    assert (line.facts["waiting_for"], line.facts["why"]) == (["bob"], ["window"])


def test_a_node_alone_waits_for_nobody():
    assert A.node(make_rules(clients=1)).blockers(0.0) == ()


# While it relays


def relay(**rules):
    """D, linked with B, which has measured the only step."""
    node = Node(make_rules(steps=1, **rules), Member(D.public_key, D.name, 1), D.sign, verify, is_relay=True)
    node.start([], [], 0.0)
    node.connected(B.id, B.hello(members=[C.member()]), 0.0)
    end_pulls(node, B)
    hear(node, B, B.updates(0))
    return node


ENDED = {"version": 1, "last_step": 0, "algorithm": pack(Stated(has_ended=True))}


def test_a_relay_waits_for_nobody_before_somebody_has_ended_and_then_for_those_who_have_not():
    node = relay(clients=3)
    assert why(node) == []
    hear(node, B, Members((B.member(**ENDED),)))
    assert why(node) == [("end", "cyd", None), ("never joined", "1 host", None)]
    tick(node, 0.0)
    assert "waiting" not in events(tick(node, WAITING_SECONDS - 1.0))
    assert "waiting" in events(tick(node, WAITING_SECONDS + 1.0))


def test_a_relay_waits_for_the_updates_of_those_who_have_gone():
    node = relay()
    hear(node, B, Members((B.member(**ENDED), C.member(**ENDED))))
    assert why(node) == [("last words", "cyd", None)]
    hear(node, B, C.updates(0))
    assert why(node) == []
    assert tick(node, 2.0).is_finished
