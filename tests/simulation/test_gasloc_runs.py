"""Whole plans of GASLoC: chaos, healing, judgement; every fault and profile; many seeds."""

import io
import json
import subprocess
import sys

import pytest
from processes_apart import said_under_any_hash
from rich.console import Console

from seedflood.errors import ConfigError
from simulation.gasloc.profiles import PROFILES
from simulation.gasloc.runs import Plan, show_result, simulate, sweep
from simulation.runs import show_sweep


def assert_good(result):
    assert result.violations == [], result.plan
    assert result.is_good, (result.plan, result.stuck)


@pytest.mark.long
@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_every_profile_is_survived(profile):
    """Under one seed; `make sweep` has as many as one likes."""
    assert_good(simulate(Plan(clients=5, seed=1, steps=24, profile=profile)))


@pytest.mark.parametrize(
    ("topology", "matching"),
    [
        ("grid", "one"),
        ("grid", "full"),
        ("tree", "two"),
        ("complete", "one"),
        ("complete", "full"),
        ("random-regular", "two"),
        ("path", "full"),
    ],
)
def test_every_topology_and_matching_survives_everything(topology, matching):
    clients = 9 if topology == "grid" else 6
    result = simulate(Plan(clients=clients, topology=topology, steps=24, matching=matching, gamma=0.0))
    assert_good(result)
    assert result.mean_moved is not None


@pytest.mark.parametrize(
    "plan",
    [
        {"topology": "star", "seed": 101},  # a host leaves after its local steps, and comes back
        {"topology": "random-regular", "seed": 67, "closed": True},  # one wanted another replica of its only neighbour
        {
            "topology": "bridge",
            "seed": 3,
            "closed": True,
            "profile": "losses",
        },  # one that joins stands between the others
    ],
)
def test_hosts_that_were_linked_all_the_time_have_ended_with_one_replica(plan):
    """Seeds that once ended with two."""
    assert_good(simulate(Plan(clients=6, steps=24, **plan)))


@pytest.mark.parametrize("clients", [1, 2])
def test_the_smallest_swarms_survive_everything(clients):
    assert_good(simulate(Plan(clients=clients, topology="path", steps=24)))


def test_hosts_train_for_long_under_chaos():
    result = simulate(Plan(clients=5, steps=120, local_steps=2, profile="crashes", gamma=0.0, seed=4))
    assert_good(result)
    assert result.mean_moved < 0.5
    assert result.exchanges > 150


@pytest.mark.parametrize("profile", ["none", "crashes", "network"])
def test_all_end_with_one_replica_near_the_mean(profile):
    for topology, farthest in (("complete", 0.1), ("ring", 1.0)):
        result = simulate(Plan(clients=6, topology=topology, steps=24, profile=profile, matching="one", gamma=0.0))
        assert_good(result)
        assert result.distance is None or result.distance < farthest


def test_copies_are_taken_where_replicas_are_lost():
    assert any(simulate(Plan(clients=6, steps=48, profile="losses", seed=seed)).copies for seed in range(20, 23))


@pytest.mark.long
def test_every_kind_of_fault_happens():
    names = ("all", "losses")
    missing = {kind for name in names for kind in PROFILES[name].rates} | {"lost_frames", "late_join", "broken_links"}
    enough = [("all", 4), ("losses", 18)]  # the others for the day when these are not
    for name, seed in [*enough, *((name, seed) for seed in range(6) for name in names)]:
        missing -= simulate(Plan(clients=9, topology="grid", steps=24, seed=seed, profile=name)).faults.keys()
        if not missing:
            break
    assert not missing


def test_a_calm_run_has_no_faults_and_skips_nothing():
    result = simulate(Plan(clients=6, steps=24, profile="none", matching="one", gamma=0.0, local_steps=4))
    assert_good(result)
    assert (result.faults, result.skipped, result.uneven, result.mean_moved) == ({}, 0, 0, 0.0)
    assert result.exchanges >= 6 * 4


SCRIPT = """
import json
from simulation.gasloc.runs import Plan, simulate
facts = simulate(Plan(clients=6, seed=11, steps=24)).facts()
del facts["wall_seconds"]
print(json.dumps(facts))
"""


def test_the_same_seed_gives_the_same_run_in_every_process():
    said = said_under_any_hash(SCRIPT)
    assert len(said) == 1
    assert json.loads(said.pop())["faults"]["broken_links"] > 0


def test_a_sweep_runs_every_seed_in_processes_of_their_own():
    results = list(sweep(Plan(clients=4, steps=8, profile="crashes"), range(3, 7), processes=2))
    assert sorted(result.plan.seed for result in results) == [3, 4, 5, 6]
    assert all(result.is_good for result in results)


def test_the_facts_are_plain_values():
    facts = simulate(Plan(clients=3, steps=4, profile="none", seed=9, gamma=0.0)).facts()
    assert json.loads(json.dumps(facts)) == facts
    assert {key: facts[key] for key in ("seed", "clients", "topology", "profile", "steps", "gamma")} == {
        "seed": 9,
        "clients": 3,
        "topology": "ring",
        "profile": "none",
        "steps": 4,
        "gamma": 0.0,
    }
    assert facts["healed"] is True
    assert facts["mean_moved"] == facts["uneven"] == 0
    assert facts["violations"] == facts["stuck"] == []


def test_people_see_a_verdict_and_what_went_wrong():
    good = simulate(Plan(clients=3, steps=4, profile="none", gamma=0.0))
    assert "ends that mixed what the other did not" in shown(good)
    text = io.StringIO()
    assert show_sweep([good], Console(file=text, width=120), count=1) == []
    assert "1 of 1 seeds done, 0 bad" in text.getvalue()


def shown(result):
    text = io.StringIO()
    show_result(result, Console(file=text, width=120))
    return text.getvalue()


@pytest.mark.parametrize("settings", [{"profile": "doom"}, {"matching": "three"}, {"steps": 0}, {"local_steps": 3}])
def test_a_plan_that_cannot_be_is_refused(settings):
    with pytest.raises(ConfigError):
        Plan(**settings)


def test_no_simulation_of_seedflood_is_loaded():
    script = (
        "import sys, simulation.gasloc.runs; "
        "rooms = {'seedflood.host.seedflood', 'simulation.seedflood', 'torch', 'grpc', 'sqlite3'}; "
        "print(sorted(rooms & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
