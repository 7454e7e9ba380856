"""What can happen to any node happens to one that draws lots, in a world that knows nothing of SeedFlood."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from lot_worlds import LotChaos, LotJudge, make_world
from lots import Lots

from seedflood.cluster.topology import make_topology
from seedflood.host.backlog import Backlog
from seedflood.host.driver import Driver
from simulation.checks import find_stuck
from simulation.journal import MemoryJournal
from simulation.network import Weather
from simulation.profiles import CHURN, CRASHES, FULL_DISKS, NETWORK, PARTITIONS, STORM, Profile
from simulation.runs import Trial
from simulation.work import Pace

STEPS = 20
PROFILES = {
    "nothing": Profile(),
    "network": Profile(STORM, NETWORK),
    "crashes": Profile(rates=CRASHES),
    "full disks": Profile(rates={**FULL_DISKS, "kill": 0.03}),
    "lost disks": Profile(rates={"lose_disk": 0.2, "kill": 0.03, **FULL_DISKS}),
    "churn": Profile(rates=CHURN, late=0.3),
    "partitions": Profile(rates=PARTITIONS),
    "everything": Profile(STORM, {**NETWORK, **CRASHES, **FULL_DISKS, **CHURN, **PARTITIONS}, late=0.2),
}
ROUGH = Profile(Weather(break_per_second=0.1), {"kill": 0.2, "lose_power": 0.1, "fill_disk": 0.2})
"""What makes a host forget whatever it does not keep."""


def put_to_the_test(profile, seed, topology="grid", clients=6):
    edges = make_topology(topology, clients, seed=seed)
    world = make_world(clients, edges, seed=seed, steps=STEPS, weather=profile.weather, pace=Pace(0.1, 0.3))
    outcome = Trial(world, LotChaos(world, profile), LotJudge()).run(lambda host: host.node.step > 0.7 * STEPS, 40.0)
    return world, outcome


def is_seen(complaint, profile, seeds=range(6)):
    """Does any seed show it?"""
    return any(complaint in line for seed in seeds for line in put_to_the_test(profile, seed)[1].violations)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", PROFILES)
def test_all_agree_in_the_end_whatever_happens(name, seed):
    world, outcome = put_to_the_test(PROFILES[name], seed)
    assert (outcome.violations, outcome.stuck) == ([], [])
    assert len({frozenset(host.node.lots.known.items()) for host in world.hosts}) == 1
    assert len(world.hosts[0].node.lots.known) == 6 * STEPS


def test_every_fault_that_any_node_can_meet_happens():
    rates = PROFILES["everything"].rates
    often = replace(PROFILES["everything"], rates=dict.fromkeys(rates, 0.03), late=0.5)
    missing = {*rates, "late_join", "torn_records", "lost_frames", "broken_links"}
    for seed in range(4):
        missing -= put_to_the_test(often, seed)[1].faults.keys()
    assert not missing


@pytest.mark.parametrize("seed", range(3))
def test_a_rough_world_is_survived(seed):
    _, outcome = put_to_the_test(ROUGH, seed)
    assert (outcome.violations, outcome.stuck) == ([], [])


def test_that_numbers_are_never_kept_is_seen(monkeypatch):
    monkeypatch.setattr(Driver, "_persist", lambda *_: None)
    assert is_seen("told two numbers", ROUGH)


def test_that_numbers_are_kept_after_they_were_told_is_seen(monkeypatch):
    persist, send_all = Driver._persist, Driver._send_all
    monkeypatch.setattr(Driver, "_persist", lambda *_: None)
    monkeypatch.setattr(Driver, "_send_all", lambda driver, out: (send_all(driver, out), persist(driver, out)))
    assert is_seen("told two numbers", ROUGH)


def test_that_a_full_disk_withholds_nothing_is_seen(monkeypatch):
    monkeypatch.setattr(Backlog, "holds_back", lambda *_: False)
    assert is_seen("told two numbers", ROUGH)


def test_a_disk_that_keeps_nothing_through_a_power_failure_is_seen(monkeypatch):
    monkeypatch.setattr(MemoryJournal, "_sync", lambda journal: None)
    assert is_seen("told two numbers", ROUGH)


def test_that_a_host_speaks_before_it_has_heard_is_seen_when_its_disk_is_lost(monkeypatch):
    monkeypatch.setattr(Lots, "has_spoken", True)
    assert is_seen("told two numbers", PROFILES["lost disks"])


def test_who_is_stuck_is_named_with_what_it_waits_for():
    world = make_world(3, [(0, 1), (1, 2)], seed=1, steps=STEPS)
    world.start()
    assert world.run_until_step(3)
    world.hosts[2].crash()
    world.run_for(5.0)
    first, _, third = find_stuck(world.hosts)
    assert first.startswith("h0 is drawing at step")
    assert "h2 (lot from step" in first
    assert third.startswith("h2 is down at step")


def test_a_second_process_with_one_key_ends_the_first():
    world = make_world(4, make_topology("ring", 4), seed=1, steps=STEPS)
    world.start()
    assert world.run_until_step(3)
    older = world.hosts[1]
    older.journal.incarnation += 1
    twin = world.copy_key(older)
    assert world.has_doubles
    twin.start()
    world.run_for(5.0)
    assert (older.is_up, older.is_retired, twin.is_up) == (False, True, True)
    assert not world.has_doubles
    assert older not in world.honest


def test_the_same_seed_gives_the_same_run():
    outcomes = [put_to_the_test(PROFILES["everything"], 5)[1] for _ in range(2)]
    assert outcomes[0].faults == outcomes[1].faults
    assert outcomes[0].virtual_seconds == outcomes[1].virtual_seconds


def test_no_host_or_simulation_of_seedflood_is_loaded():
    """Of its protocol the codec knows the frames."""
    script = (
        "import sys, lot_worlds; rooms = {'seedflood.host.seedflood', 'simulation.seedflood'}; "
        "print(sorted(rooms & set(sys.modules)))"
    )
    here = Path(__file__).parent
    paths = {"PYTHONPATH": os.pathsep.join([str(here.parent / "modes"), *filter(None, sys.path)])}
    said = subprocess.run(
        [sys.executable, "-c", script], cwd=here, env=os.environ | paths, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "[]"
