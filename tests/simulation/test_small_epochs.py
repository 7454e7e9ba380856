"""Epochs whose bundles take less space than their sum stay bundles, on all hosts, in core and journal alike."""

import pytest
from test_equivocation import contradict
from worlds import make_world

from simulation.checks import find_stuck
from simulation.operator import Operator
from simulation.seedflood.checks import find_violations, has_equal_digests

PERIOD = 10
LARGE, BETWEEN = 1 << 16, 1 << 13
"""Bytes of a sum: more than an epoch of all hosts has in bundles, and about as many."""
WINDOWS = pytest.mark.parametrize("window", ["strict", "bounded"])


def make_small_epochs(window, epoch_bytes=LARGE, **settings):
    optimizer = "adam" if window == "strict" else "sgd"
    return make_world(
        "complete", 5, window=window, refresh_period=PERIOD, epoch_bytes=epoch_bytes, optimizer=optimizer, **settings
    )


def start_again(world, index):
    host = world.hosts[index]
    host.crash()
    world.start_later(host, 0.5)
    world.clock.run(lambda: host.is_up and host.node.step > 3 * PERIOD, 100)


def judge(world):
    world.run(600)
    assert find_stuck(world.honest) == []
    world.run_for(30)
    assert find_violations(world.honest) == []
    assert has_equal_digests(world.honest)
    assert not any(host.node.is_doubted for host in world.honest)


def lie_late(world):
    """A host has started again, and then the end of an origin in the first epoch is proven."""
    liar = world.hosts[1]
    world.chronicle.liars, world.chronicle.is_tainted = {liar.origin}, True
    world.start()
    world.run_until_step(3 * PERIOD)
    start_again(world, 0)
    contradict(world, liar, 5)
    judge(world)
    return {step for origin, step in world.hosts[0].ledger.applied if origin == liar.origin}


@WINDOWS
@pytest.mark.parametrize("epoch_bytes", [LARGE, BETWEEN])
def test_a_late_proof_takes_the_same_out_of_hosts_that_started_again_and_of_the_others(window, epoch_bytes):
    world = make_small_epochs(window, epoch_bytes, steps=60)
    counted = lie_late(world)
    assert counted == set(range(5)) or epoch_bytes == BETWEEN


@WINDOWS
def test_a_removal_takes_the_same_out_of_hosts_that_started_again_and_of_the_others(window):
    world = make_small_epochs(window, steps=100)
    operator, gone = Operator(world), world.hosts[4]
    world.chronicle.is_tainted = True  # what is cut off was published, and does not count
    world.start()
    world.run_until_step(3 * PERIOD)
    start_again(world, 0)
    world.network.partition({3, 4})
    operator.remove(4, at=0)
    world.run_for(6.0)
    operator.cut(4, as_held_by=0, at=0)
    world.network.unite()
    judge(world)
    assert {step for origin, step in world.hosts[0].ledger.applied if origin == gone.origin}


@WINDOWS
def test_who_comes_late_holds_what_the_others_hold(window):
    world = make_small_epochs(window, steps=60)
    for host in world.hosts[:4]:
        world.start_later(host, 0.0)
    world.start_later(world.hosts[4], 10.0)
    judge(world)
    assert not any(host.journal.closed for host in world.hosts)
