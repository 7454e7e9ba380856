"""`[run]`: its id, its defaults, and one table for each algorithm."""

import json
from pathlib import Path
from typing import Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from seedflood.config import EstimateName, RunSettings, SeedfloodSettings, load_settings
from seedflood.config.run import RUN_SCHEMA
from seedflood.config.tables import AlgorithmSettings

RELEASED = json.loads((Path(__file__).parent / "defaults.json").read_text())
"""For each schema version what a run is if it says nothing, or only what stands under "said"."""

IDS = {
    "f452244fafedf20f": {},
    "aded77a37873b4f1": {"name": "compose", "task": "embedded", "clients": 4, "steps": 250, "train_examples": 1024},
    "cf7a3eab626eab16": {"clients": 16, "steps": 5000, "window": "strict", "refresh_period": 2000}
    | {"model": "facebook/opt-125m"},
    "7a50a76993369099": {"estimate": "gradient", "steps": 48, "learning_rate": 2e-4, "seed": 2**63 - 1},
    "76bf3a94abe230b0": {"task": "prompted", "template": "{é} it was", "label_words": ["bad", "good"]},
    "e7f70970aa5f3b81": {"estimate": "gradient", "local_steps": 4, "clip": 8.0},
    "cf4c07a0d7d0d768": {"mode": "gasloc", "task": "lm", "local_steps": 20, "matching": "one"},
}
"""Runs of this schema version by the first bytes of their ids. One that changes parts hosts that were together."""

CHOICES = {
    "estimate": st.sampled_from(get_args(EstimateName)),
    "window": st.sampled_from(["strict", "bounded"]),
    "rank": st.sampled_from([8, 32]),
    "refresh_period": st.sampled_from([100, 1000]),
    "steps": st.sampled_from([400, 500]),
    "task": st.sampled_from(["sst2", "rte"]),
}
"""Few values each, among them all defaults, so that two runs are often equal."""


@st.composite
def some_runs(draw):
    return RunSettings.of(**draw(st.fixed_dictionaries({}, optional=CHOICES)))


@pytest.mark.parametrize(("run_id", "keys"), IDS.items())
def test_run_ids_never_change_under_one_schema_version(run_id, keys):
    assert RunSettings.of(**keys).run_id().hex()[:16] == run_id


@pytest.mark.parametrize("case", RELEASED[str(RUN_SCHEMA)])
def test_released_defaults_never_change_under_one_schema_version(case):
    assert RunSettings.model_validate(case["said"]).model_dump(mode="json") == case["run"], (
        "A new key is added to the file. A default that was released may only change with another RUN_SCHEMA."
    )


@given(some_runs(), some_runs())
def test_runs_have_equal_ids_just_if_they_are_equal(a, b):
    assert (a.run_id() == b.run_id()) == (a == b)


@given(some_runs())
def test_who_writes_all_defaults_out_has_the_same_run(run):
    assert RunSettings.model_validate(run.model_dump()).run_id() == run.run_id()


@pytest.mark.parametrize(("task", "estimate"), [("sst2", "two-sided"), ("reward", "gradient"), ("own", "gradient")])
def test_the_default_estimate_is_that_of_the_task(task, estimate):
    unsaid, said = RunSettings.of(task=task), RunSettings.of(task=task, estimate=estimate)
    assert unsaid.seedflood.estimate == estimate
    assert unsaid.run_id() == said.run_id()
    assert RunSettings.of(task="own", estimate="two-sided").seedflood.estimate == "two-sided"


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_run_ids_differ_with_any_setting(a, b):
    assert (RunSettings(steps=a).run_id() == RunSettings(steps=b).run_id()) == (a == b)


@pytest.mark.parametrize("given", [{}, {"estimate": "gradient"}])
def test_a_new_key_with_a_default_changes_no_run(given):
    class Later(SeedfloodSettings):
        patience: int = 3
        haste: int = Field(default_factory=lambda known: 2 if known["estimate"] == "gradient" else 1)

    class LaterRun(RunSettings):
        seedflood: Later = Later()

    run = RunSettings(seedflood=given)
    assert LaterRun(seedflood=given).run_id() == run.run_id()
    assert LaterRun(seedflood=given | {"patience": 4}).run_id() != run.run_id()
    assert LaterRun(seedflood=given | {"haste": 5}).run_id() != run.run_id()


