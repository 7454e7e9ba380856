import pytest
from hypothesis import given
from hypothesis import strategies as st
from origins import A, B, C, D

from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.donors import TURN_PERIODS, Donors
from seedflood.protocol.seedflood.messages import EPOCH_PART_BYTES, FrontierDigest

LACKING = Frontier([A.held(3)])
FULL = Frontier([A.held(5)])
MEMBERS = b"members"


def make_donors(*peers, goal=(), frontier=LACKING, sum_bytes=0, **wish):
    donors = Donors(sum_bytes)
    for peer in peers:
        donors.connect(peer.id, tuple(goal), frontier, **wish)
    return donors


def said(frontier, before=STEP_MAX, *, members=MEMBERS, is_complete=False):
    return FrontierDigest(frontier.digest(before), before, is_complete, members)


def compare(donors, peer, message, frontier=LACKING, *, is_still=True):
    """Takes a digest; whom does it make us pull from? is_still: nothing has come since our own last digest."""
    donors.settled_before(frontier if is_still else Frontier(), 0, 1)
    donors.compare(peer.id, message, frontier, MEMBERS)
    return donors.next_donor(frontier)


def test_what_a_hello_holds_and_we_lack_is_pulled_at_once():
    donors = make_donors(B, goal=FULL.held())
    assert not donors.reached
    assert donors.goal(B.id) == FULL.held()
    assert donors.next_donor(LACKING) == B.id
    assert donors.is_pulling(B.id)


def test_a_hello_without_news_means_caught_up():
    donors = make_donors(B, goal=LACKING.held())
    assert donors.reached == {B.id}
    assert donors.goal(B.id) == ()
    assert donors.next_donor(LACKING) is None


def test_one_who_joins_pulls_even_if_nothing_is_lacking():
    donors = make_donors(B, goal=LACKING.held(), is_wanted=True)
    assert donors.next_donor(LACKING) == B.id
    donors.pulled(B.id, LACKING)
    donors.retry()
    assert donors.next_donor(LACKING) is None


def test_a_finished_pull_that_reached_the_goal_means_caught_up():
    donors = make_donors(B, goal=FULL.held())
    donors.next_donor(LACKING)
    donors.pulled(B.id, FULL)
    assert donors.reached
    donors.retry()
    assert donors.next_donor(FULL) is None


def test_a_broken_pull_is_tried_again_at_the_next_comparison():
    donors = make_donors(B, goal=FULL.held())
    donors.next_donor(LACKING)
    donors.pulled(B.id, LACKING)
    assert not donors.reached
    assert donors.next_donor(LACKING) is None
    donors.retry()
    assert donors.next_donor(LACKING) == B.id


def test_to_have_pulled_means_that_a_pull_has_ended_and_brought_everything():
    donors = make_donors(B, goal=FULL.held())
    donors.next_donor(LACKING)
    donors.pulled(B.id, LACKING)
    assert not donors.has_pulled
    donors.retry()
    donors.next_donor(LACKING)
    donors.progressed(B.id, FULL)
    assert not donors.has_pulled
    donors.pulled(B.id, FULL)
    assert donors.has_pulled


class Counting(Frontier):
    """Counts how often it is asked."""

    looks = 0

    def holds(self, origin, first, last=None):
        self.looks += 1
        return super().holds(origin, first, last)


def test_of_a_goal_at_its_limits_what_is_held_is_looked_for_once_whatever_comes():
    holes = [(2 * k, 2 * k) for k in range(1, 1001)]
    frontier = Counting([Held(A.id, 1, tuple(holes))])
    donors = make_donors(B, goal=[Held(A.id, 1, (*holes, (9999, 9999)))], frontier=frontier)
    for _ in range(1000):
        donors.progressed(B.id, frontier)
    assert frontier.looks <= 3 * len(holes)
    frontier.add(A.id, 9999, 9999)
    donors.progressed(B.id, frontier)
    assert donors.reached == {B.id}


# One donor at a time


def test_one_donor_is_asked_at_a_time():
    donors = make_donors(B, C, goal=FULL.held())
    assert donors.next_donor(LACKING) == B.id
    assert donors.donor == B.id
    assert donors.next_donor(LACKING) is None
    assert compare(donors, C, said(FULL)) is None


