"""Runs in which some of the hosts measure a round, and the others only apply it."""

import pytest
from worlds import run_to_the_end

from seedflood.protocol.swarm.rules import Patience
from simulation.seedflood.checks import has_equal_digests
from simulation.seedflood.runs import Plan, simulate
from simulation.seedflood.world import SeedfloodWorld

CLIENTS, STEPS, ROUNDS = 6, 48, 3
RING = [(one, (one + 1) % CLIENTS) for one in range(CLIENTS)]


def ring(**settings):
    settings = {"seed": 1, "steps": STEPS, "turn_rounds": ROUNDS, "optimizer": "adam", **settings}
    world = SeedfloodWorld(CLIENTS, RING, patience=Patience(start_seconds=5.0, linger_seconds=60.0), **settings)
    world.start()
    return world


def judge(world):
    run_to_the_end(world, 600.0)
    assert has_equal_digests(world.honest)
    for host in world.honest:
        assert all(world.rules.turns.has(host.origin, step) for step in host.published)


@pytest.mark.parametrize("more", [{}, {"local_steps": 2, "refresh_period": 12}, {"delay": 2}, {"refresh_period": 1}])
def test_each_host_measures_one_round_of_each_turn_and_all_end_with_one_digest(more):
    world = ring(**more)
    judge(world)
    assert [len(host.published) for host in world.hosts] == [STEPS // ROUNDS] * CLIENTS


def test_a_host_that_was_killed_measures_its_next_turn_when_it_is_back():
    world = ring()
    world.run_until_step(STEPS // 2)
    world.hosts[2].crash()
    world.start_later(world.hosts[2], 1.0)
    judge(world)
    assert len(world.hosts[2].published) == STEPS // ROUNDS


def test_a_host_that_leaves_and_returns_keeps_nobody_waiting_for_the_turns_between():
    world = ring()
    world.run_until_step(STEPS // 3)
    world.hosts[2].leave()
    world.run_for(1.0)
    world.hosts[2].crash()
    world.run_until_step(2 * STEPS // 3)
    world.start_later(world.hosts[2], 0.0)
    judge(world)
    assert STEPS // ROUNDS // 2 < len(world.hosts[2].published) < STEPS // ROUNDS


@pytest.mark.long
@pytest.mark.parametrize(("topology", "seed"), [("ring", 1), ("ring", 6), ("random-regular", 3), ("star", 3)])
@pytest.mark.parametrize("closed", [False, True])
def test_nothing_is_lost_under_all_faults(topology, seed, closed):
    """On the ring hosts waited for ever: for a turn that a host had skipped when it returned, or had lost."""
    plan = Plan(clients=8, topology=topology, seed=seed, steps=40, participants=2, closed=closed)
    result = simulate(plan)
    assert result.is_good, result.violations
    assert result.digests_equal
