import pytest
from nodes import end_pulls, events, hear, linked, publish, sent, started, tick, waiting_for, windows
from origins import A, B, C, D, Origin, make_rules

from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.algorithm import GATHER_SECONDS
from seedflood.protocol.seedflood.bundles import Updates
from seedflood.protocol.swarm.delays import HOP_SECONDS_MIN
from seedflood.protocol.swarm.liveness import SUSPICION_SECONDS_MIN
from seedflood.protocol.swarm.membership import Membership
from seedflood.protocol.swarm.messages import INCARNATION_MAX, NEIGHBOURS_MAX, Members, Ping, Pong


def last_said(out):
    """The last statement about ourselves."""
    return [member for member in out.members if member.origin == A.id][-1]


# What we say


def test_our_statements_are_signed_durable_and_flooded():
    node = linked(B)
    node.connected(C.id, C.hello(), 0.0)
    out = tick(node, 2.0)
    said = last_said(out)
    assert said.signature == A.sign(said.signed_bytes(make_rules().run_id))
    assert said.neighbours == tuple(sorted((B.id, C.id)))
    assert out.is_durable
    assert [message.members[-1] for message in sent(out, B, Members)] == [said]


def test_a_link_that_breaks_is_stated():
    node = linked(B, C)
    node.disconnected(C.id, 1.0)
    assert last_said(tick(node, 2.0)).neighbours == (B.id,)


def test_a_link_that_comes_back_before_we_compare_is_not_stated_again():
    node = linked(B, C)
    tick(node, 2.0)
    node.disconnected(C.id, 3.0)
    node.connected(C.id, C.hello(incarnation=1), 3.5)
    assert tick(node, 4.0).members == []


def test_who_hears_an_update_of_ours_for_the_first_time_is_named_before():
    node = linked(B)
    node.connected(C.id, C.hello(), 0.0)
    assert node.collect().members == [C.member()]
    out = publish(node)
    assert last_said(out).neighbours == tuple(sorted((B.id, C.id)))
    first, *rest = [message for peer, message in out.send if peer == C.id]
    assert (type(first), [type(one) for one in rest]) == (Members, [Updates])
    assert last_said(out) in first.members


def test_once_we_have_published_a_new_neighbour_is_named_before_it_can_ask_for_that():
    node = linked(B)
    publish(node)
    node.connected(C.id, C.hello(), 0.0)
    assert last_said(node.collect()).neighbours == tuple(sorted((B.id, C.id)))


def test_a_link_that_is_known_is_not_stated_again():
    node = linked(B)
    node.connected(B.id, B.hello(), 1.0)
    assert [member for member in node.collect().members if member.origin == A.id] == []


def test_a_statement_names_no_more_neighbours_than_anyone_accepts():
    others = [Origin(f"o{k}") for k in range(NEIGHBOURS_MAX + 3)]
    node = started(clients=2)
    for other in others:
        node.connected(other.id, other.hello(), 0.0)
    said = last_said(tick(node, 2.0))
    assert len(said.neighbours) == NEIGHBOURS_MAX
    assert list(said.neighbours) == sorted(said.neighbours)


def test_strict_windows_and_punctual_hosts_ask_for_no_diameter(monkeypatch):
    monkeypatch.setattr(Membership, "diameter", lambda _: pytest.fail("nobody needs it"))
    node = linked(B, window="strict")
    for step in range(3):
        publish(node)
        hear(node, B, B.updates(step))
        tick(node, 2.0 * step)


def test_a_slow_hop_is_stated():
    node = started()
    node.connected(B.id, B.hello(), 0.0)
    (ping,) = sent(node.collect(), B, Ping)
    hear(node, B, Pong(ping.sent_at), 0.2)
    assert last_said(tick(node, 2.0)).hop_milliseconds == 128
    assert tick(node, 4.0).members == []


def test_what_a_past_life_measured_is_not_taken_back():
    node = started(members=[A.member(hop_milliseconds=64)], journal=[A.bundle(0)], incarnation=2)
    assert node.membership.get(A.id).hop_milliseconds == 64


def test_statements_of_others_wait_a_moment_and_go_before_anything_else():
    node = linked(B, C)
    tick(node, 2.0)
    news = D.member(incarnation=5)
    assert hear(node, B, Members((news,)), 2.1).send == []
    at = node.next_tick(2.1)
    assert 2.1 < at <= 2.1 + GATHER_SECONDS
    assert tick(node, at).send == [(C.id, Members((news,)))]
    assert hear(node, B, Members((D.member(incarnation=6),)), 2.6).send == []
    out = hear(node, B, B.updates(0), 2.61)
    assert [type(message) for _, message in out.send] == [Members, Updates]


