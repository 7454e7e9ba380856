"""Relays among hosts that train: nobody waits for them, and nothing is lost on them, whatever fails."""

import pytest
from worlds import run_to_the_end

from seedflood.protocol.seedflood.divergence import HearsayDetector
from seedflood.protocol.swarm.rules import Patience
from simulation.seedflood.checks import has_equal_frontiers
from simulation.seedflood.runs import Plan, simulate
from simulation.seedflood.world import SeedfloodWorld

CLIENTS = 3
HUB = CLIENTS
PATIENCE = Patience(start_seconds=5.0, linger_seconds=60.0)
STAR = [(index, HUB) for index in range(CLIENTS)]


def star(relays=1, edges=(), **settings):
    """Hosts that are linked through relays alone: all with the first one, and by the other edges."""
    settings = {"seed": 1, **settings}
    world = SeedfloodWorld(CLIENTS, [*STAR, *edges], relays=relays, patience=PATIENCE, **settings)
    world.start()
    return world


def judge(world):
    run_to_the_end(world, 600.0)
    assert has_equal_frontiers(world.honest)


@pytest.mark.parametrize("window", ["strict", "bounded"])
def test_hosts_behind_one_relay_end_a_run(window):
    world = star(window=window, steps=24)
    judge(world)
    assert all(host.node.is_ready for host in world.hosts)
    assert world.hosts[HUB].published == {}


def test_a_relay_takes_over_the_sums_of_the_hosts_and_serves_who_comes_late():
    world = star(steps=64, refresh_period=4)
    world.run_until_step(48)
    world.run_for(20.0)
    hub = world.hosts[HUB]
    assert len(hub.journal.closed) >= 64 // 4 - 4
    world.hosts[0].lose_disk()
    world.start_later(world.hosts[0], 0.5)
    judge(world)
    assert len(world.hosts[0].journal.closed) >= 64 // 4 - 4


def test_a_replica_that_differs_is_found_through_a_relay():
    world = star(steps=48)
    world.run_until_step(12)
    assert world.hosts[0].corrupt()
    judge(world)
    assert any(event.name == "replica rebuilt" and event.facts["was_wrong"] for event in world.hosts[0].events)


def test_without_hearsay_hosts_behind_a_relay_end_only_when_their_patience_does(monkeypatch):
    def seconds():
        world = star(steps=8)
        judge(world)
        return world.clock.now

    usual = seconds()
    monkeypatch.setattr(HearsayDetector, "received", lambda *_: None)
    assert seconds() > usual + 20.0


def test_of_two_relays_one_may_die_at_any_moment_for_good():
    world = star(2, edges=[(index, HUB + 1) for index in range(CLIENTS)], steps=24)
    world.run_until_step(8)
    dead = world.hosts[HUB]
    dead.crash()
    world.cast_out(dead.origin)
    began = world.clock.now
    judge(world)
    assert world.clock.now < began + 20.0


@pytest.mark.long
@pytest.mark.parametrize("profile", ["all", "adoption"])
@pytest.mark.parametrize("window", ["strict", "bounded"])
@pytest.mark.parametrize("seed", [1, 2])
def test_relays_stand_every_fault(window, profile, seed):
    result = simulate(Plan(5, "ring", seed, 12, window, profile, relays=2))
    assert result.is_good, (result.violations, result.stuck)
    assert result.frontiers_equal


def test_in_a_closed_run_relays_follow_the_roster_and_nobody_awaits_them():
    result = simulate(Plan(6, "grid", 1, 16, "bounded", closed=True, relays=3))
    assert result.is_good, (result.violations, result.stuck)


@pytest.mark.parametrize("seed", [2, 3])
def test_liars_beside_a_relay_move_nobody(seed):
    result = simulate(Plan(6, "grid", seed, 12, "bounded", "liars", relays=3))
    assert not result.violations
    assert result.digests_equal


@pytest.mark.parametrize("window", ["strict", "bounded"])
def test_two_copies_of_a_relay_settle_which_of_them_is_newer_before_the_run_is_judged(window):
    """At the end of the run both are up yet."""
    assert simulate(Plan(3, "path", 2, 12, window, "keys", relays=1)).violations == []


@pytest.mark.parametrize("topology", ["grid", "path"])
def test_a_relay_is_judged_by_its_journal_after_a_host_was_cut_off(topology):
    """Nobody orders a relay to make its coefficients again: it has none."""
    assert simulate(Plan(5, topology, 323044886, 12, "bounded", "cuts", closed=True, relays=2)).violations == []


@pytest.mark.parametrize(
    "plan",
    [
        Plan(4, "complete", 323044886, 12, "bounded", "all", closed=True, relays=2),
        Plan(8, "ring", 323044886, 12, "bounded", "all", closed=True, relays=2, local_steps=2),
    ],
    ids=["all", "some"],
)
def test_a_relay_that_starts_when_the_hosts_end_is_given_the_time_to_repair_what_it_lacks(plan):
    assert simulate(plan).violations == []


def test_hosts_are_ready_and_end_with_what_came_too_late_for_a_sum_beside_it():
    """Of two hosts updates came after a majority had voted for sums without them. By Adam these add nothing, and where
    they had come before the sum took the place of the bundles, a rebuild takes them out."""
    plan = Plan(
        6, "ring", 97, 12, "bounded", closed=True, relays=2, local_steps=2, update_kind="pairs", optimizer="adam"
    )
    assert simulate(plan).violations == []


def test_a_host_that_learns_the_last_updates_from_a_relay_is_given_the_time_to_apply_them():
    plan = Plan(
        6, "ring", 250, 12, "bounded", closed=True, relays=2, local_steps=2, update_kind="pairs", optimizer="adam"
    )
    result = simulate(plan)
    assert result.violations == []
    assert result.digests_equal
