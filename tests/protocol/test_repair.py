from origins import A, B, C

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.messages import STEP_MAX, FrontierDigest
from seedflood.protocol.repair import Repair

LACKING = Frontier([A.held(3)])
FULL = Frontier([A.held(5)])


def make_repair(*peers, goal=(), frontier=LACKING):
    repair = Repair()
    for peer in peers:
        repair.connect(peer.id, tuple(goal), frontier)
    return repair


def pulls(repair):
    return list(repair.collect())


def said(frontier, before=STEP_MAX, is_complete=False):
    return FrontierDigest(frontier.digest(before), before, is_complete)


def test_what_a_hello_holds_and_we_lack_is_pulled_at_once():
    repair = make_repair(B, goal=FULL.held())
    assert not repair.is_caught_up
    assert pulls(repair) == [B.id]


def test_a_hello_without_news_means_caught_up():
    repair = make_repair(B, goal=LACKING.held())
    assert repair.is_caught_up
    assert pulls(repair) == []


def test_a_finished_pull_that_reached_the_goal_means_caught_up():
    repair = make_repair(B, goal=FULL.held())
    pulls(repair)
    repair.pulled(B.id, FULL)
    assert repair.is_caught_up
    repair.retry()
    assert pulls(repair) == []


def test_a_broken_pull_is_tried_again():
    repair = make_repair(B, goal=FULL.held())
    pulls(repair)
    repair.pulled(B.id, LACKING)
    assert not repair.is_caught_up
    repair.retry()
    assert pulls(repair) == [B.id]


def test_one_pull_per_peer_is_under_way():
    repair = make_repair(B, goal=FULL.held())
    repair.retry()
    repair.compare(B.id, said(FULL), LACKING)
    assert pulls(repair) == [B.id]
    repair.retry()
    assert pulls(repair) == []


def test_any_neighbour_serves_to_catch_up():
    repair = make_repair(B, C, goal=FULL.held())
    assert pulls(repair) == [B.id, C.id]
    repair.disconnect(B.id)
    repair.pulled(C.id, FULL)
    assert repair.is_caught_up


def test_a_goal_may_be_reached_by_live_updates():
    repair = make_repair(B, goal=FULL.held())
    repair.progressed(LACKING)
    assert not repair.is_caught_up
    repair.progressed(FULL)
    assert repair.is_caught_up


def test_unequal_digests_are_pulled_and_equal_ones_are_not():
    repair = make_repair(B)
    repair.compare(B.id, said(LACKING), LACKING)
    assert pulls(repair) == []
    repair.compare(B.id, said(FULL), LACKING)
    assert pulls(repair) == [B.id]


def test_a_digest_of_settled_steps_does_not_see_what_is_on_its_way():
    repair = make_repair(B)
    repair.compare(B.id, said(FULL, before=3), LACKING)
    assert pulls(repair) == []
    repair.compare(B.id, said(FULL, before=4), LACKING)
    assert pulls(repair) == [B.id]


def test_a_moving_run_is_compared_below_its_last_rounds_and_a_still_one_whole():
    repair = Repair()
    assert repair.settled_before(LACKING, 10, 1) == 8
    assert repair.settled_before(FULL, 11, 1) == 9
    assert repair.settled_before(FULL, 11, 1) == STEP_MAX
    assert repair.settled_before(LACKING, 5, 5) == 0


def test_a_neighbour_agrees_if_it_is_complete_and_holds_the_same():
    repair = make_repair(B)
    assert not repair.agrees(B.id, LACKING)
    repair.compare(B.id, said(LACKING), LACKING)
    assert not repair.agrees(B.id, LACKING)
    repair.compare(B.id, said(LACKING, is_complete=True), LACKING)
    assert repair.agrees(B.id, LACKING)
    assert not repair.agrees(B.id, FULL)
    assert not repair.agrees(C.id, LACKING)


def test_nothing_is_pulled_from_a_peer_that_is_gone():
    repair = make_repair(B, goal=FULL.held())
    repair.disconnect(B.id)
    repair.pulled(B.id, FULL)
    assert pulls(repair) == []
    assert not repair.is_caught_up
