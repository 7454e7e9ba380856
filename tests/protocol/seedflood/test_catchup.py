import pytest
from origins import A, B, C, D

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.catchup import SETTLE_SECONDS, CatchUp, CatchUpState, describe_progress
from seedflood.protocol.swarm.rules import Patience

PATIENCE = Patience(start_seconds=60.0, redial_seconds=30.0)
QUIET_SECONDS = SETTLE_SECONDS + PATIENCE.redial_seconds
EVERYONE = {A.id, B.id, C.id, D.id}


def make_catchup(newest=None, spoken=None, *, is_journal_damaged=False, is_key_fresh=True, linked_at=0.0):
    catchup = CatchUp(PATIENCE)
    if spoken is None and newest is not None and newest.has_spoken:
        spoken = newest
    catchup.remember(newest, spoken, 0, is_journal_damaged=is_journal_damaged, is_key_fresh=is_key_fresh)
    catchup.link(linked_at)
    return catchup


def may_speak(catchup, *reached, now, present=EVERYONE, has_pulled=True, **known):
    known = CatchUpState({peer.id for peer in reached}, present, has_pulled, **known)
    catchup.note(known, now)
    return catchup.may_speak(known, now)


def test_nobody_speaks_before_a_neighbour_is_reached():
    assert not may_speak(make_catchup(), now=1e9)
    assert may_speak(make_catchup(), B, now=0.0)


def test_nobody_speaks_before_a_pull_has_ended_unless_patience_has():
    catchup = make_catchup()
    assert not may_speak(catchup, B, now=0.0, has_pulled=False)
    assert not may_speak(catchup, B, now=PATIENCE.start_seconds - 0.1, has_pulled=False)
    assert may_speak(catchup, B, now=PATIENCE.start_seconds, has_pulled=False)


def test_a_whole_journal_knows_everything_it_ever_said():
    past = A.member(neighbours=[B, C])
    assert may_speak(make_catchup(past), B, now=0.0)


@pytest.mark.parametrize("is_older", [True, False])
def test_what_the_journal_knew_of_our_past_makes_nobody_amnesic(is_older):
    catchup = make_catchup(A.member(incarnation=3, version=5))
    catchup.learn_of_past(A.member(incarnation=3, version=4 if is_older else 5))
    assert not catchup.is_amnesic


@pytest.mark.parametrize("age", [(3, 6), (4, 0)])
def test_a_past_that_the_journal_does_not_know_means_that_it_was_lost(age):
    catchup = make_catchup(A.member(incarnation=3, version=5))
    catchup.learn_of_past(A.member(*age))
    assert catchup.is_amnesic


def test_a_key_without_a_journal_is_amnesic_unless_it_was_never_used():
    assert not make_catchup(is_key_fresh=True).is_amnesic
    assert make_catchup(is_key_fresh=False).is_amnesic
    assert not make_catchup(A.member(), is_key_fresh=False).is_amnesic


def test_one_who_never_came_to_speak_is_as_amnesic_in_its_next_life():
    silent = A.member(first_step=STEP_MAX)
    assert make_catchup(silent, is_key_fresh=False).is_amnesic
    assert not make_catchup(silent, is_key_fresh=True).is_amnesic


def amnesic(**settings):
    """One that lost its journal, and learns that it was linked with B and C when it spoke last."""
    catchup = make_catchup(is_key_fresh=False, **settings)
    catchup.learn_of_past(A.member(incarnation=2, neighbours=[B, C], published_before=4))
    return catchup


def test_an_amnesic_node_reaches_all_its_past_neighbours_however_long_they_are_away():
    catchup = amnesic()
    assert not may_speak(catchup, B, now=0.0)
    assert not may_speak(catchup, B, now=1e6)
    assert catchup.unreached({B.id}, EVERYONE) == {C.id}
    assert not may_speak(catchup, B, C, now=1e6)
    assert may_speak(catchup, B, C, now=1e6 + QUIET_SECONDS)


def test_an_amnesic_node_that_knows_no_neighbours_waits_until_they_have_dialled_it():
    catchup = make_catchup(is_key_fresh=False)
    assert not may_speak(catchup, B, now=0.0)
    assert not may_speak(catchup, B, now=QUIET_SECONDS - 0.1)
    assert may_speak(catchup, B, now=QUIET_SECONDS)


@pytest.mark.parametrize("progress", ["neighbour", "statement", "own steps"])
def test_whatever_is_learned_of_the_past_starts_the_wait_anew(progress):
    catchup = amnesic()
    reached, held = (B, C), 0
    may_speak(catchup, *reached, now=0.0)
    if progress == "neighbour":
        reached = (B, C, D)
    elif progress == "statement":
        catchup.learn_of_past(A.member(incarnation=3, neighbours=[B]))
    else:
        held = 7
    assert not may_speak(catchup, *reached, now=QUIET_SECONDS, held_before=held)
    assert may_speak(catchup, *reached, now=2 * QUIET_SECONDS, held_before=held)


def test_two_rounds_of_repair_are_enough_when_everyone_was_met():
    catchup = amnesic()
    assert not may_speak(catchup, B, C, now=0.0, is_everyone_met=True)
    assert not may_speak(catchup, B, C, now=SETTLE_SECONDS - 0.1, is_everyone_met=True)
    assert may_speak(catchup, B, C, now=SETTLE_SECONDS, is_everyone_met=True)


def test_a_past_neighbour_that_has_left_need_not_be_reached():
    catchup = amnesic()
    present = EVERYONE - {C.id}
    assert not may_speak(catchup, B, now=0.0, present=present)
    assert may_speak(catchup, B, now=QUIET_SECONDS, present=present)


def test_only_who_was_there_when_it_spoke_last_has_to_be_reached():
    """What was said before went to these, too; and whoever met it when it was silent heard nothing."""
    catchup = amnesic()
    catchup.learn_of_past(A.member(incarnation=3, neighbours=[D]))
    assert catchup.unreached(set(), EVERYONE) == {D.id}
    catchup.learn_of_past(A.member(incarnation=4, neighbours=[B], first_step=STEP_MAX))
    assert catchup.unreached(set(), EVERYONE) == {D.id}


def test_what_was_said_is_held_before_it_speaks_or_patience_ends():
    catchup = amnesic()
    assert catchup.published_before == 4
    assert not may_speak(catchup, B, C, now=0.0, is_whole=False, is_everyone_met=True)
    assert not may_speak(catchup, B, C, now=PATIENCE.start_seconds - 0.1, is_whole=False, is_everyone_met=True)
    assert may_speak(catchup, B, C, now=PATIENCE.start_seconds, is_whole=False, is_everyone_met=True)


def test_a_damaged_journal_still_knows_who_was_there_when_it_spoke_last():
    catchup = make_catchup(A.member(neighbours=[B, C]), is_journal_damaged=True)
    assert not may_speak(catchup, B, now=0.0)
    assert catchup.unreached({B.id}, EVERYONE) == {C.id}
    assert not may_speak(catchup, B, C, now=1.0)
    assert may_speak(catchup, B, C, now=1.0 + SETTLE_SECONDS)


def test_even_an_impatient_node_speaks_to_no_one_it_has_not_reached():
    assert not may_speak(amnesic(), now=1e9)


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
