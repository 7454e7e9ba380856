"""With gamma = 0 the mean of all replicas moves by no more than pairs that mixed at one end alone, whatever breaks and
whoever dies when.

Single faults, each at the instant where it matters; `tests/simulation/test_gasloc_runs.py` mixes them all.
"""

from fractions import Fraction

import pytest
from gossip import World

from seedflood.protocol.gasloc.messages import Accept, Chunk, Offer, decode
from seedflood.protocol.gasloc.rules import Bounds
from seedflood.protocol.swarm.messages import Members, Opaque


def make_pair(**rules):
    world = World(clients=2, **({"steps": 12, "fresh_rounds": 10**6} | rules))
    world.add(0)
    world.add(64)
    world.hosts.sort(key=lambda host: host.origin)
    world.ring()
    return world


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_host_may_be_killed_at_any_instant(victim, stage):
    """At each of the turns of a short run, before it persists, before it sends, and before it computes."""
    turns, lonely = 0, 0
    while True:
        world, count = make_pair(), iter(range(10**9))

        def doom(host, world=world, count=count, turn=turns):
            if host is world.hosts[victim] and next(count) == turn:
                world.at(world.now + 1.0, lambda: world.revive(host))
                return stage
            return None

        world.doom = doom
        world.finish()
        assert world.total() - world.initial == sum(world.lonely())
        assert len(world.lonely()) <= 1 + sum(others != () for _, others in world.hosts[1 - victim].closing)
        lonely += len(world.lonely())
        if next(count) <= turns:
            break
        turns += 1
    assert turns > 60
    assert lonely > 0


def of_kind(message, kind):
    return isinstance(message, Opaque) and isinstance(decode(message.data), kind)


def test_that_all_is_here_is_said_again_where_the_link_broke_before():
    world = make_pair()
    host, partner = world.hosts
    cuts = []

    def drop(sender, receiver, message):
        is_end = of_kind(message, Accept) and decode(message.data).start > 0
        if sender is partner and is_end and not cuts:
            cuts.append(world.now)
            world.at(world.now + 0.01, lambda: world.cut(host, partner, redial=0.5))
        return bool(cuts) and world.now == cuts[0] and is_end

    world.drop = drop
    world.finish()
    assert cuts
    assert world.reasons() == set()
    assert {len(one.mixes) for one in world.hosts} == {3}
    assert world.total() == world.initial


def test_offers_that_are_lost_are_made_again():
    world = make_pair()
    world.drop = lambda sender, receiver, message: of_kind(message, Offer) and world.now < 2.5
    world.finish()
    assert world.reasons() == set()


def test_a_partner_that_dies_is_waited_for_no_longer_than_a_link_may_be_down():
    world = World(clients=2, steps=80, bounds=Bounds(relink_seconds=3.0))
    host, partner = world.add(step_seconds=4.0), world.add(step_seconds=6.0)
    world.ring()
    world.run(60, until=lambda: host.gasloc.exchange.is_open)
    partner.kill()
    killed_at = world.now
    world.run(60, until=lambda: not host.gasloc.exchange.is_open)
    assert 2.9 < world.now - killed_at < 3.1


def test_a_link_that_comes_back_in_time_costs_no_exchange():
    world = World(clients=2, steps=12)
    a, b = world.add(padding=1_000_000), world.add(padding=1_000_000)
    world.plan(a, b, rate=1e6)
    for _ in range(2):
        world.run(60, until=lambda: sum(one.held for one in a.gasloc.carrier._receiving.values()) > 300_000)
        world.cut(a, b)
        world.run(1.1)
    world.finish()
    assert world.reasons() == set()
    assert world.total() == world.initial


def test_who_leaves_has_mixed_with_whom_it_was_done():
    world = World(clients=3, steps=80, matching="full")
    for _ in range(3):
        world.add()
    host, other, mute = sorted(world.hosts, key=lambda host: host.origin)
    world.drop = lambda sender, receiver, message: {sender, receiver} == {host, mute} and of_kind(message, Chunk)
    world.complete()
    world.run(60, until=lambda: host.named("exchanged") and host.gasloc.exchange.is_open)
    host.do(host.node.leave)
    world.run(300)
    assert host.mixes == [(0, (other.origin,))]
    assert world.total() == world.initial


def test_a_partner_that_gives_nothing_is_not_mixed_and_does_not_mix():
    world = make_pair()
    _, mute = world.hosts
    world.drop = lambda sender, receiver, message: sender is mute and of_kind(message, Chunk)
    world.run(300, until=lambda: all(len(one.mixes) == 3 for one in world.hosts))
    assert {others for one in world.hosts for _, others in one.mixes} == {()}
    assert world.total() == world.initial


def test_who_has_all_mixes_when_its_deadline_comes_though_the_partner_does_not_say_that_it_has_all():
    world = make_pair(steps=4)
    host, partner = world.hosts

    def drop(sender, receiver, message):
        return sender is partner and of_kind(message, Accept) and decode(message.data).start > 0

    world.drop = drop
    world.run(300, until=lambda: host.mixes and partner.mixes)
    assert (host.mixes, partner.mixes) == ([(0, (partner.origin,))], [(0, (host.origin,))])
    assert partner.waits[0][0] < host.waits[0][0] <= host.waits[0][1]
    assert world.total() == world.initial


def test_a_host_that_dies_before_its_checkpoint_moves_the_mean_by_its_part_of_one_pair():
    world = make_pair(steps=4)
    _, victim = world.hosts
    victim.disk_seconds = lambda: 1.0
    world.run(300, until=lambda: victim.mixes)
    victim.kill()
    world.at(world.now + 1.0, lambda: world.revive(victim))
    world.finish()
    assert len(world.lonely()) == 1
    assert world.total() - world.initial == sum(world.lonely())
    assert abs(sum(world.lonely())) == Fraction(64, 2)


def test_all_die_at_once_and_go_on():
    world = World(clients=4, steps=80, fresh_rounds=10**6)
    for _ in range(4):
        world.add()
    world.ring()
    for _ in range(3):
        world.run(7.7)
        for host in world.hosts:
            host.kill()
        for host in world.hosts:
            world.revive(host)
    world.finish()
    assert world.total() - world.initial == sum(world.lonely())
    assert max(host.values[0] for host in world.hosts) - min(host.values[0] for host in world.hosts) < Fraction(1)


def test_views_of_the_graph_that_differ_cost_exchanges_and_nothing_else():
    """Two hosts hear of no other link that breaks."""
    reasons, mixes = set(), 0
    for seed in (2, 5):
        world = World(clients=6, steps=28, run_seed=seed)
        for _ in range(6):
            world.add()
        world.complete()
        world.run(0.5)
        blind = set(world.hosts[:2])
        world.drop = lambda sender, receiver, message, blind=blind: isinstance(message, Members) and receiver in blind
        for a, b in [(0, 3), (2, 4), (1, 5), (3, 4)]:
            world.plans = {plan for plan in world.plans if {plan[0], plan[1]} != {world.hosts[a], world.hosts[b]}}
            world.cut(world.hosts[a], world.hosts[b])
        world.finish()
        reasons |= world.reasons()
        mixes += sum(len(others) for host in world.hosts for _, others in host.mixes)
        assert world.total() == world.initial
    assert "taken" in reasons
    assert mixes > 0.8 * 2 * 6 * 7
