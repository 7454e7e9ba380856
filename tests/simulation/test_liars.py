"""Liars say what no honest host would, and are told apart from the honest by the judges alone."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import make_world

from seedflood.cluster.topology import TOPOLOGIES, make_topology
from seedflood.errors import PeerError
from seedflood.protocol.seedflood.bundles import SCALAR_MAX, Updates, make_bundle
from seedflood.protocol.seedflood.payload import Pairs
from seedflood.transport.codec import decode
from simulation.liars import choose_liars
from simulation.link import FrameEncoder
from simulation.seedflood.checks import find_mistakes, find_violations
from simulation.seedflood.liars import LIES, Liar, let_lie
from simulation.seedflood.runs import Plan, simulate


@given(st.sampled_from(sorted(TOPOLOGIES)), st.integers(1, 30), st.integers())
def test_liars_are_at_most_a_third_and_never_cut_the_honest_ones_apart(topology, clients, seed):
    edges = make_topology(topology, clients, seed=1)
    liars = choose_liars(clients, edges, 1 / 3, random.Random(seed))
    assert len(liars) <= clients / 3
    assert bool(liars) == (clients >= 3)
    honest = set(range(clients)) - liars
    reached, edge = set(), {min(honest)}
    while edge:
        reached |= edge
        edge = {b for one in edges for a, b in (one, one[::-1]) if a in edge and b in honest} - reached
    assert reached == honest


@pytest.fixture
def world():
    world = make_world("ring", 4, steps=40, window="bounded")
    world.start()
    world.run_until_step(3)
    return world


@pytest.mark.parametrize("kind", sorted(LIES.keys() - {"withhold", "seconds"}))
def test_every_lie_fits_into_frames_and_ends_no_decoder(world, kind):
    liar = Liar(world, world.hosts[0], Counter(), sorted(LIES))
    world.run_for(1)
    said = 0
    for _ in range(30):
        for item in LIES[kind](liar):
            for frame in FrameEncoder().encode(item):
                said += 1
                try:
                    decode(frame)
                except PeerError:
                    assert kind in ("limits", "statements", "sums")  # some of theirs are beyond what may be said
    assert said > 5


def test_a_liar_that_withholds_passes_less_on(world):
    told = Counter()
    Liar(world, world.hosts[0], told, ["withhold"])
    world.run_for(5)
    assert told["lie_withheld"] > 0


def test_what_a_liar_tells_beyond_the_clip_is_taken_by_nobody(monkeypatch):
    def shout(liar):
        """The bundle of its next step, validly signed, with the largest scalar that fits into a frame."""
        bundle = liar._make(liar.host.node.step + 1)
        largest = [(loss, SCALAR_MAX) for loss, _ in bundle.probes]
        return [Updates((liar._sign(make_bundle(bundle.origin, bundle.step, largest, bundle.skipped)),))]

    monkeypatch.setitem(LIES, "extremes", shout)
    world = make_world("ring", 4, steps=40, window="bounded", compression=Pairs(limit=1000))
    world.start()
    told = Counter()
    let_lie(world, [0], told, ["extremes"])
    world.run_for(20)
    assert told["lie_extremes"] > 3
    assert sum(host.node.admission.refused.get("payload", 0) for host in world.honest) > 3
    for host in world.honest:
        assert host.node.step > 3
        assert all(abs(scalar) <= 1000 for one in host.journal.bundles.values() for _, scalar in one.probes)
    assert find_violations(world.honest) == []


def test_a_liar_that_tells_two_neighbours_two_things_is_named_by_all_and_nobody_else_is(world):
    told = Counter()
    (liar,) = let_lie(world, [0], told, ["equivocations"])
    world.run_for(60)
    assert told["lie_two_tongues"] > 0
    assert world.chronicle.two_tongued == {liar.host.origin}
    assert all(host.named == {liar.host.origin} for host in world.honest)
    assert find_violations(world.honest) == []


def test_the_honest_are_judged_and_liars_are_not(world):
    told = Counter()
    (liar,) = let_lie(world, [0], told, ["digests", "replays"])
    liar.host.mistakes.append("lied")
    assert world.honest == world.hosts[1:]
    assert find_mistakes(world.honest) == []
    world.run_for(10)
    assert sum(count for kind, count in told.items() if kind.startswith("lie_")) > 5


def test_who_lied_and_is_gone_does_not_come_back(world):
    (liar,) = let_lie(world, [0], Counter())
    liar.end()
    world.start_later(liar.host, 0.1)
    world.run_for(5)
    assert not liar.host.is_up


def test_honest_hosts_whose_replicas_differ_beside_a_liar_are_seen(world):
    world.run()
    world.chronicle.liars = {world.hosts[0].origin}
    world.chronicle.is_tainted = True
    assert find_violations(world.honest) == []
    world.hosts[1].ledger.sums[0] += 1
    assert find_violations(world.honest) == ["digests differ"]


def test_who_tells_of_later_steps_before_all_have_spoken_moves_none_of_the_honest():
    world = make_world("grid", 9, seed=13, steps=12, refresh_period=4)
    told = Counter()
    let_lie(world, [2, 4], told, ["ahead"])
    for index in range(9):
        world.start_later(world.hosts[index], 0.1 * index)
    world.run_for(6)
    assert told["lie_ahead"] > 0
    assert [host.node.membership.get(host.origin).first_step for host in world.honest] == [0] * 7
    assert find_mistakes(world.honest) == []


@pytest.mark.parametrize("seed", [2, 3])
def test_strangers_and_claims_of_liars_keep_no_window_open(seed):
    result = simulate(Plan(clients=12, topology="ring", seed=seed, window="bounded", steps=12, profile="liars"))
    assert (result.violations, result.stuck) == ([], [])
    assert result.liars
