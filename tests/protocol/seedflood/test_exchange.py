import pytest
from nodes import (
    agree,
    answer_pull,
    applied_steps,
    digest,
    end_pulls,
    events,
    hear,
    linked,
    measure_of,
    orders,
    publish,
    sent,
    started,
    tick,
    windows,
)
from origins import A, B, C, epoch, replica, standing

from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.messages import FrontierDigest, ReplicaDigest, Votes
from seedflood.protocol.seedflood.outputs import Rebuild, Remade, SumEpoch, TakeDigest
from seedflood.protocol.seedflood.phase import Phase
from seedflood.protocol.swarm.messages import Goodbye, Members, Ping, Pong

# Comparing frontiers


def test_neighbours_compare_digests_every_few_seconds():
    node = linked(B)
    publish(node)
    assert sent(tick(node, 1.9), B, FrontierDigest) == []
    assert sent(tick(node, 2.0), B, FrontierDigest) == [digest(node, before=0)]
    assert sent(tick(node, 4.0), B, FrontierDigest) == [digest(node, *node.frontier.held(), before=STEP_MAX)]


def test_another_digest_is_answered_by_a_pull():
    node = linked(B)
    publish(node)
    assert hear(node, B, digest(node, A.held(1), B.held(1))).pull == []  # it was said before ours could arrive
    tick(node, 2.0)
    assert hear(node, B, digest(node, A.held(1), B.held(1))).pull == [(B.id, (A.held(1),))]
    assert hear(node, B, digest(node, A.held(1))).pull == []


def test_whoever_knows_other_statements_twice_is_pulled_from():
    node = linked(B)
    other = FrontierDigest(node.frontier.digest(), members_digest=b"other")
    assert hear(node, B, other).pull == []
    assert [peer for peer, _ in hear(node, B, other).pull] == [B.id]


def test_one_who_joins_pulls_even_if_it_lacks_nothing():
    node = started()
    node.connected(B.id, B.hello(), 0.0)
    assert node.collect().pull == [(B.id, ())]


def test_one_who_takes_part_pulls_from_a_new_neighbour_only_what_it_lacks():
    node = linked(B)
    node.connected(C.id, C.hello(members=[B.member()]), 0.0)
    assert node.collect().pull == []


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


def test_a_ping_is_answered_with_what_it_said():
    assert sent(hear(linked(B), B, Ping(12.5)), B, Pong) == [Pong(12.5)]


def test_one_who_catches_up_says_how_far_it_is():
    node = started()
    node.connected(B.id, B.hello([B.held(10)]), 0.0)
    hear(node, B, B.updates(0, 1, 2))
    (said,) = [event.facts for event in tick(node, 2.0).events if event.name == "catching up"]
    assert said == {"donor": "bob", "held": 3, "wanted": 10, "percent": 30}


# Comparing replicas


def catching_up():
    """A restarted node that lacks one bundle of B, and the neighbour it pulls from."""
    journal = [A.bundle(0), B.bundle(0), A.bundle(1), B.bundle(1), A.bundle(2), B.bundle(3)]
    node = started(journal=journal, members=[A.member(), B.member()], incarnation=2)
    node.connected(B.id, B.hello([A.held(3), B.held(5)]), 1.0)
    node.collect()
    return node


def test_one_who_catches_up_applies_exactly_what_its_donor_has_applied():
    node = catching_up()
    out = hear(node, B, standing(A.held(2), B.held(1)))
    assert [sorted((u.origin == B.id, u.step) for u in window.updates) for window in windows(out)] == [
        [(False, 0), (False, 1), (True, 0)]
    ]
    assert orders(out, TakeDigest) == [TakeDigest(replica(A.held(2), B.held(1)).frontier_digest)]


def test_what_was_applied_to_compare_is_not_applied_again():
    node = catching_up()
    hear(node, B, standing(A.held(2), B.held(1)))
    out = answer_pull(node, B, B.updates(2, 4))
    assert applied_steps(out) == [((2, 1), [1]), ((2, 2), [2, 2])]


def test_one_who_has_all_its_donor_has_waits_for_the_digest_to_compare_with():
    node = catching_up()
    out = hear(node, B, B.updates(2, 4))
    assert (windows(out), measure_of(out)) == ([], None)
    out = hear(node, B, standing(A.held(2), B.held(2)))
    assert applied_steps(out) == [((0, -1), [0, 0, 1, 1])]
    assert applied_steps(answer_pull(node, B)) == [((2, 2), [2, 2])]


def test_what_the_donor_has_applied_and_we_lack_is_not_applied_in_part():
    node = catching_up()
    assert windows(hear(node, B, standing(A.held(2), B.held(3)))) == []


@pytest.mark.parametrize(("window", "is_applied"), [("strict", False), ("bounded", True)])
def test_in_strict_windows_nothing_is_applied_of_the_step_that_is_measured_next(window, is_applied):
    """B came back without its disk and has left step 0 behind; we have not measured it yet."""
    node = started(members=[A.member(), B.member()], incarnation=2, window=window)
    node.connected(B.id, B.hello([B.held(1)], first_step=1), 1.0)
    node.collect()
    hear(node, B, B.updates(0))
    assert bool(windows(hear(node, B, standing(B.held(1))))) is is_applied
    assert measure_of(answer_pull(node, B)).step == 0


def test_one_who_has_applied_more_than_its_donor_goes_its_own_way():
    node = catching_up()
    hear(node, B, standing(A.held(2), B.held(2)))
    assert windows(hear(node, B, standing(A.held(1), B.held(1)))) == []


def test_one_who_takes_part_applies_by_its_windows_alone():
    node = linked(B)
    hear(node, B, B.updates(0))
    assert windows(hear(node, B, standing(B.held(1)))) == []


