"""A disk that becomes full at one write of a run, whichever that is, beside a liar that waits for it."""

import pytest

from simulation.gasloc import runs as gasloc
from simulation.runs import TrialWithLiars
from simulation.seedflood import fullness
from simulation.seedflood.fullness import Plan, each_write

SPARSELY = 40
"""Every so manieth write is tried each time; every one in the long tests."""

PLANS = [
    Plan(window, closed=closed, is_killed=is_killed)
    for window in ("strict", "bounded")
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


GASLOC_PLANS = [
    gasloc.Plan(5, "complete", 5, 12, "liars"),
    gasloc.Plan(5, "complete", 6, 12, "liars", closed=True),
    gasloc.Plan(5, "complete", 7, 12, "none"),
]
"""In the last one the writes at the end of the run are those of one host alone."""


def struck(plan, write):
    """A run of GASLoC in which the disk of the second honest host gets full at this write, and that host."""
    hosts, begin = [], TrialWithLiars.begin

    def begin_and_strike(trial):
        hosts.append(trial.world.honest[1])
        hosts[0].fill_at(write, fullness.FULL_SECONDS)
        begin(trial)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrialWithLiars, "begin", begin_and_strike)
        result = gasloc.simulate(plan)
    return [*result.violations, *result.stuck], hosts[0]


def find_bad_writes(plan, share):
    _, host = struck(plan, 0)
    complaints = ((write, struck(plan, write)[0]) for write in range(1, host.writes + 1, max(1, host.writes // share)))
    return [one for one in complaints if one[1]]


@pytest.mark.parametrize("plan", GASLOC_PLANS, ids=str)
def test_a_full_disk_at_some_write_keeps_no_host_of_gasloc_from_its_end(plan):
    assert find_bad_writes(plan, 6) == []


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("plan", GASLOC_PLANS, ids=str)
def test_a_full_disk_at_any_write_keeps_no_host_of_gasloc_from_its_end(plan):
    """Each write of the last plan. The first one has 840, of which every eighth is tried: a run of it takes seconds."""
    assert find_bad_writes(plan, 100) == []


def test_a_host_whose_result_found_no_space_writes_it_later_and_says_that_it_has_ended():
    plan = GASLOC_PLANS[-1]
    _, host = struck(plan, 0)
    assert [struck(plan, write)[0] for write in range(host.writes - 24, host.writes + 1, 4)] == 7 * [[]]