def test_who_leaves_takes_no_news_of_others_with_it():
    node = linked(B, C)
    tick(node, 2.0)
    hear(node, B, Members((D.member(incarnation=5),)), 2.1)
    node.leave(2.11)
    (said,) = sent(node.collect(), C, Members)
    assert [member.origin for member in said.members] == [D.id, A.id]


# What we hear of ourselves


def test_our_own_words_are_no_news():
    node = linked(B)
    assert hear(node, B, Members((node.membership.get(A.id),))).members == []


def test_older_words_of_ours_change_nothing():
    node = linked(B)
    older = A.member(version=0)
    out = hear(node, B, Members((older,)))
    assert (out.members, out.events) == ([], [])


@pytest.mark.parametrize("ours", [1, 3, 9])
@pytest.mark.parametrize("past", [(1, 0), (1, 7), (3, 0), (3, 7), (9, 0), (9, 7)])
def test_whoever_lost_its_journal_is_wary_whatever_its_count_of_starts(ours, past):
    node = started(incarnation=ours)
    node.connected(B.id, B.hello(members=[A.member(*past, neighbours=[B, C]), C.member()]), 0.0)
    assert node.membership.get(A.id).age > past
    assert node.step == 0
    assert node.phase.value == "joining"
    end_pulls(node, B)
    node.connected(C.id, C.hello(), 1.0)
    end_pulls(node, C, now=1.0)
    tick(node, 6.0)
    assert node.phase.value == "measuring"


def test_a_past_life_that_said_less_than_we_since_our_start_is_heard_of():
    node = started(kept={"is_key_fresh": False})
    node.connected(B.id, B.hello(), 0.0)
    end_pulls(node, B)
    tick(node, 2.0)
    assert node.membership.get(A.id).age == (1, 1)
    out = hear(node, B, Members((A.member(1, 0, neighbours=[C]), C.member())), 2.0)
    assert "the journal lacks a past life of this node" in events(out)
    assert "cyd" in waiting_for(node)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_who_lost_its_journal_and_leaves_before_it_hears_of_its_past_is_wary_in_its_next_life(version):
    node = started(kept={"is_key_fresh": False})
    node.leave(0.0)
    journal = node.collect().members
    node.connected(B.id, B.hello(members=[A.member(1, version, neighbours=[C]), C.member()]), 0.0)
    journal += node.collect().members
    node = started(members=journal, incarnation=2, kept={"is_key_fresh": False})
    node.connected(B.id, B.hello(members=[C.member()]), 0.0)
    end_pulls(node, B)
    assert "cyd" in waiting_for(node)


def test_whoever_kept_its_journal_is_not_made_wary_by_what_it_said_itself():
    past = A.member(version=7, neighbours=[B, C])
    node = started(members=[past], journal=[A.bundle(0)], incarnation=2)
    node.connected(B.id, B.hello([A.held(1)], members=[past, C.member()]), 0.0)
    end_pulls(node, B)
    assert node.phase.value == "collecting"


def test_forged_words_of_ours_are_not_believed():
    node = started()
    forged = A.member(7).__class__(A.public_key, A.name, 7, signature=b"no")
    node.connected(B.id, B.hello(members=[forged]), 0.0)
    assert node.membership.get(A.id).incarnation == 1


def test_a_node_that_has_spoken_ends_when_it_hears_of_a_newer_one_with_its_key():
    node = linked(B)
    before = node.membership.get(A.id)
    out = hear(node, B, Members((A.member(5, 3, last_step=3),)))
    assert (out.is_superseded, out.members) == (True, [])
    assert node.membership.get(A.id) == before


def test_a_node_that_has_spoken_is_not_ended_by_an_older_one_with_its_key():
    node = started(incarnation=9)
    node.connected(B.id, B.hello(), 0.0)
    end_pulls(node, B)
    assert not hear(node, B, Members((A.member(8, 99),))).is_superseded


def test_one_that_starts_outlives_its_past_lives_even_if_its_clock_went_back():
    node = started(incarnation=2)
    node.connected(B.id, B.hello(members=[A.member(700, 5)]), 0.0)
    assert not node.collect().is_superseded
    assert node.membership.get(A.id).age > (700, 5)


def test_one_that_starts_ends_when_nothing_can_be_newer_than_what_is_said_of_it():
    node = started(incarnation=2)
    node.connected(B.id, B.hello(members=[A.member(INCARNATION_MAX)]), 0.0)
    assert node.collect().is_superseded
    assert node.membership.get(A.id).incarnation == 2


