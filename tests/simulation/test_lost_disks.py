"""A host that lost its disk, not its key: it contradicts nothing that it said, whomever it meets first."""

import pytest
from worlds import make_world, run_to_the_end

from seedflood.protocol.seedflood.phase import Phase
from seedflood.protocol.swarm.rules import Patience
from simulation.network import Weather
from simulation.seedflood.runs import Plan, simulate
from simulation.work import Pace

WINDOWS = ["strict", "bounded"]


def path(*, steps=60, seed=1, clients=3, **settings):
    """X - A - Y, and more behind Y; nobody is started. Windows are bounded: hosts go on without each other."""
    patience = Patience(start_seconds=1.0)
    return make_world("path", clients, window="bounded", steps=steps, seed=seed, patience=patience, **settings)


def lose_disk(world, host, *keepers):
    """When these hold all that the host said: what is on its way at the very moment is lost with it."""
    last = lambda: world.chronicle.last(host.origin)  # noqa: E731
    assert world.clock.run(
        lambda: last() is None or any(k.node.frontier.holds(host.origin, 0, last().last) for k in keepers), 20
    )
    host.lose_disk()


def lose_disk_of_the_middle(world, *, away_seconds=20.0):
    """A's disk is lost; it meets X alone, until Y has dialled again."""
    x, a, y, *_ = world.hosts
    lose_disk(world, a, y)
    world.network.partition({0, 1})
    world.start_later(x, 0.0)
    world.start_later(a, 0.1)
    world.run_for(away_seconds)
    world.network.heal()


@pytest.mark.parametrize("clients", [3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_one_that_meets_a_newcomer_before_its_old_neighbours_contradicts_nothing(clients, seed):
    world = path(seed=seed, clients=clients)
    for host in world.hosts[1:]:
        host.start()
    world.run_until_step(20)
    lose_disk_of_the_middle(world)
    run_to_the_end(world)


@pytest.mark.parametrize("clients", [3, 5])
def test_one_that_meets_somebody_who_knows_only_its_early_words_contradicts_nothing(clients):
    world = path(clients=clients)
    world.start()
    world.run_until_step(4)
    world.hosts[0].crash()
    world.run_until_step(20)
    lose_disk_of_the_middle(world)
    run_to_the_end(world)


def test_its_new_statement_makes_nobody_forget_the_last_one_that_spoke():
    """X - A - Y - Z: A lost its disk and is known again to all before Y, which it was linked with, is back."""
    world = path(clients=4)
    for host in world.hosts[1:]:
        host.start()
    world.run_until_step(20)
    _, a, y, _ = world.hosts
    lose_disk(world, a, y)
    y.crash()
    world.start_later(world.hosts[0], 0.0)
    world.start_later(a, 0.1)
    world.run_for(5)
    a.lose_disk()
    world.start_later(a, 0.1)
    world.start_later(y, 20.0)
    run_to_the_end(world)


@pytest.mark.long
def test_it_waits_for_a_former_neighbour_as_long_as_that_is_away_and_says_so():
    world = path(clients=3, steps=4000)
    world.start()
    world.run_until_step(10)
    x, a, y = world.hosts
    lose_disk(world, a, x)
    y.crash()
    world.start_later(a, 0.1)
    world.run_for(300)
    assert a.node.phase is Phase.JOINING
    assert [(one.kind, one.name) for one in a.node.blockers(a.clock.now)] == [("former neighbour", y.name)]
    y.start()
    world.run_for(60)
    assert a.node.phase is not Phase.JOINING


@pytest.mark.parametrize("window", WINDOWS)
def test_a_new_cluster_starts_at_once(window):
    world = make_world("ring", 4, window=window, steps=1000)
    world.start()
    world.run_for(5)
    assert min(host.node.step for host in world.hosts) > 5


@pytest.mark.parametrize("window", WINDOWS)
def test_keys_that_nobody_knows_start_even_if_they_are_not_marked_as_fresh(window):
    world = make_world("ring", 4, window=window)
    for host in world.hosts:
        host.is_key_fresh = False
    world.start()
    run_to_the_end(world)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("seed", range(4))
def test_a_sigterm_while_it_catches_up_takes_back_nothing(window, seed):
    world = make_world("ring", 4, window=window, steps=30, seed=seed, pace=Pace(0.1, 0.2), weather=Weather())
    world.start()
    world.run_until_step(8)
    world.run_for(1)
    before, host, after, _ = world.hosts
    lose_disk(world, host, before, after)
    host.start()
    assert world.clock.run(lambda: host.node.frontier.count() > 0, 20)
    assert host.node.phase is Phase.JOINING
    host.leave()
    world.run_for(1)
    host.crash()
    world.start_later(host, 5)
    run_to_the_end(world)
    others = [other.node.membership for other in world.hosts]
    assert all(membership.taking_part == 4 for membership in others)


def test_what_a_second_process_with_a_copied_key_cannot_find_of_the_first_is_measured_again():
    """Of two updates that the first one sent at last, only the later one arrived."""
    result = simulate(Plan(6, "random-regular", 428, 24, "strict", "all"))
    assert result.is_good, (result.violations, result.stuck)
