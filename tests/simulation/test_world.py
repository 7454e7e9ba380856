"""Whole runs over whole networks: every published update is applied exactly once, everywhere."""

import pytest
from worlds import STORMY, Witness, make_world, run_to_the_end, run_world

from seedflood.protocol.seedflood.payload import Coefficients, Sparse
from seedflood.protocol.seedflood.window import OpenWindows
from simulation.network import Weather
from simulation.work import Pace
from simulation.world import Everyone

TOPOLOGIES = ["ring", "grid", "tree", "random-regular"]


@pytest.mark.parametrize("window", ["strict", "bounded"])
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_every_update_is_applied_exactly_once_though_links_break_and_frames_come_twice(topology, window):
    world = run_world(topology, 9, steps=6, window=window, weather=STORMY)
    assert world.network.faults["duplicated_frames"] > 0


@pytest.mark.long
def test_thirty_two_hosts_apply_every_update_exactly_once():
    weather = Weather(duplicate=0.02, break_per_second=0.01)
    run_world("random-regular", 32, steps=3, window="bounded", weather=weather)


@pytest.mark.parametrize("clients", [1, 2, 3])
@pytest.mark.parametrize("window", ["strict", "bounded"])
def test_the_smallest_swarms_run(clients, window):
    run_world("complete", clients, window=window, weather=STORMY)


@pytest.mark.parametrize("window", ["strict", "bounded"])
def test_several_local_steps_share_a_bundle(window):
    world = run_world("ring", 5, steps=20, local_steps=5, refresh_period=10, window=window, weather=STORMY)
    assert all(len(bundle.probes) == 5 for bundle in world.chronicle.bundles.values())


@pytest.mark.parametrize("window", ["strict", "bounded"])
@pytest.mark.parametrize("compression", [Coefficients((5, 2)), Coefficients((3,), sparse=Sparse(2, 7, 3))])
def test_payloads_reach_everyone_and_are_applied_exactly_once(compression, window):
    world = run_world("ring", 4, local_steps=2, compression=compression, window=window, weather=STORMY)
    told = {told for bundle in world.chronicle.bundles.values() for told in bundle.probes}
    assert {len(payload) for payload in told} == {compression.size}


@pytest.mark.parametrize("seed", range(3))
def test_any_seed_ends_well(seed):
    run_world("random-regular", 6, seed=seed, window=["strict", "bounded"][seed % 2], weather=STORMY)


def test_in_strict_windows_everyone_measures_on_the_sum_of_all_that_came_before(monkeypatch):
    witness = Witness(monkeypatch)
    run_world("grid", 9, steps=6, weather=STORMY)
    assert len(witness.measured) == 9 * 6
    assert all(below == 9 * step and beyond == 0 for _, step, below, beyond in witness.measured)


@pytest.mark.parametrize("delay", [1, 2, 3, 9])
def test_with_a_delay_everyone_measures_on_the_sum_of_the_rounds_up_to_it_and_of_nothing_else(delay, monkeypatch):
    witness = Witness(monkeypatch)
    run_world("grid", 9, steps=12, local_steps=2, refresh_period=4, delay=delay, weather=STORMY)
    assert len(witness.measured) == 9 * 6
    assert all(below == 9 * max(0, step - 2 * delay) for _, step, below, _ in witness.measured)
    assert all(beyond == 0 for *_, beyond in witness.measured)


def test_windows_that_close_before_they_are_in_the_way_make_sums_differ(monkeypatch):
    monkeypatch.setattr(OpenWindows, "in_the_way", lambda windows, following: windows.oldest)
    monkeypatch.setattr(OpenWindows, "close_reason", lambda windows, window, now: "all received")
    witness = Witness(monkeypatch)
    world = make_world("grid", 9, steps=12, delay=1, weather=STORMY)
    world.start()
    world.run(60)
    assert not all(below == 9 * max(0, step - 1) and beyond == 0 for _, step, below, beyond in witness.measured)


@pytest.mark.parametrize("delay", [1, 3])
@pytest.mark.parametrize("seed", range(2))
def test_kill_9_between_any_two_writes_changes_nothing_of_what_is_measured_on(seed, delay, monkeypatch):
    witness = Witness(monkeypatch)
    world = make_world("ring", 5, seed=seed, steps=12, delay=delay, weather=STORMY)
    world.start()
    for step in (1, 4, 8):
        world.run_until_step(step)
        for host in world.hosts[:3]:
            host.die_within(world.rng.randint(0, 20))
    run_to_the_end(world)
    assert sum(name == "crash" for _, _, name, _ in witness.trace) >= 5
    assert all(below == 5 * max(0, step - delay) and beyond == 0 for _, step, below, beyond in witness.measured)


def test_slow_hops_cost_no_time_once_the_delay_covers_them():
    seconds = []
    for delay in (0, 1, 2):
        weather = Weather(delay_min=0.1, delay_max=0.1)
        world = make_world("ring", 4, steps=30, delay=delay, pace=Pace(0.2, 0.2), weather=weather)
        world.start()
        assert world.run_until_step(29)
        seconds.append(world.clock.now)
    at_once, one_ahead, two_ahead = seconds
    assert one_ahead < 0.7 * at_once
    assert two_ahead == pytest.approx(one_ahead, rel=0.1)


def test_strict_windows_all_close_because_all_were_heard():
    world = run_world("ring", 8, weather=STORMY)
    assert {window.reason for host in world.hosts for window in host.windows} == {"all received"}
    assert all(window.late == 0 and window.received == 8 for host in world.hosts for window in host.windows)


def test_a_slow_host_makes_updates_late_and_loses_none():
    world = make_world("ring", 6, steps=20, window="bounded")
    world.hosts[0].pace = Pace(1.0, 2.0)
    world.start()
    assert world.run()
    assert len(world.hosts[0].published) < 20
    assert sum(window.late for host in world.hosts for window in host.windows) > 0


class Lagging:
    """A host that counts how often it is asked. turns: what has happened to it."""

    def __init__(self):
        self.turns, self.is_done, self.asked = 0, False, 0

    def holds(self):
        self.asked += 1
        return self.is_done


def test_hosts_are_asked_again_only_if_something_has_happened_to_the_one_that_lags():
    hosts = [Lagging() for _ in range(3)]
    everyone = Everyone(hosts, Lagging.holds)
    hosts[0].is_done = True
    assert not any(everyone() for _ in range(10))
    assert [host.asked for host in hosts] == [1, 1, 0]
    hosts[1].is_done, hosts[1].turns = True, 1
    assert not everyone()
    hosts[2].is_done, hosts[2].turns, hosts[0].is_done = True, 1, False
    assert not everyone(), "the first is not done any more"
    hosts[0].is_done, hosts[0].turns = True, 1
    assert everyone()
