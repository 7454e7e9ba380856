"""A disk that becomes full at one write of a run, whichever that is, beside a liar that waits for it."""

import pytest

from simulation.seedflood import fullness
from simulation.seedflood.fullness import Plan, each_write

SPARSELY = 40
"""Every so manieth write is tried each time; every one in the long tests."""

PLANS = [
    Plan(window, closed=closed, is_killed=is_killed)
    for window in ("strict", "bounded", "none")
    for closed in (False, True)
    for is_killed in (False, True)
]


def find_bad(plans):
    results = ((plan, fullness.simulate(plan).complaints) for plan in plans)
    return [(plan, complaints) for plan, complaints in results if complaints]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_a_disk_that_gets_full_at_some_write_costs_nobody_the_common_digest(plan):
    assert find_bad(each_write(plan, SPARSELY)) == []


@pytest.mark.long
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_a_disk_that_gets_full_at_any_single_write_costs_nobody_the_common_digest(plan):
    assert find_bad(each_write(plan)) == []


def test_the_liar_is_heard_by_all_and_late():
    """Else the tests above would show nothing."""
    worlds, make_world = [], fullness.SeedfloodWorld
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            fullness, "SeedfloodWorld", lambda *args, **facts: worlds.append(make_world(*args, **facts)) or worlds[-1]
        )
        assert fullness.simulate(Plan("strict")).complaints == []
    (world,) = worlds
    liar = world.hosts[fullness.LIAR].origin
    for host in world.honest:
        assert host.node.frontier.holds(liar, fullness.LATE_STEP)
        assert not any(
            held.origin == liar and held.mark > fullness.LATE_STEP for held in host.journal.closed[0].frontier
        )
