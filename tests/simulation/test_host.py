"""What can happen to a host happens as it would to a process."""

import pytest
from worlds import make_world, run_to_the_end

from simulation.seedflood.checks import find_mistakes
from simulation.work import Pace


@pytest.fixture
def world():
    world = make_world("ring", 4, steps=16)
    world.start()
    world.run_until_step(3)
    return world


def test_a_paused_host_does_nothing_and_then_everything_that_came(world):
    host = world.hosts[0]
    host.pause()
    held = host.node.frontier.count()
    world.run_for(5)
    assert host.node.frontier.count() == held
    host.resume()
    assert host.node.frontier.count() > held
    run_to_the_end(world)


def test_what_a_paused_host_was_to_hear_dies_with_it(world):
    host = world.hosts[0]
    host.pause()
    world.run_for(1)
    world.crash(0, down_seconds=1)
    host.resume()
    assert not host.is_up
    run_to_the_end(world)


@pytest.mark.parametrize("writes", range(0, 40, 3))
def test_a_host_may_die_between_any_two_writes_and_sends(world, writes):
    host = world.hosts[0]
    incarnation = host.journal.incarnation
    host.die_within(writes)
    run_to_the_end(world)
    assert host.journal.incarnation == incarnation + 1


def test_a_slow_host_measures_slowly():
    assert Pace(1.0, 2.0).slowed(10) == Pace(10.0, 20.0)


def test_a_full_disk_stops_publishing_but_not_hearing(world):
    host = world.hosts[0]
    host.journal.is_full = True
    world.run_for(3)
    said, held = len(host.published), host.node.frontier.count()
    assert host.driver.is_disk_full
    world.run_for(3)
    assert len(host.published) == said
    assert host.node.frontier.count() >= held
    host.journal.is_full = False
    run_to_the_end(world)
    assert len(host.published) == 16


def test_a_lost_disk_is_pulled_again_and_says_nothing_new_about_old_steps(world):
    world.run_for(0.03)
    host = world.hosts[0]
    said = dict(host.published)
    host.lose_disk()
    assert len(host.journal.bundles) == 0
    world.start_later(host, 1.0)
    run_to_the_end(world)
    assert host.published.items() >= said.items()


def test_a_damaged_journal_is_made_whole_by_the_neighbours(world):
    host = world.hosts[0]
    host.crash()
    assert host.journal.damage(world.rng, share=0.5, spare=host.origin) > 0
    world.start_later(host, 0.5, is_journal_damaged=True)
    run_to_the_end(world)


def test_a_flipped_coefficient_is_found_and_made_again(world):
    host = world.hosts[0]
    assert host.corrupt()
    run_to_the_end(world)
    assert any(event.name == "replica rebuilt" and event.facts["was_wrong"] for event in host.events)


def test_a_host_without_coefficients_has_nothing_to_flip():
    world = make_world("ring", 3)
    world.start()
    world.run_for(1)
    world.hosts[0].ledger.sums.clear()
    assert not world.hosts[0].corrupt()


def test_a_lost_disk_is_filled_with_sums_of_what_the_others_have_compacted():
    world = make_world("ring", 5, steps=40, refresh_period=4)
    world.start()
    first = world.hosts[0]

    def is_heard() -> bool:  # else what it said last may be lost with its links, and nobody knows of it
        return len({host.node.seedflood.frontier.last(first.origin) for host in world.hosts}) == 1

    assert world.clock.run(lambda: all(0 in host.journal.closed for host in world.hosts), 60)
    assert world.clock.run(is_heard, 60)
    first.lose_disk()
    world.start_later(first, 1.0)
    run_to_the_end(world)
    adopted = world.hosts[0].journal
    assert 0 in adopted.closed
    assert not any(step < 4 for _, step in adopted.bundles)


def test_mistakes_of_a_life_outlive_it(world):
    host = world.hosts[0]
    host.ledger.apply(next(iter(world.chronicle.bundles.values())).updates())
    host.crash()
    assert any("2 times" in line for line in find_mistakes(world.hosts))
