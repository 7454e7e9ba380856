"""Each kind of lie that GASLoC's liars tell about rounds and numbers, told alone by some, harms no honest host."""

from functools import partial

import pytest

from simulation.gasloc import liars, runs
from simulation.gasloc.runs import Plan, simulate

SETTINGS = {
    "crawl": {"steps": 120, "local_steps": 1},
    "restate": {},
    "overstate": {"matching": "full"},
    "overflow": {},
    "mislead": {},
    "promise": {},
}
"""Where each of them did harm."""


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_lie_of_one_kind_keeps_nobody_from_the_end_and_moves_nobody_far(monkeypatch, kind):
    monkeypatch.setattr(runs, "let_lie", partial(liars.let_lie, kinds=[kind]))
    plan = {"clients": 6, "topology": "complete", "steps": 16, "gamma": 0.0, "matching": "one"}
    result = simulate(Plan(**(plan | SETTINGS[kind]), profile="liars", seed=3))
    assert result.faults[f"lie_{kind}"] > 0
    assert (result.violations, result.stuck) == ([], [])
