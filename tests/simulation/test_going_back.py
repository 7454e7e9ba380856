"""Hosts go back to what others had applied when they measured, whatever happens around them: and are right whenever
they say that they can."""

from dataclasses import replace

import pytest

from seedflood.protocol.seedflood import algorithm
from seedflood.protocol.seedflood.applied import pack_applied
from simulation.seedflood.runs import Plan, simulate


def plan(window="none", profile="none", **more):
    return Plan(5, "ring", 3, 24, window, profile, refresh_period=16, auditable=True, **more)


@pytest.mark.parametrize("window", ["bounded", "none"])
def test_most_audits_can_be_made(window):
    result = simulate(plan(window, delay=0))
    assert result.is_good, result.violations
    assert result.audits_made > 2 * result.audits_missed


@pytest.mark.parametrize(
    ("window", "profile"), [("bounded", "all"), ("none", "all"), ("none", "adoption"), ("bounded", "liars")]
)
def test_a_host_that_goes_back_has_the_coefficients_that_the_other_had(window, profile):
    result = simulate(plan(window, profile))
    assert result.is_good, result.violations
    assert result.audits_made > 10


def test_so_does_one_beside_a_quorum_that_compacts_early_and_a_copied_key():
    result = simulate(replace(plan("bounded", "all", closed=True), clients=6, seed=228, steps=32, refresh_period=None))
    assert result.is_good, result.violations
    assert result.plan.quorum
    assert result.faults["copy_key"]
    assert result.audits_made > 10


def test_who_states_what_it_had_not_applied_is_not_met_there(monkeypatch):
    """The judge of these runs can complain: an update was applied that is not stated."""

    def without_last(applied, step):
        return pack_applied(applied.below(dict.fromkeys(applied.origins, step - 1)), step)

    monkeypatch.setattr(algorithm, "pack_applied", without_last)
    result = simulate(plan(delay=0))
    assert any("went back to another replica" in violation for violation in result.violations)
