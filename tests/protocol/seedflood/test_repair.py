import pytest
from hypothesis import given
from hypothesis import strategies as st
from origins import A, B, C, D

from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.messages import FrontierDigest
from seedflood.protocol.seedflood.repair import Repair

LACKING = Frontier([A.held(3)])
FULL = Frontier([A.held(5)])
MEMBERS = b"members"


def make_repair(*peers, goal=(), frontier=LACKING, **wish):
    repair = Repair()
    for peer in peers:
        repair.connect(peer.id, tuple(goal), frontier, **wish)
    return repair


def said(frontier, before=STEP_MAX, *, members=MEMBERS, is_complete=False):
    return FrontierDigest(frontier.digest(before), before, is_complete, members)


def compare(repair, peer, message, frontier=LACKING):
    """Takes a digest; whom does it make us pull from?"""
    repair.compare(peer.id, message, frontier, MEMBERS)
    return repair.collect(frontier)


def test_what_a_hello_holds_and_we_lack_is_pulled_at_once():
    repair = make_repair(B, goal=FULL.held())
    assert not repair.reached
    assert repair.goal(B.id) == FULL.held()
    assert repair.collect(LACKING) == B.id
    assert repair.is_pulling(B.id)


def test_a_hello_without_news_means_caught_up():
    repair = make_repair(B, goal=LACKING.held())
    assert repair.reached == {B.id}
    assert repair.goal(B.id) == ()
    assert repair.collect(LACKING) is None


def test_one_who_joins_pulls_even_if_nothing_is_lacking():
    repair = make_repair(B, goal=LACKING.held(), is_wanted=True)
    assert repair.collect(LACKING) == B.id
    repair.pulled(B.id, LACKING)
    repair.retry()
    assert repair.collect(LACKING) is None


def test_a_finished_pull_that_reached_the_goal_means_caught_up():
    repair = make_repair(B, goal=FULL.held())
    repair.collect(LACKING)
    repair.pulled(B.id, FULL)
    assert repair.reached
    repair.retry()
    assert repair.collect(FULL) is None


def test_a_broken_pull_is_tried_again_at_the_next_comparison():
    repair = make_repair(B, goal=FULL.held())
    repair.collect(LACKING)
    repair.pulled(B.id, LACKING)
    assert not repair.reached
    assert repair.collect(LACKING) is None
    repair.retry()
    assert repair.collect(LACKING) == B.id


def test_to_have_pulled_means_that_a_pull_has_ended_and_brought_everything():
    repair = make_repair(B, goal=FULL.held())
    repair.collect(LACKING)
    repair.pulled(B.id, LACKING)
    assert not repair.has_pulled
    repair.retry()
    repair.collect(LACKING)
    repair.progressed(B.id, FULL)
    assert not repair.has_pulled
    repair.pulled(B.id, FULL)
    assert repair.has_pulled


class Counting(Frontier):
    """Counts how often it is asked."""

    looks = 0

    def holds(self, origin, first, last=None):
        self.looks += 1
        return super().holds(origin, first, last)


def test_of_a_goal_at_its_limits_what_is_held_is_looked_for_once_whatever_comes():
    holes = [(2 * k, 2 * k) for k in range(1, 1001)]
    frontier = Counting([Held(A.id, 1, tuple(holes))])
    repair = make_repair(B, goal=[Held(A.id, 1, (*holes, (9999, 9999)))], frontier=frontier)
    for _ in range(1000):
        repair.progressed(B.id, frontier)
    assert frontier.looks <= 3 * len(holes)
    frontier.add(A.id, 9999, 9999)
    repair.progressed(B.id, frontier)
    assert repair.reached == {B.id}


# One donor at a time


def test_one_donor_is_asked_at_a_time():
    repair = make_repair(B, C, goal=FULL.held())
    assert repair.collect(LACKING) == B.id
    assert repair.donor == B.id
    assert repair.collect(LACKING) is None
    assert compare(repair, C, said(FULL)) is None


def test_the_next_donor_is_asked_as_soon_as_a_pull_broke_off():
    repair = make_repair(B, C, goal=FULL.held())
    repair.collect(LACKING)
    repair.pulled(B.id, LACKING)
    assert repair.collect(LACKING) == C.id


def test_the_next_donor_is_asked_as_soon_as_the_link_is_down():
    repair = make_repair(B, C, goal=FULL.held())
    repair.collect(LACKING)
    repair.disconnect(B.id)
    assert repair.collect(LACKING) == C.id
    repair.pulled(C.id, FULL)
    assert repair.reached == {C.id}


def test_what_one_donor_has_brought_is_not_asked_of_the_next():
    repair = make_repair(B, C, goal=FULL.held())
    repair.collect(LACKING)
    repair.progressed(B.id, FULL)
    repair.pulled(B.id, FULL)
    assert repair.collect(FULL) is None
    assert repair.reached == {B.id, C.id}


