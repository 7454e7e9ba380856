"""Closed runs: who is not on the roster is not heard, at any host, and the others train on as if it were not there."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from worlds import STORMY, make_world

from seedflood.protocol.seedflood import certificates
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.roster import Entry, Roster
from seedflood.protocol.swarm.swarm import Swarm
from simulation.checks import find_mistakes, find_stuck
from simulation.gasloc import runs as gasloc
from simulation.operator import Operator, find_strangers
from simulation.profiles import ROSTER
from simulation.seedflood import runs
from simulation.seedflood.accomplices import Accomplice
from simulation.seedflood.checks import find_violations, has_equal_digests

WINDOWS = ("strict", "bounded")
MODES = pytest.mark.parametrize("window", WINDOWS)


def judge(world, operator):
    """Everyone who belongs to the run ends it, with all of its updates and equal replicas."""
    world.run(600.0)
    assert find_stuck(world.honest) == []
    assert find_violations(world.honest) == []
    assert has_equal_digests(world.honest)
    assert find_strangers(world.honest, operator.roster) == []
    listed = {entry.origin for entry in operator.roster.entries}
    assert {origin for host in world.honest for origin in host.node.frontier.origins} <= listed
    assert {host.roster for host in world.honest} == {operator.roster}


@MODES
def test_a_closed_run_trains_like_an_open_one(window):
    ends = []
    for is_closed in (False, True):
        world = make_world(window=window)
        operator = Operator(world) if is_closed else None
        world.rng.seed(7)
        world.start()
        if operator is not None:
            judge(world, operator)
        else:
            world.run()
        ends.append((world.clock.now, world.hosts[0].ledger.digest()))
    assert ends[0] == ends[1]


def test_a_stranger_that_dials_is_refused_and_leaves_no_trace():
    world = make_world(window="bounded", steps=40)
    operator = Operator(world)
    stranger = operator.add_stranger([0, 2])
    world.start()
    judge(world, operator)
    assert all(stranger.origin not in host.node.neighbours for host in world.honest)
    for index in (0, 2):
        assert world.network.refusals[index, stranger.index, "roster"] > 2
        assert world.hosts[index].node.admission.refused["stranger"] > 2
        assert not [
            event for event in world.hosts[index].events if event.name == "member joined" and "stranger" in event.facts
        ]


@MODES
@pytest.mark.parametrize("removed_at", [0, 8])
def test_who_is_admitted_in_place_of_a_removed_host_begins_where_the_others_are(window, removed_at):
    """Removed before the run began, it was never awaited; later, its place is not free."""
    world = make_world("complete", 4, window=window, steps=32, weather=STORMY)
    operator = Operator(world)
    if removed_at == 0:
        operator.remove(3, at=0)
    world.start()
    world.run_until_step(8)
    if removed_at > 0:
        operator.remove(3, at=0)
    world.run_until_step(16)
    newcomer = operator.admit([0, 1], at=0)
    world.start_later(newcomer, 0.5)
    judge(world, operator)
    own = [step for origin, step in world.chronicle.updates if origin == newcomer.origin]
    assert min(own) >= 12


def test_hosts_that_leave_and_return_before_a_strict_run_begins_are_no_sign_that_it_has():
    result = runs.simulate(runs.Plan(clients=5, seed=320, steps=40, closed=True))
    assert result.is_good, (result.violations, result.stuck)


def test_newcomers_to_a_strict_run_keep_nobody_waiting_whatever_crashes():
    for seed in (14, 20, 22):
        plan = runs.Plan(clients=6, topology="complete", seed=seed, steps=40, closed=True, profile="crashes")
        result = runs.simulate(plan)
        assert result.is_good, (result.violations, result.stuck)
        assert result.faults["admit"]


def test_a_run_that_begins_with_hosts_that_were_admitted_meanwhile_waits_for_none_of_the_first():
    result = runs.simulate(runs.Plan(9, "grid", 70205, 24, "strict", "adoption", closed=True))
    assert result.is_good, (result.violations, result.stuck)


def test_who_told_hosts_two_things_is_named_though_a_certificate_was_found_before_they_compared():
    plan = runs.Plan(clients=6, topology="bridge", seed=79, window="bounded", profile="liars", closed=True)
    result = runs.simulate(plan)
    assert result.is_good, (result.violations, result.stuck)


@pytest.mark.parametrize("votes_told_on", [certificates.CERTIFIED_EPOCHS_SENT, 1])
def test_who_returns_with_a_step_that_came_too_late_for_the_votes_takes_the_sum_of_the_others(
    votes_told_on, monkeypatch
):
    """Even if it is told no votes on that epoch any more, since it is long over."""
    monkeypatch.setattr(certificates, "CERTIFIED_EPOCHS_SENT", votes_told_on)
    result = runs.simulate(runs.Plan(clients=6, topology="bridge", seed=49, window="strict", closed=True))
    assert result.is_good, (result.violations, result.stuck)


def test_who_returns_takes_the_sum_of_the_last_round_that_it_waits_for_in_place_of_bundles_that_nobody_has_any_more():
    """Of the round before the one that it measured at once, which it has not applied yet: rounds overlap by one."""
    result = runs.simulate(runs.Plan(clients=6, topology="bridge", seed=201, window="strict", closed=True))
    assert result.is_good, (result.violations, result.stuck)


@pytest.mark.parametrize(("topology", "seed"), [("grid", 67), ("grid", 25), ("bridge", 11), ("random-regular", 61)])
def test_who_was_away_when_the_others_went_on_without_a_removed_host_can_join(topology, seed):
    """It holds the bundles of the epoch whose certificate shows the first roster to be over, and not that one."""
    result = runs.simulate(runs.Plan(clients=6, topology=topology, seed=seed, window="bounded", closed=True))
    assert result.is_good, (result.violations, result.stuck)


@pytest.mark.parametrize(("window", "seed"), [("strict", 1), ("strict", 3), ("bounded", 2)])
def test_a_host_that_is_removed_loses_its_links_at_once_and_nobody_waits_for_it(window, seed):
    world = make_world("complete", 5, window=window, steps=24, seed=seed, weather=STORMY)
    operator = Operator(world)
    world.start()
    world.run_until_step(8)
    operator.remove(4, at=0)
    world.run_for(0.001)
    assert not world.network.is_linked(0, 4)
    judge(world, operator)
    assert world.hosts[4].is_removed or not world.hosts[4].node.neighbours
    assert all(host.node.step == 24 for host in world.honest)


@MODES
def test_a_removed_host_that_goes_on_is_heard_by_nobody(window):
    world = make_world("complete", 5, window=window, steps=40, seed=5)
    operator = Operator(world)
    world.hosts[4].operator = world.hosts[4].roster = None  # it heeds no roster
    world.start()
    world.run_until_step(10)
    operator.remove(4, at=1)
    world.run_for(1.0)
    before = max(host.node.frontier.last(world.hosts[4].origin) for host in world.honest)
    judge(world, operator)
    assert {host.node.frontier.last(world.hosts[4].origin) for host in world.honest} == {before}
    assert sum(world.network.refusals[host.index, 4, "removed"] for host in world.honest) > 0


@pytest.mark.parametrize("seed", [1, 2])
def test_what_an_accomplice_passes_on_of_strangers_is_neither_kept_nor_verified(seed):
    world = make_world("complete", 6, window="bounded", steps=40, seed=seed)
    operator = Operator(world)
    accomplice = Accomplice(world, world.hosts[5], operator)
    verified = Counter()
    for host in world.hosts:

        def verify(key, message, signature, check=host.verify):
            verified[key] += 1
            return check(key, message, signature)

        host.verify = verify
    world.cast_out(world.hosts[5].origin)
    accomplice.begin()
    world.start()
    judge(world, operator)
    assert min(accomplice.lies.values()) > 20
    assert [verified[key] for key in accomplice.strangers] == [0, 0, 0]
    strange = {Member(key, "s", 1).origin for key in accomplice.strangers}
    for host in world.honest:
        assert host.node.admission.refused["stranger"] > 20
        assert not strange & {bundle.origin for bundle in host.journal.bundles.values()}
        assert not [event for event in host.events if "s0" in str(event.facts)]


def test_who_joins_after_a_removal_learns_what_the_removed_one_had_published():
    world = make_world("complete", 5, window="bounded", steps=40, seed=3)
    operator = Operator(world)
    late = world.hosts[3]
    for host in world.hosts:
        if host is not late:
            world.start_later(host, 0.1)
    world.run_until_step(12)
    operator.remove(4, at=0)
    world.start_later(late, 0.5)
    judge(world, operator)
    held = [host.node.frontier.last(world.hosts[4].origin) for host in (late, world.hosts[0])]
    assert held[0] == held[1] > 5


def test_a_host_that_was_down_hears_of_the_removal_when_it_returns_and_keeps_to_it():
    world = make_world("complete", 5, window="bounded", steps=60, seed=4)
    operator = Operator(world)
    world.hosts[4].operator = None
    world.start()
    world.run_until_step(6)
    world.hosts[2].crash()
    operator.remove(4, at=0)
    world.start_later(world.hosts[2], 1.0)
    world.run_for(4.0)
    assert world.hosts[2].roster == operator.roster
    world.crash(2, down_seconds=0.5)
    judge(world, operator)
    assert not world.network.is_linked(2, 4)


def test_a_host_that_had_only_said_that_it_is_there_is_absent_once_it_was_removed():
    world = make_world("complete", 3, window="bounded")
    operator = Operator(world)
    host, removed = world.hosts[0], world.hosts[2]
    world.start()
    assert world.clock.run(lambda: any(m.origin == removed.origin for m in host.journal.members()), 5.0)
    assert not any(m.origin == removed.origin and m.has_spoken for m in host.journal.members())
    host.crash()
    operator.remove(2, at=0)
    world.start_later(host, 0.1)
    world.run_for(0.2)
    assert host.node.membership.has_stand_in(removed.origin)
    judge(world, operator)


def test_of_two_rosters_with_one_serial_all_hosts_choose_the_same_and_say_so():
    world = make_world("ring", 4, window="bounded", steps=30)
    operator = Operator(world)
    world.start()
    world.run_until_step(4)
    spare = [Entry(f"spare{k}", bytes([k]) * 32) for k in range(2)]
    two = [operator.sign(operator.roster.adding(one)) for one in spare]
    operator.give(two[0], 0)
    operator.give(two[1], 2)
    operator.roster = two[1] if two[1].replaces(two[0], operator.key, "") else two[0]
    judge(world, operator)
    told = [host.name for host in world.hosts if any("one serial" in event.name for event in host.events)]
    assert told


def test_an_entry_that_runs_out_is_a_removal_and_one_that_begins_an_admission():
    world = make_world("complete", 5, window="bounded", steps=100_000, seed=6)
    operator = Operator(world)
    entries = list(operator.roster.entries)
    ends = [Entry(one.name, one.public_key, not_after=8 if one.name == "h4" else None) for one in entries]
    operator.roster = operator.sign(Roster(2, tuple(ends)))
    for host in world.hosts:
        host.roster = operator.roster
    world.start()
    world.run_for(7.0)
    assert world.network.is_linked(0, 4)
    world.run_for(6.0)
    assert not world.hosts[4].is_removed  # its clock may be wrong, so it waits
    assert world.hosts[4].node.access.is_untimely
    assert not world.hosts[4].node.neighbours
    held = {host.node.frontier.last(world.hosts[4].origin) for host in world.hosts[:4]}
    world.run_for(5.0)
    assert {host.node.frontier.last(world.hosts[4].origin) for host in world.hosts[:4]} == {max(held)}


@pytest.mark.parametrize(("seed", "is_heedless"), [(1, False), (2, True)])
def test_hosts_of_gasloc_end_without_one_that_was_removed(seed, is_heedless):
    plan = gasloc.Plan(clients=5, topology="complete", steps=40, seed=seed, local_steps=2, profile="none", gamma=0.0)
    plan = replace(plan, matching="two")
    profile, rng = gasloc.PROFILES["none"], random.Random(seed)
    climate = gasloc.draw_climate(profile.climates, profile.weather, 5, rng)
    world = gasloc._make_world(plan, profile, gasloc.make_topology("complete", 5), climate, rng)
    operator = Operator(world)
    if is_heedless:
        world.hosts[4].operator = world.hosts[4].roster = None
    world.start()
    world.run_until_step(12)
    operator.remove(4, at=0)
    world.run(600.0)
    assert find_stuck(world.honest) == []
    assert find_mistakes(world.honest) == []
    assert {host.roster for host in world.honest} == {operator.roster}
    assert len({host.replica.values for host in world.honest}) == 1
    assert not [host for host in world.honest if world.network.is_linked(host.index, 4)]


PLANS = [
    *(runs.Plan(clients=6, topology="complete", steps=12, window=window, closed=True) for window in WINDOWS),
    runs.Plan(clients=9, topology="grid", steps=12, window="bounded", profile="liars", closed=True),
    gasloc.Plan(clients=6, topology="complete", steps=24, closed=True),
    gasloc.Plan(clients=6, topology="complete", steps=24, profile="losses", closed=True),
]


def simulate(plan):
    return (gasloc if isinstance(plan, gasloc.Plan) else runs).simulate(plan)


@pytest.mark.parametrize("plan", PLANS)
def test_closed_runs_survive_every_fault_while_the_roster_changes(plan):
    result = simulate(replace(plan, seed=1))
    assert (result.violations, result.stuck) == ([], [])


def test_a_roster_changes_in_every_way():
    missing = set(ROSTER)
    for seed in range(12):
        missing -= simulate(replace(PLANS[1], seed=seed)).faults.keys()
        if not missing:
            break
    assert not missing


@pytest.mark.long
def test_rosters_that_nobody_passes_on_are_noticed(monkeypatch):
    enrol = Swarm.enrol
    monkeypatch.setattr(Swarm, "enrol", lambda swarm, roster, now, source=None: source or enrol(swarm, roster, now))
    results = (simulate(replace(PLANS[1], seed=seed, profile="none", steps=24)) for seed in range(8))
    assert any("ends with an older roster" in line for result in results for line in result.violations)