def test_the_order_of_keys_and_what_a_host_has_of_its_own_do_not_count():
    a = load_settings(None, {"run": {"steps": 7, "clients": 2}, "node": {"name": "a"}}).run
    b = load_settings(None, {"node": {"name": "b", "micro_batch": 1}, "run": {"clients": 2, "steps": 7}}).run
    assert a.run_id() == b.run_id()


class Gossip(AlgorithmSettings):
    neighbours: int = 2


class TwoAlgorithms(RunSettings):
    mode: Literal["seedflood", "gossip"] = "seedflood"
    gossip: Gossip = Gossip()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"gossip": {"neighbours": 3}}, 'the table [run.gossip] is for mode = "gossip", but mode is "seedflood"'),
        ({"gossip": {}}, 'or set mode = "gossip"'),
        ({"mode": "gossip", "seedflood": {"rank": 4}}, "take the table out"),
    ],
)
def test_a_table_of_an_algorithm_that_is_not_selected_is_an_error(given, words):
    with pytest.raises(ValidationError) as fault:
        TwoAlgorithms(**given)
    assert words in str(fault.value)


def test_only_the_selected_algorithm_is_shown_checked_and_hashed():
    run = TwoAlgorithms(mode="gossip", steps=7, gossip={"neighbours": 3})
    assert run.algorithm == Gossip(neighbours=3)
    assert "seedflood" not in run.model_dump()
    assert json.loads(run.canonical()) == {"mode": "gossip", "steps": 7, "gossip": {"neighbours": 3}}
    assert TwoAlgorithms().run_id() == RunSettings().run_id(), "an algorithm more changes no run of the others"


def test_keys_are_placed_by_their_bare_names():
    placed = RunSettings.place({"steps": 3, "rank": 4, "task": "lm", "seedflood": {"delay": 1}})
    assert placed == {"steps": 3, "seedflood": {"rank": 4, "delay": 1}, "objective": {"task": "lm"}}


def test_keys_of_two_algorithms_are_placed_by_the_mode():
    keys = {"local_steps": 3, "rank": 4, "task": "lm"}
    tables = {"objective": {"task": "lm"}, "seedflood": {"local_steps": 3, "rank": 4}}
    assert RunSettings.place(keys) == tables
    placed = RunSettings.place({"mode": "gasloc", "local_steps": 3, "learning_rate": 0.1, "task": "lm"})
    assert placed.pop("gasloc") == {"local_steps": 3, "learning_rate": 0.1}
    assert placed == {"mode": "gasloc", "objective": {"task": "lm"}}


def test_no_key_stands_in_two_tables_that_can_be_there_at_once():
    for mode in RunSettings.algorithms():
        tables = [RunSettings, *(type(getattr(RunSettings(), name)) for name in ("objective", mode))]
        keys = [key for table in tables for key in table.model_fields]
        assert len(keys) == len(set(keys))


def test_a_gradient_has_defaults_of_its_own():
    forward, gradient = SeedfloodSettings(), SeedfloodSettings(estimate="gradient")
    bounded = SeedfloodSettings(estimate="gradient", window="bounded")
    assert [one.rank for one in (forward, gradient, bounded)] == [32, 16, 16]
    assert (forward.refresh_period, gradient.refresh_period) == (1000, 100)


@pytest.mark.parametrize("local_steps", range(1, 65))
def test_an_epoch_of_gradients_is_whole_rounds(local_steps):
    run = RunSettings.of(estimate="gradient", local_steps=local_steps, steps=local_steps)
    assert 100 <= run.seedflood.refresh_period < 100 + local_steps


def test_operator_and_name_are_part_of_the_run_and_the_list_of_hosts_is_not():
    operator = "ab" * 32
    ids = {RunSettings(**keys).run_id() for keys in ({}, {"operator": operator}, {"name": "two"})}
    assert len({*ids, RunSettings(operator=operator, name="two").run_id()}) == 4


@pytest.mark.parametrize("operator", ["", "ab", "AB" * 32, "xy" * 32])
def test_an_operator_is_named_by_its_public_key(operator):
    with pytest.raises(ValidationError, match="64 hex digits as `seedflood keygen` prints them"):
        RunSettings(operator=operator)