def test_a_donor_that_brings_nothing_for_a_whole_period_gives_way():
    repair = make_repair(B, C, goal=FULL.held())
    repair.collect(LACKING)
    repair.progressed(B.id, LACKING)
    repair.retry()
    assert repair.collect(LACKING) is None
    repair.progressed(C.id, LACKING)
    repair.retry()
    assert repair.donor is None
    assert repair.collect(LACKING) == C.id
    assert repair.is_pulling(B.id)


def test_a_donor_keeps_its_turn_while_parts_of_a_sum_come_however_long_it_takes():
    """A sum of 60 MB takes longer than a period, and nothing of it is used before the last part."""
    repair = make_repair(B, C, goal=FULL.held())
    repair.collect(LACKING)
    for _ in range(9):
        repair.hear(B.id)
        repair.retry()
        assert repair.collect(LACKING) is None
    repair.retry()
    assert repair.collect(LACKING) == C.id


def test_a_donor_that_gave_way_is_not_asked_again_before_its_pull_has_ended():
    repair = make_repair(B, goal=FULL.held())
    repair.collect(LACKING)
    for _ in range(3):
        repair.retry()
        assert repair.collect(LACKING) is None
    repair.pulled(B.id, LACKING)
    repair.retry()
    assert repair.collect(LACKING) == B.id


def test_donors_take_turns():
    repair = make_repair(B, C, D, goal=FULL.held())
    asked = []
    for _ in range(6):
        asked.append(repair.collect(LACKING))
        repair.pulled(asked[-1], LACKING)
        repair.retry()
    assert asked == [B.id, C.id, D.id] * 2


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["connect", "compare", "pulled", "gone", "retry", "news"]), st.sampled_from([B, C, D])
        )
    )
)
def test_whatever_happens_at_most_one_donor_is_active_and_a_peer_answers_one_pull(happenings):
    repair = make_repair(B, C, D, goal=FULL.held())
    under_way = set()
    for name, peer in happenings:
        match name:
            case "connect":
                repair.connect(peer.id, FULL.held(), LACKING)
                under_way.discard(peer.id)
            case "compare" if repair.goal(peer.id):
                repair.compare(peer.id, said(FULL), LACKING, MEMBERS)
            case "pulled":
                repair.pulled(peer.id, LACKING)
                under_way.discard(peer.id)
            case "gone":
                repair.disconnect(peer.id)
                under_way.discard(peer.id)
            case "retry":
                repair.retry()
            case "news" if repair.goal(peer.id):
                repair.progressed(peer.id, LACKING)
        before = repair.donor
        asked = repair.collect(LACKING)
        assert asked is None or before is None
        assert asked not in under_way
        under_way |= {asked} - {None}
        assert {peer.id for peer in (B, C, D) if repair.is_pulling(peer.id)} == under_way


# Goals


def test_a_goal_may_be_reached_by_live_updates():
    repair = make_repair(B, goal=FULL.held())
    repair.progressed(B.id, LACKING)
    assert not repair.reached
    repair.progressed(B.id, FULL)
    assert repair.reached


def test_every_goal_may_be_reached_by_what_others_say():
    repair = make_repair(B, goal=LACKING.held())
    repair.connect(C.id, FULL.held(), LACKING)
    repair.progressed(B.id, FULL)
    assert repair.reached == {B.id, C.id}


def test_nothing_is_pulled_from_a_peer_that_is_gone():
    repair = make_repair(B, goal=FULL.held())
    repair.disconnect(B.id)
    repair.pulled(B.id, FULL)
    assert repair.collect(LACKING) is None
    assert repair.goal(B.id) == ()
    assert not repair.reached


# Comparing


def test_unequal_digests_are_pulled_and_equal_ones_are_not():
    repair = make_repair(B)
    assert compare(repair, B, said(LACKING)) is None
    assert compare(repair, B, said(FULL)) == B.id


def test_a_digest_of_settled_steps_does_not_see_what_is_on_its_way():
    repair = make_repair(B)
    assert compare(repair, B, said(FULL, before=3)) is None
    assert compare(repair, B, said(FULL, before=4)) == B.id


def test_statements_that_differ_twice_in_a_row_are_pulled():
    repair = make_repair(B)
    assert compare(repair, B, said(LACKING, members=b"other")) is None
    assert compare(repair, B, said(LACKING)) is None
    assert compare(repair, B, said(LACKING, members=b"other")) is None
    assert compare(repair, B, said(LACKING, members=b"another")) == B.id


def test_a_moving_run_is_compared_below_its_last_rounds_and_a_still_one_whole():
    repair = Repair()
    assert repair.settled_before(LACKING, 10, 1) == 8
    assert repair.settled_before(FULL, 11, 1) == 9
    assert repair.settled_before(FULL, 11, 1) == STEP_MAX
    assert repair.settled_before(LACKING, 5, 5) == 0


@pytest.mark.parametrize("is_complete", [False, True])
def test_a_neighbour_agrees_if_it_is_complete_and_holds_the_same(is_complete):
    repair = make_repair(B)
    assert not repair.agrees(B.id, LACKING)
    compare(repair, B, said(LACKING, is_complete=is_complete))
    assert repair.agrees(B.id, LACKING) is is_complete
    assert not repair.agrees(B.id, FULL)
    assert not repair.agrees(C.id, LACKING)
