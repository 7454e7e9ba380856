import pytest
from origins import A, B, C, D

from seedflood.protocol.catchup import SETTLE_SECONDS, CatchUp, describe_progress
from seedflood.protocol.frontier import Frontier
from seedflood.protocol.messages import STEP_MAX

PATIENCE_SECONDS = 60.0
EVERYONE = {A.id, B.id, C.id, D.id}


def make_catchup(past=None, *, is_journal_damaged=False, linked_at=0.0):
    catchup = CatchUp(PATIENCE_SECONDS)
    catchup.remember(past, is_journal_damaged=is_journal_damaged)
    catchup.link(linked_at)
    return catchup


def may_speak(catchup, *reached, now, present=EVERYONE, has_pulled=True):
    return catchup.may_speak({peer.id for peer in reached}, present, now, has_pulled=has_pulled)


def test_nobody_speaks_before_a_neighbour_is_reached():
    assert not may_speak(make_catchup(), now=1e9)
    assert may_speak(make_catchup(), B, now=0.0)


def test_nobody_speaks_before_a_pull_has_ended_unless_patience_has():
    assert not may_speak(make_catchup(), B, now=PATIENCE_SECONDS - 0.1, has_pulled=False)
    assert may_speak(make_catchup(), B, now=PATIENCE_SECONDS, has_pulled=False)


def test_a_whole_journal_knows_everything_it_ever_said():
    past = A.member(neighbours=[B, C])
    assert may_speak(make_catchup(past), B, now=0.0)


@pytest.mark.parametrize("is_older", [True, False])
def test_what_the_journal_knew_of_our_past_makes_nobody_forgetful(is_older):
    catchup = make_catchup(A.member(incarnation=3, version=5))
    catchup.hear_of_past(A.member(incarnation=3, version=4 if is_older else 5))
    assert not catchup.is_forgetful


@pytest.mark.parametrize("age", [(3, 6), (4, 0)])
def test_a_past_that_the_journal_does_not_know_means_that_it_was_lost(age):
    catchup = make_catchup(A.member(incarnation=3, version=5))
    catchup.hear_of_past(A.member(*age))
    assert catchup.is_forgetful


def forgetful(**settings):
    """One that lost its journal, and learns that it was linked with B and C."""
    catchup = make_catchup(**settings)
    catchup.hear_of_past(A.member(incarnation=2, neighbours=[B, C]))
    return catchup


def test_a_forgetful_node_reaches_all_its_past_neighbours_and_waits_for_what_is_on_its_way():
    catchup = forgetful()
    assert not may_speak(catchup, B, now=0.0)
    assert not may_speak(catchup, B, now=SETTLE_SECONDS)
    assert catchup.unreached({B.id}, EVERYONE) == {C.id}
    assert not may_speak(catchup, B, C, now=10.0)
    assert not may_speak(catchup, B, C, now=10.0 + SETTLE_SECONDS - 0.1)
    assert may_speak(catchup, B, C, now=10.0 + SETTLE_SECONDS)


def test_every_neighbour_that_is_reached_starts_the_wait_anew():
    catchup = forgetful()
    may_speak(catchup, B, C, now=0.0)
    assert not may_speak(catchup, B, C, D, now=SETTLE_SECONDS)
    assert may_speak(catchup, B, C, D, now=2 * SETTLE_SECONDS)


def test_a_past_neighbour_that_has_left_need_not_be_reached():
    catchup = forgetful()
    present = EVERYONE - {C.id}
    assert not may_speak(catchup, B, now=0.0, present=present)
    assert may_speak(catchup, B, now=SETTLE_SECONDS, present=present)


def test_all_neighbours_of_all_forgotten_lives_are_reached():
    catchup = forgetful()
    catchup.hear_of_past(A.member(incarnation=3, neighbours=[D]))
    assert catchup.unreached(set(), EVERYONE) == {B.id, C.id, D.id}


def test_a_damaged_journal_makes_forgetful_of_the_neighbours_that_it_still_knows():
    catchup = make_catchup(A.member(neighbours=[B, C]), is_journal_damaged=True)
    assert not may_speak(catchup, B, now=0.0)
    assert not may_speak(catchup, B, now=PATIENCE_SECONDS - 0.1)
    assert catchup.unreached({B.id}, EVERYONE) == {C.id}


def test_patience_for_past_neighbours_ends_counted_from_the_first_link():
    catchup = forgetful(linked_at=100.0)
    catchup.link(150.0)
    assert catchup.linked_at == 100.0
    assert not may_speak(catchup, B, now=100.0 + PATIENCE_SECONDS - 0.1)
    assert may_speak(catchup, B, now=100.0 + PATIENCE_SECONDS)


def test_even_an_impatient_node_speaks_to_no_one_it_has_not_reached():
    assert not may_speak(forgetful(), now=1e9)


def test_who_remembers_everything_has_nobody_to_reach():
    assert make_catchup(A.member(neighbours=[B])).unreached(set(), EVERYONE) == set()


@pytest.mark.parametrize(
    ("frontier", "goal", "progress"),
    [
        ((), (), (0, 0, 100)),
        ((), (B.held(10),), (0, 10, 0)),
        ((B.held(4), C.held(9)), (B.held(10), C.held(10)), (13, 20, 65)),
        ((B.held(12),), (B.held(10),), (10, 10, 100)),
        ((B.held(5),), (B.held(2, (4, 7)),), (3, 6, 50)),
    ],
)
def test_progress_is_how_much_of_the_goal_is_held(frontier, goal, progress):
    said = describe_progress(Frontier(frontier), goal)
    assert (said["held"], said["wanted"], said["percent"]) == progress


def test_one_who_never_came_to_speak_is_as_forgetful_in_its_next_life():
    catchup = make_catchup(A.member(first_step=STEP_MAX, neighbours=(B, C)))
    assert catchup.is_forgetful
    assert catchup.owed == {B.id, C.id}
    may_speak(catchup, B, now=0.0)
    assert not may_speak(catchup, B, now=SETTLE_SECONDS)


def test_once_it_has_spoken_its_statement_names_only_those_it_is_linked_with():
    catchup = make_catchup(A.member(first_step=STEP_MAX, neighbours=(B, C)))
    catchup.is_over = True
    assert catchup.owed == set()
