"""Cuts of removed hosts: whatever each host held before, all end with exactly what the operator's cut says."""

import pytest
from worlds import make_world

from seedflood.protocol.swarm.roster import Cut
from simulation.checks import find_stuck
from simulation.operator import Operator
from simulation.seedflood.checks import find_surplus, find_violations, has_equal_digests
from simulation.seedflood.runs import Plan, simulate

WINDOWS = pytest.mark.parametrize("window", ["strict", "bounded"])
AWAY, GONE = 3, 4
STAYING = [0, 1, 2]


class Scene:
    """Five hosts that are all linked. One is removed and heeds no roster, another is cut off with it for a while, and
    so holds updates of it that no others have."""

    def __init__(self, window, *, steps=100, seed=1, step=20, seconds=3.0):
        self.world = make_world("complete", 5, window=window, steps=steps, seed=seed)
        self.operator = Operator(self.world)
        self.gone, self.away = self.world.hosts[GONE], self.world.hosts[AWAY]
        self.gone.operator = self.gone.roster = None
        self.world.chronicle.liars.add(self.gone.origin)
        self.world.chronicle.is_tainted = True  # what is cut off was published, and does not count
        self.world.start()
        self.world.run_until_step(step)
        self.world.network.partition({AWAY, GONE})
        self.operator.remove(GONE, at=0)
        self.world.run_for(seconds)

    def removal(self, index):
        (found,) = self.world.hosts[index].node.view(self.world.clock.now).roster.removals
        return found

    def held(self, index):
        """The steps of the removed host whose updates are in the model of a host."""
        return {step for origin, step in self.world.hosts[index].ledger.applied if origin == self.gone.origin}

    def kept(self):
        """The steps that the cut that counts in the end keeps, of all that the removed host has published."""
        cut = self.operator.roster.named(self.gone.name).cut
        said = {step for origin, step in self.world.chronicle.updates if origin == self.gone.origin}
        return {step for step in said if not cut.excludes(step, step)}

    def unite(self):
        self.world.network.unite()

    def judge(self, *, refuses=False):
        """Everyone ends, with equal replicas and exactly what was not cut off."""
        world = self.world
        world.run(900.0)
        assert find_stuck(world.honest) == []
        assert find_violations(world.honest) == []
        assert has_equal_digests(world.honest)
        assert {host.roster for host in world.honest} == {self.operator.roster}
        views = [self.removal(host.index) for host in world.honest]
        assert all(one.is_settled for one in views)
        assert len({one.held for one in views}) == 1
        if not refuses:
            assert [self.held(host.index) == self.kept() for host in world.honest] == [True] * len(world.honest)

    def told(self, name):
        return [host.index for host in self.world.hosts if any(event.name == name for event in host.events)]


@WINDOWS
def test_a_cut_during_a_partition_takes_what_only_one_host_held(window):
    scene = Scene(window, seconds=6.0)  # enough to repair, and to state what is held
    removal = scene.removal(0)
    assert (removal.same, removal.others, removal.unreached) == (("h1", "h2"), (), ("h3",))
    assert window == "strict" or scene.held(AWAY) > scene.held(0)
    scene.operator.cut(GONE, as_held_by=0, at=0)
    scene.unite()
    scene.judge()
    refused = sum(host.node.admission.refused.get("cut", 0) for host in scene.world.honest)
    assert refused == 0, "nobody tells what a cut excludes to a host that follows it"


def test_the_judge_sees_who_does_not_follow_a_cut():
    scene = Scene("bounded")
    cut = scene.operator.cut(GONE, as_held_by=0, at=0)
    surplus = sorted(scene.held(AWAY) - scene.held(0))
    assert find_surplus([scene.world.hosts[0]], cut) == []
    assert find_surplus([scene.away], cut) == [f"h3 follows the cut of h4 not in the steps {surplus}"]


@pytest.mark.long
@WINDOWS
def test_random_cuts_are_followed_by_all_whatever_else_happens(window):
    struck = 0
    for seed in (1, 2):
        result = simulate(
            Plan(clients=6, topology="complete", seed=seed, steps=40, window=window, closed=True, profile="cuts")
        )
        assert result.is_good, (result.violations, result.stuck)
        struck += result.faults.get("cut", 0)
    assert struck


@pytest.mark.parametrize("is_up", [False, True])
def test_a_host_that_is_killed_before_or_after_it_follows_a_cut_comes_back_without_surplus(is_up):
    scene = Scene("bounded")
    surplus = scene.held(AWAY) - scene.held(0)
    scene.operator.cut(GONE, as_held_by=0, at=0)
    if is_up:
        scene.away.enter(scene.away.driver.enrol, scene.operator.roster)
    scene.away.crash()
    scene.away.roster = scene.operator.roster  # it is on the disk before the journal changes
    scene.unite()
    scene.world.start_later(scene.away, 1.0)
    scene.world.run_for(1.5)
    held = {step for origin, step in scene.away.journal.bundles if origin == scene.gone.origin}
    assert surplus
    assert not surplus & held
    scene.judge()


@pytest.mark.parametrize("seed", [1, 2])
def test_of_two_cuts_with_one_serial_all_follow_the_same(seed):
    scene = Scene("bounded", seed=seed)
    operator = scene.operator
    ours = operator.sign(operator.cutting(GONE, as_held_by=0))
    operator.give(operator.roster, AWAY)  # the removal, which it has not heard of
    theirs = operator.sign(operator.cutting(GONE, as_held_by=AWAY))
    operator.give(ours, 0)
    operator.give(theirs, AWAY)
    scene.world.run_for(1.0)
    assert scene.held(0) != scene.held(AWAY)
    operator.roster = theirs if theirs.replaces(ours, operator.key, "") else ours
    scene.unite()
    scene.judge()
    assert scene.told("the operator has signed two rosters with one serial")


def test_a_cut_of_a_compacted_epoch_is_refused_for_that_epoch_by_all():
    scene = Scene("bounded", steps=200, seconds=0.0)
    scene.unite()
    scene.world.run_for(20.0)
    world = scene.world
    assert all(len(world.hosts[index].journal.closed) > 2 for index in STAYING)
    operator, cut = scene.operator, Cut.keeping([(0, 3)], 0, bytes(32))
    operator.roster = operator.sign(operator.roster.cutting(scene.gone.name, cut))
    operator.give(operator.roster, 1)
    scene.judge(refuses=True)
    assert scene.told("a cut contradicts compacted epochs") == [*STAYING, AWAY]
    assert len(scene.held(0)) > 4
    views = [host.node.view(world.clock.now).roster for host in world.honest]
    assert {one.contradicted for one in views} == {1}


def test_a_host_that_joins_after_a_cut_learns_what_is_left_and_nothing_else():
    scene = Scene("bounded")
    scene.operator.cut(GONE, as_held_by=0, at=2)
    scene.unite()
    scene.world.run_for(1.0)
    scene.world.hosts[2].lose_disk()
    scene.world.start_later(scene.world.hosts[2], 1.0)
    scene.judge()
