"""Whole plans: chaos, healing, judgement; every fault and profile; many seeds."""

import io
import json
from dataclasses import replace
from random import Random

import pytest
from processes_apart import said_under_any_hash
from rich.console import Console

from seedflood.errors import ConfigError
from seedflood.protocol.seedflood.donors import Donors
from simulation.runs import parse_seeds, show_sweep
from simulation.seedflood import runs
from simulation.seedflood.faults import SeedfloodChaos
from simulation.seedflood.host import SeedfloodHost
from simulation.seedflood.profiles import PROFILES
from simulation.seedflood.runs import Plan, show_result, simulate, sweep

WINDOWS = ["strict", "bounded"]


def assert_good(result):
    assert result.violations == [], result.plan
    assert result.is_good, (result.plan, result.stuck)


@pytest.mark.long
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_every_profile_is_survived(profile, window):
    """Under one seed; `make sweep` has as many as one likes."""
    result = simulate(Plan(clients=6, seed=1, window=window, profile=profile, closed=profile == "cuts"))
    assert_good(result)
    assert result.digests_equal or not result.healed  # liars keep strict runs from their end, a round more or less
    assert result.frontiers_equal or result.liars


PLANS = (
    Plan(clients=9, topology="grid", seed=1),
    Plan(clients=6, topology="tree", seed=1, window="bounded"),
    Plan(clients=6, topology="complete", seed=3),
    Plan(clients=6, topology="random-regular", seed=1, window="bounded"),
    Plan(clients=6, topology="path", seed=2),
)
"""Under these seeds, every kind of fault happens in one of them."""


def test_every_topology_survives_everything_and_every_kind_of_fault_happens():
    missing = PROFILES["all"].rates.keys() | {"lost_frames", "duplicated_frames", "reordered_frames", "late_join"}
    for later in range(8):  # what a node does may change, and with it what meets it
        for plan in PLANS:
            result = simulate(replace(plan, seed=plan.seed + later))
            assert_good(result)
            missing -= result.faults.keys()
        if not missing:
            break
    assert not missing


@pytest.mark.parametrize("clients", [1, 2])
@pytest.mark.parametrize("window", WINDOWS)
def test_the_smallest_swarms_survive_everything(clients, window):
    assert_good(simulate(Plan(clients=clients, topology="path", window=window)))


def test_several_local_steps_survive_everything():
    assert_good(simulate(Plan(clients=6, steps=40, local_steps=4, window="bounded")))


def test_epochs_are_compacted_and_adopted_under_chaos(monkeypatch):
    adopted = []
    monkeypatch.setattr(SeedfloodHost, "adopted", lambda host, *_: adopted.append(host))
    for seed in range(4):  # nobody leaves: who left may return for long, and until then bundles are kept
        assert_good(simulate(Plan(clients=6, steps=40, refresh_period=4, window="bounded", seed=seed, profile="disks")))
    assert adopted


@pytest.mark.parametrize("window", WINDOWS)
def test_plans_draw_any_optimiser(window):
    assert {Plan(window=window, seed=seed).drawn().optimizer for seed in range(20)} == {"sgd", "momentum", "adam"}


def test_epochs_are_short_and_long_unless_the_climate_is_always_the_same():
    drawn = {name: {runs.draw_epoch_rounds(PROFILES[name], Random(seed)) for seed in range(60)} for name in PROFILES}
    assert drawn["all"] >= {1, 16}
    assert drawn["disks"] == {4}


def test_a_calm_run_has_no_faults():
    assert simulate(Plan(clients=4, profile="none")).faults == {}


def test_what_cannot_heal_is_stuck_and_named(monkeypatch):
    monkeypatch.setattr(SeedfloodChaos, "_restore", lambda chaos, host: None)
    monkeypatch.setattr(runs, "HEALING_SECONDS_MAX", 30.0)
    monkeypatch.setitem(PROFILES, "none", PROFILES["crashes"])
    monkeypatch.setattr(SeedfloodChaos, "_restart", lambda chaos, host, **settings: None)
    result = simulate(Plan(clients=6, profile="none", seed=3))
    assert not result.healed
    assert not result.is_good
    assert any(" is down at step" in line for line in result.stuck)