def test_the_next_donor_is_asked_as_soon_as_a_pull_broke_off():
    donors = make_donors(B, C, goal=FULL.held())
    donors.next_donor(LACKING)
    donors.pulled(B.id, LACKING)
    assert donors.next_donor(LACKING) == C.id


def test_the_next_donor_is_asked_as_soon_as_the_link_is_down():
    donors = make_donors(B, C, goal=FULL.held())
    donors.next_donor(LACKING)
    donors.disconnect(B.id)
    assert donors.next_donor(LACKING) == C.id
    donors.pulled(C.id, FULL)
    assert donors.reached == {C.id}


def test_what_one_donor_has_brought_is_not_asked_of_the_next():
    donors = make_donors(B, C, goal=FULL.held())
    donors.next_donor(LACKING)
    donors.progressed(B.id, FULL)
    donors.pulled(B.id, FULL)
    assert donors.next_donor(FULL) is None
    assert donors.reached == {B.id, C.id}


def test_a_donor_that_brings_nothing_for_a_whole_period_gives_way():
    donors = make_donors(B, C, goal=FULL.held())
    donors.next_donor(LACKING)
    donors.progressed(B.id, LACKING)
    donors.retry()
    assert donors.next_donor(LACKING) is None
    donors.progressed(C.id, LACKING)
    donors.retry()
    assert donors.donor is None
    assert donors.next_donor(LACKING) == C.id
    assert donors.is_pulling(B.id)


def test_a_donor_keeps_its_turn_while_parts_of_a_sum_come_however_long_it_takes():
    """A sum of 60 MB takes longer than a period, and nothing of it is used before the last part."""
    donors = make_donors(B, C, goal=FULL.held(), sum_bytes=60 << 20)
    donors.next_donor(LACKING)
    for _ in range(9):
        donors.part_received(B.id)
        donors.retry()
        assert donors.next_donor(LACKING) is None
    donors.retry()
    assert donors.next_donor(LACKING) == C.id


def test_a_donor_that_sends_more_parts_than_a_sum_has_gives_way():
    donors = make_donors(B, C, goal=FULL.held(), sum_bytes=5 * EPOCH_PART_BYTES)
    donors.next_donor(LACKING)
    for _ in range(6):
        donors.part_received(B.id)
        donors.retry()
        assert donors.next_donor(LACKING) is None
    donors.part_received(B.id)
    donors.retry()
    assert donors.next_donor(LACKING) == C.id


def test_the_parts_of_a_sum_that_was_of_use_are_forgotten():
    donors = make_donors(B, C, goal=FULL.held())
    donors.next_donor(LACKING)
    for _ in range(20):
        donors.part_received(B.id)
        donors.retry()
        assert donors.next_donor(LACKING) is None
        donors.progressed(B.id, LACKING)


def drip(donors, periods):
    """All who are asked bring something in each of these periods, and never end. Returns who was asked, and when."""
    asked = {}
    for period in range(periods):
        if (peer := donors.next_donor(LACKING)) is not None:
            asked[peer] = period
        for one in asked:
            donors.progressed(one, LACKING)
        donors.retry()
    return asked


def test_a_donor_that_drips_gives_way_and_all_who_drip_get_twice_as_long_each_time():
    """What is live counts as an answer, so a liar need not even answer."""
    asked = drip(make_donors(B, C, D, goal=FULL.held()), 4 * TURN_PERIODS)
    assert asked == {B.id: 0, C.id: TURN_PERIODS, D.id: 3 * TURN_PERIODS}


def test_a_donor_keeps_its_turn_for_ever_while_nobody_else_has_anything():
    donors = make_donors(B, goal=FULL.held())
    donors.connect(C.id, LACKING.held(), LACKING)
    donors.has_pulled = True  # so that nobody is asked for its standing
    assert drip(donors, 4 * TURN_PERIODS) == {B.id: 0}
    assert donors.donor == B.id


def test_a_donor_that_gave_way_is_not_asked_again_before_its_pull_has_ended():
    donors = make_donors(B, goal=FULL.held())
    donors.next_donor(LACKING)
    for _ in range(3):
        donors.retry()
        assert donors.next_donor(LACKING) is None
    donors.pulled(B.id, LACKING)
    donors.retry()
    assert donors.next_donor(LACKING) == B.id


