"""Which round of another host can be measured again, and what has to change in the replica for that."""

import pytest
from nodes import hear, linked, publish
from origins import A, B, C

from seams import Disk
from seedflood.host.seedflood.retracing import DIFFERENCE_MAX, LAST_ROUNDS, choose_past_round
from seedflood.protocol.frontier import Frontier
from seedflood.protocol.seedflood.applied import pack_applied
from seedflood.protocol.seedflood.messages import Updates
from seedflood.protocol.seedflood.outputs import Measure
from seedflood.protocol.swarm.messages import Members

PERIOD = 10


class Drawn:
    """Draws this."""

    def __init__(self, number):
        self._number = number

    def randint(self, low, high):
        assert (low, high) == (1, LAST_ROUNDS)
        return self._number


def said_by_b(step, *applied, **more):
    """A bundle of B that was measured with this applied."""
    return B.bundle(step, applied=pack_applied(Frontier(applied), step), **more)


@pytest.fixture
def disk():
    return Disk([])


@pytest.fixture
def node():
    node = linked(B, C, window="none", is_auditable=True, refresh_period=PERIOD, steps=10_000)
    hear(node, B, Members((B.member(version=5, first_step=0), C.member(version=5, first_step=0))))
    return node


def go_on(node, disk, rounds):
    for _ in range(rounds):
        disk.kept += publish(node).bundles


def heard(node, disk, *bundles):
    disk.kept += bundles
    assert list(hear(node, B, Updates(bundles)).bundles) == list(bundles)


def choose(node, disk, back=1):
    return choose_past_round(node, disk, B.id, Measure(node.step, 1), Drawn(back))


def steps(updates):
    return [(update.origin, update.step) for update in updates]


def test_what_was_not_applied_there_is_taken_off_and_what_is_not_applied_here_is_put_on(node, disk):
    go_on(node, disk, 3)
    first, second = said_by_b(0), said_by_b(1, A.held(2), B.held(1), C.held(0, (1, 1)))
    heard(node, disk, first)
    heard(node, disk, second, C.bundle(0, applied=b"some"), C.bundle(1, applied=b"some"))
    bundle, (theirs, ours) = choose(node, disk)  # what came waits here until our round is told
    assert bundle == second
    assert set(steps(theirs)) == {(B.id, 0), (C.id, 1)}
    assert steps(ours) == [(A.id, 2)]
    go_on(node, disk, 1)
    bundle, (theirs, ours) = choose(node, disk)
    assert bundle == second
    assert steps(theirs) == []
    assert set(steps(ours)) == {(A.id, 2), (A.id, 3), (B.id, 1), (C.id, 0)}


def test_one_of_the_last_rounds_of_this_epoch_is_taken(node, disk):
    go_on(node, disk, 3)
    heard(node, disk, *(said_by_b(step, A.held(1), B.held(step)) for step in range(6)))
    chosen = {back: choose(node, disk, back) for back in range(1, LAST_ROUNDS + 1)}
    assert {back: None if one is None else one.bundle.step for back, one in chosen.items()} == {1: 5, 2: 4, 3: 3, 4: 2}


def test_a_round_of_another_epoch_is_not_taken(node, disk):
    go_on(node, disk, 3)
    heard(node, disk, B.bundle(PERIOD, skipped=PERIOD, applied=pack_applied(Frontier([A.held(3)]), PERIOD)))
    assert choose(node, disk) is None
    go_on(node, disk, 2)
    assert node.step > PERIOD
    assert choose(node, disk) is None  # when it was measured, the epoch before was not as it is here


def test_what_is_not_on_the_disk_cannot_be_put_on_or_taken_off(node, disk):
    go_on(node, disk, 3)
    heard(node, disk, said_by_b(0), said_by_b(1, A.held(1), B.held(1)))
    go_on(node, disk, 1)
    assert choose(node, disk) is not None
    disk.kept = [bundle for bundle in disk.kept if (bundle.origin, bundle.step) != (A.id, 2)]
    assert choose(node, disk) is None


def test_too_large_a_difference_is_not_read(disk):
    node = linked(B, C, window="none", is_auditable=True, refresh_period=5000, steps=10_000)
    hear(node, B, Members((B.member(version=5, first_step=0), C.member(version=5, first_step=0))))
    go_on(node, disk, DIFFERENCE_MAX - 1)
    heard(node, disk, said_by_b(0), said_by_b(1, A.held(1), B.held(1)))
    go_on(node, disk, 1)
    assert len(choose(node, disk).difference.ours) == DIFFERENCE_MAX
    go_on(node, disk, 1)
    assert choose(node, disk) is None
