"""Hosts say, keep and apply exactly what they did when the file of golden traces was written (`golden` says how)."""

from dataclasses import replace

import golden
import pytest


@pytest.mark.parametrize("name", golden.PLANS)
def test_a_run_leaves_its_golden_trace(name):
    assert golden.run(golden.PLANS[name])[1] == golden.read()[name]


def test_every_golden_trace_is_of_a_run():
    assert list(golden.read()) == list(golden.PLANS)


def test_golden_traces_are_of_everything_that_happens():
    plan = golden.PLANS["strict-none"]
    facts, others = (golden.run(replace(plan, seed=seed))[1] for seed in (plan.seed, plan.seed + 1))
    same = {key for key, value in facts.items() if others[key] == value}
    assert same == {"healed", "steps"}
