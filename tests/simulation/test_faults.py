"""Chaos first, judged for what must never happen; then healing, judged for what must happen at last."""

import random

import pytest
from worlds import STORMY, Witness, make_world, run_to_the_end

from seedflood.protocol.seedflood.phase import Phase
from seedflood.protocol.swarm.rules import Patience
from simulation.checks import find_stuck
from simulation.seedflood.checks import find_violations
from simulation.work import Pace

WINDOWS = ["strict", "bounded"]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("seed", range(2))
def test_some_hosts_crash_and_nothing_is_lost(window, seed):
    world = make_world("grid", 9, seed=seed, window=window, weather=STORMY)
    world.start()
    world.run_until_step(2)
    for index in world.rng.sample(range(9), 4):
        world.crash(index, down_seconds=world.rng.uniform(0.01, 20))
        world.run_for(world.rng.uniform(0, 1))
    run_to_the_end(world)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("seed", range(2))
def test_all_hosts_crash_at_once_and_nothing_is_lost(window, seed):
    world = make_world("ring", 6, seed=seed, window=window, weather=STORMY)
    world.start()
    world.run_until_step(3)
    for index in range(6):
        world.crash(index, down_seconds=world.rng.uniform(0.01, 5))
    run_to_the_end(world)


@pytest.mark.parametrize("window", WINDOWS)
def test_a_host_that_crashes_again_and_again_speaks_once_about_every_step(window):
    world = make_world("ring", 4, window=window, steps=12)
    world.start()
    world.run_for(2)
    for _ in range(10):
        world.crash(0, down_seconds=0.05)
        world.run_for(world.rng.uniform(0.1, 1.5))
    run_to_the_end(world)


def test_a_crash_before_the_first_step_holds_nobody_up_for_ever():
    world = make_world("ring", 4)
    world.start()
    world.run_for(1.05)
    world.crash(2, down_seconds=3)
    run_to_the_end(world)


def test_a_crash_after_the_end_is_survived():
    world = make_world("ring", 4)
    world.start()
    assert world.run()
    world.crash(1, down_seconds=1)
    run_to_the_end(world)


def test_in_strict_windows_even_a_restarted_host_measures_on_the_sum_of_all_that_came_before(monkeypatch):
    witness = Witness(monkeypatch)
    world = make_world("ring", 5, steps=10, weather=STORMY)
    world.start()
    for step in (2, 4, 6):
        world.run_until_step(step)
        world.crash(step % 5, down_seconds=1)
        world.crash((step + 1) % 5, down_seconds=2)
    run_to_the_end(world)
    assert all(below == 5 * step and beyond == 0 for _, step, below, beyond in witness.measured)


@pytest.mark.parametrize("window", WINDOWS)
def test_a_healed_partition_converges_without_a_restart(window):
    world = make_world("grid", 9, window=window, steps=20)
    world.start()
    world.run_until_step(3)
    world.network.partition({0, 1, 2, 3})
    world.run_for(10)
    apart = [host.node.frontier.digest() for host in world.hosts]
    assert apart[0] != apart[8]
    world.network.heal()
    run_to_the_end(world)


def test_a_strict_partition_stands_still_and_names_whom_it_waits_for():
    world = make_world("path", 4, steps=50)
    world.start()
    world.run_until_step(3)
    world.network.partition({0, 1})
    world.run_for(60)
    assert not any(host.is_finished for host in world.hosts)
    stuck = find_stuck(world.hosts)
    assert len(stuck) == 4
    assert stuck[0].startswith("h0 is collecting at step")
    missing = stuck[0].partition("waits for ")[2].split(", ")
    assert missing != [""]
    assert {one.split()[0] for one in missing} <= {"h2", "h3"}, "one of them may have been heard before the cut"
    assert stuck[3].startswith("h3 is collecting at step")
    assert "h0" in stuck[3]


