"""A false result of an agreement: no honest host goes on from it, and replicas that have parted are named."""

from dataclasses import replace
from fractions import Fraction

import pytest
from gossip import World

from seedflood.protocol.gasloc.matching import Lottery
from seedflood.protocol.gasloc.messages import Kind, Offer
from seedflood.protocol.gasloc.stated import Result, stated
from simulation.gasloc.replica import Bytes, spell

FALSE = Bytes(spell((Fraction(999),)))
DRIFT = Fraction(1, 8)


def make_world(hosts=4, shape="complete", **rules):
    world = World(clients=hosts, **({"matching": "all", "steps": 40} | rules))
    for k in range(hosts):
        world.add(drift=k * DRIFT)
    getattr(world, shape)()
    return world


def ordered(world):
    return sorted(world.hosts, key=lambda host: host.origin)


def root_of(world, round_):
    return Lottery(world.rules.run_seed).first(round_, [host.origin for host in world.hosts])


def let_give(host, *, states=True):
    """From now on it gives a false result to whoever listens, at once in each round. states: it also states it."""
    agreement, carrier = host.gasloc.agreement, host.gasloc.carrier
    begin = agreement.begin

    def give(peer, now):
        offer = Offer(Kind.RESULT, agreement.round, FALSE.digest, FALSE.size, len(host.world.hosts), "exact")
        if host.world.rules.is_last_agreement(agreement.round):
            offer = replace(offer, encoding=host.world.rules.last_encoding)
        carrier.offer(peer, FALSE)
        carrier.say(peer, offer)

    def begin_and_give(round_, content, now):
        begin(round_, content, now)
        if states:
            agreement.testimony.ours = Result(round_, FALSE.digest)
            host.node.gasloc._presence.declare()
        for peer in host.node.neighbours:
            give(peer, now)

    agreement.begin, agreement._give = begin_and_give, give


def went_on_from(hosts):
    return {values[0] for host in hosts for _, values in host.agreed}


@pytest.mark.parametrize("shape", ["complete", "ring"])
@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("place", [1, 3])
def test_no_host_goes_on_from_the_result_of_a_host_that_is_not_the_root(shape, states, place):
    world = make_world(shape=shape)
    rounds = range(world.rules.rounds)
    liar = [host for host in ordered(world) if host.origin != root_of(world, rounds[-1])][place - 1]
    let_give(liar, states=states)
    world.finish()
    honest = [host for host in world.hosts if host is not liar]
    its_own = {round_ for round_ in rounds if root_of(world, round_) == liar.origin}
    assert {round_ for host in honest for round_, values in host.agreed if values[0] == 999} <= its_own
    assert all(len({round_ for round_, _ in host.agreed} - its_own) >= 9 - len(its_own) for host in honest)
    assert len({tuple(host.values) for host in honest}) == 1
    assert any(host.named("another result was offered") for host in honest)
    assert not [host.refused for host in honest if host.refused]


def test_a_false_result_does_not_end_the_wait_for_slow_hosts_at_the_end():
    world = World(clients=4, steps=40, matching="one", agrees_at_end=True)
    for k in range(4):
        world.add(step_seconds=1.0 if k == 0 else 0.25)
    world.complete()
    slow = world.hosts[0]
    liar = max((host for host in world.hosts if host is not slow), key=lambda host: host.origin)
    let_give(liar)
    liar.gasloc.awaited_at_end = lambda now: set()
    world.finish()
    honest = [host for host in world.hosts if host is not liar]
    assert Fraction(999) not in went_on_from(honest)
    assert len({tuple(host.values) for host in honest}) == 1
    assert slow.gasloc.agreement.hosts >= 3


def test_who_missed_the_root_s_word_believes_what_most_others_state():
    world = make_world(5, agrees_at_end=True, matching="one")
    world.run(300, until=lambda: world.hosts[0].gasloc.round >= world.rules.training_rounds)
    late = ordered(world)[2]
    late.kill()
    others = [host for host in world.hosts if host is not late]
    world.run(300, until=lambda: all(host.gasloc.has_result for host in others))
    ordered(world)[0].kill()
    world.revive(late)
    world.run(60, until=lambda: late.finished_at is not None)
    assert late.values == others[-1].values


def test_every_host_states_what_it_has_gone_on_from():
    world = make_world()
    world.finish()
    words = {stated(host.node.membership.get(host.origin)).result for host in world.hosts}
    assert len(words) == 1
    assert words.pop().round == world.rules.rounds - 1
    assert {host.node.view(world.now).figures["unequal_replicas"] for host in world.hosts} == {0.0}


def test_hosts_that_agreed_otherwise_are_counted_and_named():
    world = make_world()
    root, *others = ordered(world)
    world.run(6)
    agreement = others[0].gasloc.agreement
    assert agreement.round > 1
    world.run(10, until=lambda: agreement.stage == "agreed" and agreement.testimony.ours.round == agreement.round)
    agreement.testimony.ours = Result(agreement.round, bytes(32))
    others[0].do(lambda now: others[0].node.gasloc._presence.declare())
    world.run(0.1)
    assert root.node.view(world.now).figures["unequal_replicas"] == 1.0
    assert root.node.view(world.now).words["unequal_to"] == others[0].name
    (event,) = root.named("a host has agreed on other parameters")
    assert event.facts["member"] == others[0].name
    world.run(10, until=lambda: root.gasloc.agreement.round > agreement.round)
    world.run(5)
    assert root.node.view(world.now).figures["unequal_replicas"] == 0.0
