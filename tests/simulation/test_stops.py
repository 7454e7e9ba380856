"""A run that stops before its last step (`stop_after`): hosts end together, whatever happens to them."""

import pytest

from seedflood.protocol.seedflood.outputs import Stopped
from seedflood.protocol.seedflood.phase import Phase
from seedflood.protocol.swarm.rules import Patience
from simulation.seedflood.host import SeedfloodHost
from simulation.seedflood.runs import Plan, simulate
from simulation.seedflood.world import SeedfloodWorld

STOP = 16
PATIENCE = Patience(start_seconds=5.0, linger_seconds=60.0)


@pytest.fixture
def stopping(monkeypatch):
    """Models find that the run is over when they are to measure this step or a later one. Yields the steps at which
    they said so."""
    measured, steps = SeedfloodHost._measured, set()

    def answer(host, order):
        if order.step < STOP:
            return measured(host, order)
        steps.add(order.step)
        return host.driver.answered(Stopped(order.step))

    monkeypatch.setattr(SeedfloodHost, "_measured", answer)
    return steps


@pytest.mark.parametrize("seed", range(1, 9))
def test_hosts_that_crash_are_cut_off_and_leave_stop_at_the_same_step(stopping, seed):
    plan = Plan(clients=5, topology="ring", seed=seed, steps=20, profile="all", refresh_period=4)
    result = simulate(plan)
    assert (result.healed, result.stuck, result.violations) == (True, [], [])
    assert result.frontiers_equal
    assert result.digests_equal
    assert stopping == {STOP}


def make_world(clients=4, relays=0):
    count = clients + relays
    edges = [(index, (index + 1) % count) for index in range(count)]
    return SeedfloodWorld(clients, edges, patience=PATIENCE, seed=1, steps=40, optimizer="adam", relays=relays)


@pytest.mark.parametrize("relays", [0, 1, 2])
def test_nobody_waits_for_a_relay_which_cannot_know_that_the_run_stopped(stopping, relays):
    world = make_world(relays=relays)
    world.start()
    assert world.run(PATIENCE.linger_seconds / 2)
    assert stopping == {STOP}


def test_a_host_that_dies_as_the_run_stops_ends_without_the_others(stopping):
    world = make_world()
    world.start()
    host, *others = world.hosts
    assert world.clock.run(lambda: host.is_up and host.node.phase is Phase.FINISHING, 60.0)
    host.crash()
    world.clock.run(lambda: all(other.is_done for other in others), 3 * PATIENCE.linger_seconds)
    for other in others:
        other.crash()
    world.start_later(host, 0.0)
    assert world.clock.run(lambda: host.is_done, 3 * PATIENCE.linger_seconds)