def test_a_host_that_joins_late_takes_part_from_where_the_others_are():
    world = make_world("ring", 5, steps=60, window="bounded", patience=Patience(start_seconds=2.0))
    for host in world.hosts[1:]:
        host.start()
    world.run_until_step(10)
    assert not world.hosts[0].is_up
    world.hosts[0].start()
    run_to_the_end(world)
    assert min(world.hosts[0].published) >= 8
    assert max(world.hosts[0].published) == 59


def test_halves_do_not_begin_without_each_other():
    world = make_world("path", 5, steps=30, window="bounded", patience=Patience(start_seconds=1.0))
    for host in world.hosts[:2] + world.hosts[3:]:
        host.start()
    world.run_for(60)
    assert [host.node.step for host in world.hosts if host.is_up] == [0, 0, 0, 0]
    world.hosts[2].start()
    run_to_the_end(world)


def test_more_than_half_of_the_hosts_begin_without_the_others_when_patience_is_over():
    world = make_world("ring", 5, steps=30, window="bounded", patience=Patience(start_seconds=20.0))
    for host in world.hosts[:3]:
        host.start()
    world.run_for(19)
    assert [host.node.step for host in world.hosts[:3]] == [0, 0, 0]
    world.run_for(60)
    assert min(host.node.step for host in world.hosts[:3]) > 5
    for host in world.hosts[3:]:
        host.start()
    run_to_the_end(world)


def test_halves_that_went_on_without_each_other_wait_at_the_end_to_become_one():
    world = make_world("path", 5, steps=30, window="bounded")
    world.start()
    world.run_until_step(3)
    world.network.partition({0, 1})
    world.run_for(60)
    assert world.hosts[0].node.phase is world.hosts[4].node.phase is Phase.FINISHING
    world.network.heal()
    run_to_the_end(world)


def test_a_strict_run_waits_for_a_host_that_joins_late():
    world = make_world("ring", 5)
    for host in world.hosts[1:]:
        host.start()
    world.run_for(300)
    assert all(host.node.step == 0 for host in world.hosts[1:])
    world.hosts[0].start()
    run_to_the_end(world)
    assert sorted(world.hosts[0].published) == list(range(8))


@pytest.mark.parametrize("seed", range(2))
def test_a_strict_run_goes_on_without_one_that_leaves(seed):
    world = make_world("complete", 5, seed=seed, steps=12, weather=STORMY)
    world.start()
    world.run_until_step(4)
    leaver, others = world.hosts[0], world.hosts[1:]
    leaver.leave()
    left_after = len(leaver.published)
    world.clock.run(lambda: all(host.is_done for host in others), 3600)
    assert find_stuck(others) == []
    assert find_violations(others) == []
    assert len(leaver.published) == left_after < 12
    assert all(len(host.published) == 12 for host in others)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("away_seconds", [0.05, 1.0, 2.5])
def test_a_host_that_leaves_and_returns_takes_part_again(window, away_seconds):
    world = make_world("ring", 5, steps=60, window=window, weather=STORMY)
    world.start()
    world.run_until_step(4)
    world.hosts[0].leave()
    world.run_for(0.3)
    world.crash(0, down_seconds=away_seconds)
    run_to_the_end(world)
    assert max(world.hosts[0].published) == 59


@pytest.mark.parametrize("window", WINDOWS)
def test_a_lost_disk_is_filled_again_by_the_neighbours(window):
    world = make_world("ring", 4, steps=30, window=window, pace=Pace(0.5, 0.6))
    world.start()
    world.run_until_step(5)
    world.run_for(0.2)  # what was published has arrived: a lost disk must not make an origin contradict itself
    world.hosts[0].lose_disk()
    world.run_for(1.0)
    world.hosts[0].start()
    run_to_the_end(world)


def test_a_torn_tail_loses_only_what_was_not_synced():
    world = make_world("ring", 4, steps=20)
    world.start()
    world.run_until_step(5)
    for host in world.hosts:
        own = host.own_bundles()
        host.journal.tear(random.Random(1))
        assert host.own_bundles() == own
