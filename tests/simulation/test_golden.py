"""Hosts say, keep and apply exactly what they did when the file of golden traces was written (`golden` says how)."""

from dataclasses import replace
from typing import get_args

import golden
import pytest

from seedflood.protocol.gasloc import orders


@pytest.mark.parametrize("name", golden.ALL_PLANS)
def test_a_run_leaves_its_golden_trace(name):
    assert golden.run(golden.ALL_PLANS[name])[1] == golden.read()[name]


@pytest.mark.parametrize("name", golden.TEXTS)
def test_a_small_run_can_be_read_and_is_as_it_was(name):
    assert golden.text_of(golden.TEXTS[name]) == (golden.FOLDER / f"{name}.txt").read_text()


def test_every_golden_trace_is_of_a_run():
    assert list(golden.read()) == list(golden.ALL_PLANS)


@pytest.mark.parametrize("name", ["strict-none", "gasloc-pairs-all"])
def test_golden_traces_are_of_everything_that_happens(name):
    plan = golden.ALL_PLANS[name]
    facts, others = golden.read()[name], golden.run(replace(plan, seed=plan.seed + 1))[1]
    same = {key for key, value in facts.items() if others[key] == value}
    assert same == {"healed", "steps"}


def test_every_order_of_gasloc_has_a_word_in_its_trace():
    assert set(golden.ORDERS) == set(get_args(orders.Order))