def test_of_two_that_start_at_the_same_moment_one_gives_up():
    nodes = [started(incarnation=count) for count in (1, 2)]
    for node in nodes:
        node.connected(B.id, B.hello(), 0.0)
        node.collect()
    for _ in range(100):
        for node, other in (nodes, nodes[::-1]):
            if hear(node, B, Members((other.membership.get(A.id),))).is_superseded:
                return
    pytest.fail("they outbid each other for ever")


# Who is silent


def suspicious(window):
    """A node that has waited for B so long that it suspects it. C speaks."""
    node = linked(B, C, window=window)
    publish(node)
    hear(node, C, C.updates(0))
    return node, tick(node, SUSPICION_SECONDS_MIN + 1.0)


@pytest.mark.parametrize("window", ["strict", "bounded"])
def test_who_is_silent_is_named_once(window):
    node, out = suspicious(window)
    silent = [event.facts["member"] for event in out.events if event.name == "member silent"]
    assert silent == ["bob"]
    assert "member silent" not in events(tick(node, 100.0))


def test_a_bounded_window_does_not_wait_for_a_suspect():
    node, _ = suspicious("bounded")
    publish(node, 3.0)
    (window,) = windows(hear(node, C, C.updates(1), 3.0))
    assert (window.reason, window.missing) == ("all received", ())


def test_a_strict_window_waits_for_a_suspect_all_the_same():
    node, _ = suspicious("strict")
    assert waiting_for(node) == ["bob"]


def test_a_suspect_that_speaks_is_waited_for_again():
    node, _ = suspicious("bounded")
    assert "member is back" in events(hear(node, B, B.updates(0), 3.0))
    hear(node, C, C.updates(1), 3.0)
    publish(node, 3.0)
    assert waiting_for(node) == ["bob"]


def test_who_leaves_is_not_suspected():
    node = linked(B)
    publish(node)
    hear(node, B, Members((B.member(version=1, last_step=-1),)))
    assert "member silent" not in events(tick(node, 100.0))


def test_a_goodbye_of_a_later_step_frees_nobody_from_suspicion():
    node = linked(B, C, window="bounded")
    publish(node)
    hear(node, C, C.updates(0))
    for second in range(40):
        said = B.member(version=1 + second, neighbours=[C], last_step=STEP_MAX, hop_milliseconds=8192)
        hear(node, C, Members((said, C.member(version=1 + second, neighbours=[B], hop_milliseconds=8192))), second)
        tick(node, float(second))
    assert node.step == 1
    publish(node, 41.0)
    hear(node, C, C.updates(1), 41.0)
    assert node.step == 2


# How far it is


def test_the_slowest_hop_that_anyone_measures_bounds_all_windows():
    node = linked(B, window="bounded")
    (ping,) = sent(tick(node, 2.0), B, Ping)
    hear(node, B, Pong(ping.sent_at), 2.48)
    tick(node, 4.0)  # we say 256, too: a hop has two ends
    hear(node, B, Members((B.member(version=1, neighbours=[A], hop_milliseconds=512),)), 4.0)
    publish(node, 4.0)
    assert node.view(4.0).window.bound_seconds == pytest.approx(4.0 + 2 * 0.256), "as long as the round took, and flies"


def test_the_hops_of_those_who_have_left_do_not_count():
    node = linked(B, C, window="bounded")
    hear(node, B, Members((D.member(last_step=-1, hop_milliseconds=8192),)))
    publish(node, 1.0)
    hear(node, B, B.updates(0), 1.0)
    assert node.view(1.0).window.bound_seconds == pytest.approx(1.0 + 2 * HOP_SECONDS_MIN)


def test_nobody_who_has_never_taken_part_is_expected():
    node = linked(B, clients=3)
    hear(node, B, Members((C.member(first_step=STEP_MAX),)))
    publish(node)
    hear(node, B, B.updates(0))
    assert waiting_for(node) == ["cyd (joining)"]


# What others say of us


@pytest.mark.parametrize("is_key_fresh", [True, False])
def test_a_journal_that_was_lost_is_told_once(is_key_fresh):
    node = started(clients=3, kept={"is_key_fresh": is_key_fresh})
    hello = B.hello(members=[B.member(), A.member(incarnation=1, version=9, neighbours=[B, C])])
    node.connected(B.id, hello, 0.0)
    told = [event for event in node.collect().events if event.name == "the journal lacks a past life of this node"]
    assert [event.facts["former_neighbours"] for event in told] == [sorted([B.name, f"{C.id:016x}"])]
    again = hear(node, B, Members((A.member(incarnation=5, neighbours=[B, C]),)))
    assert again.members  # it had the last word
    assert "the journal lacks a past life of this node" not in events(again)