def test_a_node_is_ready_once_its_replica_was_seen_to_equal_a_neighbours():
    node = catching_up()
    hear(node, B, standing(A.held(2), B.held(2)), 1.0)
    said = replica(A.held(2), B.held(2))
    node.answer(ReplicaDigest(said.frontier_digest, said.replica_digest), 2.5)
    (agreed,) = [event.facts for event in node.collect().events if event.name == "replica agrees"]
    assert agreed == {"peer": "bob", "seconds_since_link": 1.5}
    assert not node.is_ready  # it has not caught up yet
    answer_pull(node, B, B.updates(2, 4), now=3.0)
    assert node.is_ready


def test_a_node_that_has_caught_up_is_not_ready_before_it_has_compared():
    node = linked(B)
    assert not node.is_ready
    assert "replica agrees" in events(agree(node, B))
    assert node.is_ready
    node.leave(1.0)
    assert not node.is_ready


def test_a_node_alone_in_its_run_has_nobody_to_compare_with():
    assert started(clients=1).is_ready


def test_a_new_neighbour_is_told_our_last_digest():
    node = linked(B)
    agree(node, B)
    node.connected(C.id, C.hello(members=[B.member()]), 1.0)
    assert sent(node.collect(), C, ReplicaDigest) == [replica()]


def test_whoever_pulls_from_us_is_told_what_our_last_digest_stands_for():
    node = linked(B)
    assert node.divergence.standing is None
    agree(node, B)
    assert node.divergence.standing == standing()


def test_digests_are_taken_at_the_same_rounds_everywhere():
    node, taken = linked(B), []
    agree(node, B)
    for step in range(20):
        hear(node, B, B.updates(step))
        if orders(publish(node), TakeDigest):
            taken.append(node.step)
    assert taken == [8, 16]


def test_a_digest_is_taken_when_the_run_stands_still():
    node = linked(B)
    agree(node, B)
    hear(node, B, B.updates(0))
    publish(node)
    assert orders(tick(node, 2.0), TakeDigest) == []
    assert orders(tick(node, 4.0), TakeDigest) == [TakeDigest(replica(A.held(1), B.held(1)).frontier_digest)]


def doubtful():
    """A node whose neighbour has another replica, before it has done anything about it."""
    node = linked(B)
    agree(node, B)
    out = hear(node, B, replica(digest="other"))
    assert [(event.name, event.level) for event in out.events] == [("replicas differ", "error")]
    return node


def test_a_node_in_doubt_is_not_ready_and_makes_its_replica_again():
    node = doubtful()
    assert not node.is_ready
    out = tick(node, 2.0)
    assert out.orders == [Rebuild(()), TakeDigest(replica().frontier_digest)]


def test_one_neighbour_that_agrees_settles_the_doubt_about_another():
    node = doubtful()
    hear(node, B, replica())
    assert orders(tick(node, 2.0), Rebuild) == []
    assert node.is_ready


def test_a_node_whose_replica_was_wrong_is_ready_again_when_its_new_digest_equals_a_neighbours():
    node = doubtful()
    tick(node, 2.0)
    assert not node.is_ready
    node.answer(Remade(True), 3.0)
    (told,) = [event.facts for event in node.collect().events if event.name == "replica rebuilt"]
    assert told == {"was_wrong": True}
    assert not node.is_ready
    hear(node, B, replica(), 3.0)
    agree(node, now=3.0)
    assert node.is_ready


def test_a_node_whose_replica_was_right_is_ready_and_a_lone_liar_does_not_change_that():
    node = doubtful()
    tick(node, 2.0)
    node.answer(Remade(False), 3.0)
    agree(node, now=3.0)
    hear(node, B, replica(digest="other"), 3.0)
    assert node.is_ready
    assert not node.is_doubted


def test_sums_of_a_replica_in_doubt_are_taken_again():
    node = linked(B, clients=2, steps=4, refresh_period=4)
    for step in range(4):
        hear(node, B, B.updates(step))
        out = publish(node)
    (order,) = orders(out, SumEpoch)
    node.answer(epoch(order.epoch, *order.frontier), 0.0)
    node.collect()
    agree(node)
    hear(node, B, replica(*node.applied.held(), digest="other"))
    assert orders(tick(node, 2.0), SumEpoch) == []
    node.answer(Remade(True), 3.0)
    assert orders(node.collect(), SumEpoch) == [order]


def test_nothing_is_summed_while_a_rebuild_is_under_way():
    node = linked(B, clients=2, steps=4, refresh_period=4)
    agree(node)
    hear(node, B, replica(digest="other"))
    assert orders(tick(node, 2.0), Rebuild) != []
    for step in range(4):
        hear(node, B, B.updates(step), 3.0)
        out = publish(node, 3.0)
    assert node.phase is Phase.FINISHING
    assert orders(out, SumEpoch) == []


def test_members_whose_sums_are_other_than_ours_raise_a_doubt():
    node = linked(B, clients=2, steps=4, refresh_period=4)
    for step in range(4):
        hear(node, B, B.updates(step))
        out = publish(node)
    (order,) = orders(out, SumEpoch)
    node.answer(epoch(order.epoch, *order.frontier, total=1), 0.0)
    node.collect()
    out = hear(node, B, Votes((B.vote(epoch(order.epoch, *order.frontier, total=2)),)))
    assert (out.compact, "replicas differ" in events(out)) == ([], True)
    assert len(orders(tick(node, 2.0), Rebuild)) == 1


def test_a_neighbour_whose_link_went_down_is_compared_no_more():
    node = linked(B)
    hear(node, B, replica(digest="other"))
    node.disconnected(B.id, 1.0)
    end_pulls(node)
    assert "replicas differ" not in events(agree(node))
    assert measure_of(node.collect()) is None