def test_donors_take_turns():
    donors = make_donors(B, C, D, goal=FULL.held())
    asked = []
    for _ in range(6):
        asked.append(donors.next_donor(LACKING))
        donors.pulled(asked[-1], LACKING)
        donors.retry()
    assert asked == [B.id, C.id, D.id] * 2


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["connect", "compare", "pulled", "gone", "retry", "news"]), st.sampled_from([B, C, D])
        )
    )
)
def test_whatever_happens_at_most_one_donor_is_active_and_a_peer_answers_one_pull(happenings):
    donors = make_donors(B, C, D, goal=FULL.held())
    under_way = set()
    for name, peer in happenings:
        match name:
            case "connect":
                donors.connect(peer.id, FULL.held(), LACKING)
                under_way.discard(peer.id)
            case "compare" if donors.goal(peer.id):
                donors.compare(peer.id, said(FULL), LACKING, MEMBERS)
            case "pulled":
                donors.pulled(peer.id, LACKING)
                under_way.discard(peer.id)
            case "gone":
                donors.disconnect(peer.id)
                under_way.discard(peer.id)
            case "retry":
                donors.retry()
            case "news" if donors.goal(peer.id):
                donors.progressed(peer.id, LACKING)
        before = donors.donor
        asked = donors.next_donor(LACKING)
        assert asked is None or before is None
        assert asked not in under_way
        under_way |= {asked} - {None}
        assert {peer.id for peer in (B, C, D) if donors.is_pulling(peer.id)} == under_way


# Goals


def test_a_goal_may_be_reached_by_live_updates():
    donors = make_donors(B, goal=FULL.held())
    donors.progressed(B.id, LACKING)
    assert not donors.reached
    donors.progressed(B.id, FULL)
    assert donors.reached


def test_every_goal_may_be_reached_by_what_others_say():
    donors = make_donors(B, goal=LACKING.held())
    donors.connect(C.id, FULL.held(), LACKING)
    donors.progressed(B.id, FULL)
    assert donors.reached == {B.id, C.id}


def test_nothing_is_pulled_from_a_peer_that_is_gone():
    donors = make_donors(B, goal=FULL.held())
    donors.disconnect(B.id)
    donors.pulled(B.id, FULL)
    assert donors.next_donor(LACKING) is None
    assert donors.goal(B.id) == ()
    assert not donors.reached


# Comparing


def test_unequal_digests_are_pulled_and_equal_ones_are_not():
    donors = make_donors(B)
    assert compare(donors, B, said(LACKING)) is None
    assert compare(donors, B, said(FULL)) == B.id


def test_who_has_just_heard_something_is_not_still_and_does_not_compare_with_one_who_is():
    """A round begins: its first bundle is here, and still on its way to the neighbour that tells what it holds."""
    donors = make_donors(B)
    assert compare(donors, B, said(LACKING), FULL, is_still=False) is None
    assert compare(donors, B, said(LACKING, before=5), FULL, is_still=False) == B.id
    donors.pulled(B.id, FULL)
    assert compare(donors, B, said(LACKING), FULL) == B.id


def test_a_digest_of_settled_steps_does_not_see_what_is_on_its_way():
    donors = make_donors(B)
    assert compare(donors, B, said(FULL, before=3)) is None
    assert compare(donors, B, said(FULL, before=4)) == B.id


def test_statements_that_differ_twice_in_a_row_are_pulled():
    donors = make_donors(B)
    assert compare(donors, B, said(LACKING, members=b"other")) is None
    assert compare(donors, B, said(LACKING)) is None
    assert compare(donors, B, said(LACKING, members=b"other")) is None
    assert compare(donors, B, said(LACKING, members=b"another")) == B.id


def test_a_moving_run_is_compared_below_its_last_rounds_and_a_still_one_whole():
    donors = Donors()
    assert donors.settled_before(LACKING, 10, 1) == 8
    assert donors.settled_before(FULL, 11, 1) == 9
    assert donors.settled_before(FULL, 11, 1) == STEP_MAX
    assert donors.settled_before(LACKING, 5, 5) == 0


@pytest.mark.parametrize("is_complete", [False, True])
def test_a_neighbour_agrees_if_it_is_complete_and_holds_the_same(is_complete):
    donors = make_donors(B)
    assert not donors.agrees(B.id, LACKING)
    compare(donors, B, said(LACKING, is_complete=is_complete))
    assert donors.agrees(B.id, LACKING) is is_complete
    assert not donors.agrees(B.id, FULL)
    assert not donors.agrees(C.id, LACKING)
