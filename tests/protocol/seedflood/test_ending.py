import pytest
from nodes import (
    agree,
    answer_pull,
    applied_steps,
    complete,
    events,
    hear,
    linked,
    measure_of,
    orders,
    publish,
    sent,
    started,
    tick,
    waiting_for,
)
from origins import A, B, C, D, replica

from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.messages import Equivocation, FrontierDigest
from seedflood.protocol.seedflood.outputs import CutOff, Rebuild, Remade
from seedflood.protocol.seedflood.phase import Phase
from seedflood.protocol.seedflood.statement import Stated, pack, stated
from seedflood.protocol.swarm.messages import Members

FULL = (A.held(1), B.held(1))
SAID, OTHER = (B.bundle(0, scalar=scalar) for scalar in (7, 8))
"""B contradicts itself."""


def take_out(node, bundle, now):
    """It is proven, and the journal has lost what was said."""
    node.ends.prove(Equivocation(SAID, OTHER))
    node.ends.follow(0.0)
    node.answer(CutOff(B.id, [bundle]), now)


def ours(node):
    """What the node states of itself."""
    return stated(node.membership.get(A.id))


def finishing(window="strict", now=0.0):
    """A node that closed the only window of its run and holds everything."""
    node = linked(B, steps=1, window=window, now=now)
    hear(node, B, B.updates(0), now)
    publish(node, now)
    assert node.phase is Phase.FINISHING
    return node


def test_a_finished_node_waits_for_its_neighbours():
    node = finishing()
    agree(node, B)
    assert not tick(node, 50.0).is_finished
    out = hear(node, B, complete(node, *FULL), 51.0)
    assert out.is_finished
    assert out.members[-1].last_step == 0
    assert ours(node).has_ended


@pytest.mark.parametrize("has_ended", [False, True])
def test_who_is_started_again_after_the_end_waits_for_those_that_had_left_before_it(has_ended):
    node = finishing("bounded")
    hear(node, B, complete(node, *FULL))
    assert agree(node, B).is_finished
    left = B.member(version=1, last_step=0, algorithm=pack(Stated(has_ended=has_ended)))
    journal = [A.bundle(0), B.bundle(0)]
    again = started(window="bounded", steps=1, journal=journal, members=[node.membership.get(A.id), left], now=100.0)
    assert (again.phase is Phase.FINISHED) is has_ended
    if not has_ended:
        assert waiting_for(again) == ["bob"]
        assert not agree(again, now=159.0).is_finished
        assert tick(again, 161.0).is_finished


def test_who_leaves_with_nothing_to_measure_any_more_has_not_ended():
    node = finishing()
    node.leave(1.0)
    (word,) = node.collect().members
    assert word.last_step == 0
    assert not ours(node).has_ended


def test_a_finished_node_waits_for_the_digest_of_its_neighbours():
    node = finishing()
    assert not hear(node, B, complete(node, *FULL)).is_finished
    assert agree(node, B).is_finished


def test_a_node_does_not_end_in_agreement_with_a_neighbour_whose_replica_differs():
    node = finishing()
    hear(node, B, complete(node, *FULL))
    agree(node)
    out = hear(node, B, replica(*FULL, digest="other"))
    assert not out.is_finished
    assert "replicas differ" in events(out)


def test_a_node_that_all_agree_with_does_not_end_before_its_replica_is_that_of_its_journal():
    node = finishing()
    hear(node, B, complete(node, *FULL))
    take_out(node, SAID, 1.0)
    assert not agree(node, B, now=1.0).is_finished
    assert len(orders(tick(node, 2.0), Rebuild)) == 1
    assert not agree(node, B, now=2.0).is_finished
    node.answer(Remade(True), 3.0)
    assert agree(node, B, now=3.0).is_finished


def test_a_node_that_waits_for_its_own_replica_names_nobody_else():
    node = finishing()
    agree(node)
    assert waiting_for(node) == ["bob"]
    take_out(node, SAID, 1.0)
    assert waiting_for(node) == ["its own replica, which is made again"]


def test_who_has_no_patience_left_waits_all_the_same_until_its_replica_is_that_of_its_journal():
    node = finishing("bounded")
    take_out(node, SAID, 57.0)
    assert len(orders(tick(node, 58.0), Rebuild)) == 1
    take_out(node, OTHER, 58.5)
    node.answer(Remade(True), 59.0)
    out = tick(node, 60.0)
    assert (len(orders(out, Rebuild)), out.is_finished) == (1, False)
    node.answer(Remade(True), 61.0)
    assert node.collect().is_finished


def test_who_contradicts_itself_without_end_keeps_nobody_from_ending():
    node = finishing("bounded")
    take_out(node, SAID, 59.0)
    assert len(orders(tick(node, 60.0), Rebuild)) == 1
    take_out(node, OTHER, 60.5)
    assert not node.collect().is_finished
    node.answer(Remade(True), 61.0)
    out = node.collect()
    assert out.is_finished
    assert "the run ends with a replica that is behind its journal" in events(out)


def test_a_doubt_that_comes_when_patience_ends_is_looked_into_first():
    node = finishing("bounded")
    agree(node)
    assert "replicas differ" in events(hear(node, B, replica(*FULL, digest="other"), 59.9))
    out = tick(node, 60.0)
    assert (len(orders(out, Rebuild)), out.is_finished) == (1, False)
    node.answer(Remade(False), 60.5)
    assert node.collect().is_finished
    assert not node.is_doubted