def test_a_core_without_repair_fails(monkeypatch):
    monkeypatch.setattr(Donors, "next_donor", lambda donors, frontier: None)
    monkeypatch.setattr(runs, "HEALING_SECONDS_MAX", 60.0)
    assert not all(simulate(Plan(clients=5, profile="network", window="bounded", seed=s)).is_good for s in range(3))


SCRIPT = """
import json
from simulation.seedflood.runs import Plan, simulate
facts = simulate(Plan(clients=6, seed=11, window="bounded")).facts()
del facts["wall_seconds"]
print(json.dumps(facts))
"""


def test_the_same_seed_gives_the_same_run_in_every_process():
    said = said_under_any_hash(SCRIPT)
    assert len(said) == 1
    assert json.loads(said.pop())["faults"]["broken_links"] > 0


def test_a_sweep_runs_every_seed_in_processes_of_their_own():
    results = list(sweep(Plan(clients=4, steps=6, profile="crashes"), range(3, 7), processes=2))
    assert sorted(result.plan.seed for result in results) == [3, 4, 5, 6]
    assert all(result.is_good for result in results)


def test_the_facts_are_plain_values():
    facts = simulate(Plan(clients=3, steps=4, profile="none", seed=9)).facts()
    assert json.loads(json.dumps(facts)) == facts
    assert {key: facts[key] for key in ("seed", "clients", "topology", "window", "profile", "steps")} == {
        "seed": 9,
        "clients": 3,
        "topology": "ring",
        "window": "strict",
        "profile": "none",
        "steps": 4,
    }
    assert facts["healed"] is facts["frontiers_equal"] is facts["digests_equal"] is True
    assert facts["violations"] == facts["stuck"] == []


def test_people_see_a_verdict_and_what_went_wrong():
    good = simulate(Plan(clients=3, steps=4, profile="none"))
    bad = replace(good, violations=["h1 lost [3]"], stuck=["h2 is down"], digests_equal=False, faults={"kill": 2})
    assert "h1 lost [3]" in shown(show_result, bad)
    assert "kill" in shown(show_result, bad)
    assert "h1 lost" not in shown(show_result, good)


def test_a_sweep_names_its_bad_seeds_and_returns_them():
    good = simulate(Plan(clients=3, steps=4, profile="none"))
    bad = replace(good, plan=Plan(seed=7), violations=["h1 lost"], digests_equal=False)
    text = io.StringIO()
    assert show_sweep([good, bad], Console(file=text, width=120), count=2) == [bad]
    assert "seed 7 is bad" in text.getvalue()
    assert "2 of 2 seeds done, 1 bad: [7]" in text.getvalue()


def shown(show, result):
    text = io.StringIO()
    show(result, Console(file=text, width=120))
    return text.getvalue()


@pytest.mark.parametrize(("text", "seeds"), [("1..3", [1, 2, 3]), ("7", [7]), ("5..5", [5])])
def test_seeds_are_a_number_or_a_span(text, seeds):
    assert list(parse_seeds(text)) == seeds


@pytest.mark.parametrize("text", ["", "x", "3..1", "1..x", "1-3"])
def test_what_names_no_seeds_is_refused(text):
    with pytest.raises(ConfigError, match="--seeds"):
        parse_seeds(text)


@pytest.mark.parametrize(
    "settings",
    [
        {"profile": "doom"},
        {"window": "open"},
        {"steps": 0},
        {"local_steps": 3},
    ],
)
def test_a_plan_that_cannot_be_is_refused(settings):
    with pytest.raises(ConfigError):
        Plan(**settings)
