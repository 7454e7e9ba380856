"""Two processes with one key: a host is started on another machine, with its key alone, while it runs on."""

import pytest
from worlds import make_world, run_to_the_end

from seedflood.protocol.seedflood.bundles import make_bundle
from seedflood.protocol.seedflood.phase import Phase
from simulation.network import Weather
from simulation.seedflood.checks import find_mistakes, find_violations
from simulation.seedflood.runs import Plan, simulate

WINDOWS = ["strict", "bounded"]


def make_twins(window="bounded", steps=60):
    world = make_world("ring", 5, steps=steps, window=window)
    world.start()
    world.run_until_step(5)
    older = world.hosts[1]
    return world, older, world.copy_key(older)


@pytest.mark.parametrize("window", WINDOWS)
def test_of_two_processes_with_one_key_the_older_ends_and_the_newer_goes_on(window):
    world, older, newer = make_twins(window)
    newer.start()
    world.run_for(5)
    assert (older.is_up, older.is_retired) == (False, True)
    assert older not in world.honest
    assert newer in world.honest
    world.run()
    assert find_violations(world.honest) == []
    assert newer.node.step >= 59
    assert newer.name == older.name == "h1"


def test_a_run_does_not_wait_for_the_older_one_to_end_it():
    world, older, newer = make_twins()
    newer.start()
    assert older in world.honest
    assert world.run()
    assert older not in world.honest


def test_the_older_is_not_started_again():
    world, older, newer = make_twins()
    newer.start()
    world.run_for(5)
    world.start_later(older, 0.1)
    world.run_for(1)
    assert not older.is_up


def test_one_whom_only_its_past_life_seems_to_have_replaced_is_started_again_and_goes_on():
    world = make_world("ring", 5, steps=60, window="strict")
    world.start()
    world.run_until_step(5)
    world.hosts[1].superseded()
    assert not world.hosts[1].is_up
    world.run()
    assert find_violations(world.honest) == []
    assert world.hosts[1].is_finished


def test_a_newer_one_that_starts_after_the_end_takes_over_all_the_same():
    world, older, newer = make_twins(steps=8)
    run_to_the_end_without(world, newer)
    newer.start()
    world.run_for(60)
    assert not older.is_up
    assert newer.is_finished
    assert find_violations(world.honest) == []


def run_to_the_end_without(world, twin):
    world.clock.run(lambda: all(host.is_done for host in world.hosts if host is not twin), 600)


def test_the_judges_see_two_that_both_go_on():
    world, _, newer = make_twins(steps=8)
    run_to_the_end_without(world, newer)
    world.network.partition({newer.index})
    newer.start()
    world.run_for(5)
    assert "h1 runs 2 times" in find_violations(world.honest)


def test_what_the_older_kept_and_told_nobody_went_with_it():
    world, older, newer = make_twins()
    told = older.node.frontier.last(older.origin)
    assert world.clock.run(lambda: world.hosts[2].node.frontier.last(older.origin) >= told, 10), "else it is lost"
    world.network.partition({older.index})
    newer.start()
    world.run_for(2)
    bundle = max((one for one in world.chronicle.doubles[older.origin]), key=lambda one: one.step)
    world.network.unite()
    world.run()
    assert world.chronicle.bundles.get((bundle.origin, bundle.step)) != bundle
    assert find_violations(world.honest) == []


@pytest.fixture(scope="module")
def bereft():
    """A world at the end of its run. The older process told a step, which was lost on the way, and a later one; it
    ended before anybody had asked for the first. Beside it: the step."""
    world, older, newer = make_twins()
    lost = older.node.frontier.last(older.origin) + 1
    world.network.weather = Weather(lose=1.0)
    world.clock.run(lambda: older.node.frontier.holds(older.origin, lost), 10)
    world.network.weather = Weather()
    world.clock.run(lambda: world.hosts[2].node.frontier.last(older.origin) > lost, 10)
    newer.start()
    world.clock.run(lambda: all(host.is_done for host in world.honest), 600)
    assert older not in world.honest
    return world, older.origin, lost


def test_what_only_the_older_has_when_it_ends_is_gone_and_every_host_tells_that_the_run_ends_without_it(bereft):
    world, origin, lost = bereft
    assert not any(host.node.frontier.holds(origin, lost) for host in world.honest)
    assert find_violations(world.honest) == []
    told = {"missing": [f"h1 steps {lost}-{lost}"]}
    for host in world.honest:
        ends = [event for event in host.events if event.name == "the run ends without some updates"]
        assert [event.facts | told for event in ends] == [event.facts for event in ends] != []


def test_in_strict_windows_the_newer_skips_what_only_the_older_had():
    """It knows from a statement that these steps were said, and nobody can tell it what."""
    result = simulate(Plan(clients=6, topology="grid", seed=280, window="strict", closed=True))
    assert result.is_good, (result.violations, result.stuck)


def test_the_judges_see_a_hole_of_which_another_disk_has_the_step(bereft, monkeypatch):
    world, *_ = bereft
    monkeypatch.setattr(world.chronicle, "gone", set())
    assert {f"{host.name} ends with 1 holes in its frontier" for host in world.honest} <= set(
        find_violations(world.honest)
    )


def test_the_judges_see_a_hole_of_which_the_newer_told_something_else(bereft, monkeypatch):
    world, origin, lost = bereft
    monkeypatch.setitem(world.chronicle.bundles, (origin, lost), make_bundle(origin, lost, ((7, 7),)))
    assert {f"{host.name} ends with 1 holes in its frontier" for host in world.honest} <= set(
        find_violations(world.honest)
    )


def test_the_judges_see_a_hole_that_is_not_told(bereft, monkeypatch):
    world, *_ = bereft
    monkeypatch.setattr(world.hosts[2], "events", [])
    assert find_violations(world.honest) == ["h2 ends with 1 holes in its frontier, and does not say so"]


def test_a_relay_whose_run_never_ends_need_not_say_what_is_gone_from_it(bereft, monkeypatch):
    """A process that ended took a step with it. Hosts say that when they end."""
    world, *_ = bereft
    monkeypatch.setattr(world.hosts[2], "events", [])
    monkeypatch.setattr(world.hosts[2], "is_relay", True)
    assert find_violations(world.honest) == []


def test_what_one_other_disk_has_when_the_older_ends_is_not_gone():
    world, older, newer = make_twins("bounded")
    newer.start()
    bundles = list(older.own_bundles())
    world.chronicle.doubles[older.origin].update(dict.fromkeys(bundles, older.index))
    world.run_for(5)
    assert older not in world.honest
    assert bundles
    assert not world.chronicle.gone.intersection(bundles)


def test_the_judges_see_that_the_two_told_others_two_things():
    world, older, newer = make_twins()
    newer.start()
    world.run_for(5)
    step = older.node.step
    assert newer.node.phase is not Phase.LEFT
    world.chronicle.say(make_bundle(older.origin, step, ((7, 7),)))
    world.chronicle.say(make_bundle(older.origin, step, ((8, 8),)))
    assert any("spoke twice" in mistake for mistake in find_mistakes(world.honest))


def test_worlds_without_a_second_process_have_none():
    world = make_world("ring", 3)
    world.start()
    run_to_the_end(world)
    assert world.chronicle.doubles == {}
    assert world.honest == world.hosts