def test_a_doubt_that_making_the_replica_again_does_not_settle_keeps_nobody_from_ending():
    node = finishing("bounded")
    agree(node)
    hear(node, B, replica(*FULL, digest="other"), 59.9)
    tick(node, 60.0)
    node.answer(Remade(True), 60.5)
    assert node.collect().is_finished
    assert node.is_doubted


def test_every_neighbour_must_agree():
    node = linked(B, C, steps=1)
    hear(node, B, B.updates(0))
    hear(node, C, C.updates(0))
    publish(node)
    full = (*FULL, C.held(1))
    hear(node, B, complete(node, *full))
    hear(node, C, complete(node, *full))
    assert not agree(node, B).is_finished
    assert hear(node, C, replica(*full)).is_finished


RELAY = pack(Stated(is_relay=True))


@pytest.mark.parametrize(("beyond", "is_ended"), [([A], True), ([A, D], True), ([A, B], False)])
def test_of_a_relay_that_is_linked_with_no_other_host_no_digest_is_wanted(beyond, is_ended):
    """It would have to be somebody's whom it has heard. D is a relay, too."""
    node = linked(B, clients=2, steps=1)
    spoken = {"first_step": STEP_MAX, "last_step": None, "algorithm": RELAY}
    node.connected(C.id, C.hello(neighbours=beyond, **spoken), 0.0)
    node.collect()
    hear(node, C, Members((D.member(neighbours=[C], **spoken), B.member(version=1, neighbours=[A, C]))))
    hear(node, B, B.updates(0))
    publish(node)
    agree(node, B)
    hear(node, B, complete(node, *FULL), 1.0)
    assert node.phase is Phase.FINISHING
    hear(node, C, complete(node, *FULL), 2.0)
    assert (node.phase is Phase.FINISHED) is is_ended


def test_a_neighbour_that_is_complete_with_something_else_does_not_agree():
    node = finishing()
    agree(node, B)
    assert not hear(node, B, complete(node, A.held(1))).is_finished


def test_a_node_tells_its_neighbours_once_that_it_is_complete():
    node = linked(B, steps=1)
    hear(node, B, B.updates(0))
    assert sent(publish(node), B, FrontierDigest) == [complete(node, *FULL)]
    assert sent(agree(node), B, FrontierDigest) == []


def test_a_neighbour_that_is_away_is_waited_for_only_so_long():
    node = finishing()
    hear(node, B, Members((B.member(version=1, neighbours=[A]),)))
    node.disconnected(B.id, 1.0)
    assert not tick(node, 59.0).is_finished
    assert tick(node, 60.0).is_finished


def test_clients_that_never_joined_are_waited_for_only_so_long():
    node = linked(B, steps=1, clients=3, window="bounded")
    publish(node)
    hear(node, B, B.updates(0))
    tick(node, 60.0)  # patience for the start has ended: the only window closes
    assert node.phase is Phase.FINISHING
    agree(node, B)
    assert not hear(node, B, complete(node, *FULL), 61.0).is_finished
    assert tick(node, 120.0).is_finished


def test_a_node_finishes_once():
    node = finishing()
    assert tick(node, 60.0).is_finished
    assert not tick(node, 70.0).is_finished


@pytest.mark.parametrize(("window", "is_finished"), [("bounded", True), ("strict", False)])
def test_a_run_ends_though_one_is_silent_unless_windows_are_strict(window, is_finished):
    node = linked(B, steps=1, window=window)
    publish(node)
    tick(node, 1.0)
    assert tick(node, 62.0).is_finished is is_finished


def test_updates_that_come_after_the_last_window_are_applied_at_once():
    node = linked(B, steps=1, window="bounded")
    publish(node)
    tick(node, 0.5)
    assert node.phase is Phase.FINISHING
    assert applied_steps(hear(node, B, B.updates(0), 0.5)) == [((1, 0), [0])]


def test_updates_that_come_after_the_end_are_applied_too():
    node = linked(B, steps=2, window="bounded")
    for now in (0.0, 0.5):
        publish(node, now)
        tick(node, now + 0.5)
    assert tick(node, 61.0).is_finished
    assert applied_steps(hear(node, B, B.updates(1), 62.0)) == [((2, 1), [1])]


def test_who_joins_in_the_last_round_measures_nothing():
    node = started(steps=5, window="bounded")
    node.connected(B.id, B.hello([B.held(5)]), 0.0)
    node.collect()
    out = answer_pull(node, B, B.updates(*range(5)))
    assert measure_of(out) is None
    assert node.phase is Phase.FINISHING
    assert out.members[-1].last_step == -1
    assert not ours(node).has_ended
    hear(node, B, complete(node, B.held(5)))
    assert agree(node, B).is_finished
    assert ours(node).has_ended


def test_a_node_that_cannot_end_for_a_hole_says_which_steps_of_whom_and_who_may_have_them():
    node = linked(B, steps=2, window="bounded")
    hear(node, B, Members((B.member(1, 1, neighbours=(A, C)),)))
    hear(node, B, B.updates(1))
    publish(node)
    publish(node)
    assert node.phase is Phase.FINISHING
    told = [event for now in range(10, 120, 10) for event in tick(node, float(now)).events if event.name == "waiting"]
    assert told
    assert told[0].facts["missing"] == ["bob steps 0-0"]
    assert told[0].facts["may_be_held_by"] == [f"{C.id:016x}"]
