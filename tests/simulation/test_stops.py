"""A run that stops before its last step (`stop_after`): hosts end together, whatever happens to them."""

import pytest

from seedflood.protocol.seedflood.outputs import Stopped
from simulation.seedflood.host import SeedfloodHost
from simulation.seedflood.runs import Plan, simulate

STOP = 16


@pytest.fixture
def stopping(monkeypatch):
    """Models find that the run is over when they are to measure this step or a later one. Yields the steps at which
    they said so."""
    measured, steps = SeedfloodHost._measured, set()

    def answer(host, order):
        if order.step < STOP:
            return measured(host, order)
        steps.add(order.step)
        return host.driver.answered(Stopped(order.step))

    monkeypatch.setattr(SeedfloodHost, "_measured", answer)
    return steps


@pytest.mark.parametrize("seed", range(1, 9))
def test_hosts_that_crash_are_cut_off_and_leave_stop_at_the_same_step(stopping, seed):
    plan = Plan(clients=5, topology="ring", seed=seed, steps=20, profile="all", refresh_period=4)
    result = simulate(plan)
    assert (result.healed, result.stuck, result.violations) == (True, [], [])
    assert result.frontiers_equal
    assert result.digests_equal
    assert stopping == {STOP}
