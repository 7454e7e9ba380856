"""All hosts go on from the same parameters: the mean of theirs."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from statistics import mean

import pytest
from gossip import World

from seedflood.errors import PeerError
from seedflood.protocol.gasloc.matching import Lottery
from seedflood.protocol.gasloc.messages import Chunk, Decline, Kind, Offer, decode, encode
from seedflood.protocol.gasloc.rules import Bounds
from seedflood.protocol.swarm.messages import Opaque


def make_world(hosts=4, shape="ring", *, how=None, link=None, seed=0, **rules):
    """how: of each host, in turn."""
    world = World(seed=seed, clients=hosts, **({"matching": "all"} | rules))
    for k in range(hosts):
        world.add(**(how or [{}])[k % len(how or [{}])])
    getattr(world, shape)(**(link or {}))
    return world


def results(world):
    """By round, what the hosts that took part went on from."""
    found = {}
    for host in world.hosts:
        for round_, values in host.agreed:
            found.setdefault(round_, []).append(values)
    return found


@pytest.mark.parametrize("hosts", [1, 2, 5, 9])
@pytest.mark.parametrize("shape", ["ring", "complete"])
def test_after_every_round_all_have_the_mean(hosts, shape):
    drifts = [Fraction(k, 8) for k in range(hosts)]
    world = make_world(hosts, shape, how=[{"drift": one} for one in drifts])
    world.finish()
    expected = Fraction(sum(range(hosts)), hosts)
    for values in results(world).values():
        expected += 4 * mean(drifts)
        assert values == [(expected,)] * hosts
    assert len(results(world)) == 10
    assert {host.values[0] for host in world.hosts} == {expected}
    assert all(host.closed == [] for host in world.hosts)


@pytest.mark.parametrize("gamma", [0.5, 0.9])
def test_momentum_is_nesterovs_on_the_mean(gamma):
    world = World(clients=4, matching="all", gamma=gamma)
    for k in range(4):
        world.add(Fraction(1), drift=Fraction(k, 8))
    world.ring()
    world.finish()
    gamma = Fraction(gamma).limit_denominator(10)
    theta = before = Fraction(1)
    for _, values in sorted(results(world).items()):
        found = theta + 4 * mean(Fraction(k, 8) for k in range(4))
        theta = found + gamma * (found - before)
        before = found
        assert values == [(theta,)] * 4


@pytest.mark.parametrize("rules", [{"matching": "one"}, {"matching": "two", "gamma": 0.5}, {"delay_steps": 3}])
def test_a_run_that_ends_by_agreement_ends_with_equal_replicas(rules):
    world = make_world(5, how=[{"drift": Fraction(k, 8)} for k in range(5)], agrees_at_end=True, **rules)
    world.finish()
    assert len({tuple(host.values) for host in world.hosts}) == 1
    if not rules.get("gamma"):
        assert world.total() == world.initial + sum(host.drifted for host in world.hosts)
    assert {host.gasloc.agreement.hosts for host in world.hosts} == {5}
    assert {host.gasloc.round for host in world.hosts} == {world.rules.rounds}


def test_steps_beside_an_agreement_are_kept():
    world = make_world(3, how=[{"drift": Fraction(1)}], delay_steps=2)
    world.finish()
    assert {host.values[0] for host in world.hosts} == {Fraction(1) + 40}


def test_a_host_that_dies_is_left_out_and_healed_when_it_is_back():
    world = make_world(4, how=[{"drift": Fraction(1)}], steps=160, agrees_at_end=True)
    world.run(12)
    victim = world.hosts[1]
    victim.kill()
    world.run(15)
    without = [round_ for round_, values in results(world).items() if len(values) == 3]
    assert without
    world.revive(victim)
    world.finish()
    assert len({tuple(host.values) for host in world.hosts}) == 1
    assert max(len(host.closed) for host in world.hosts) <= 3
    assert [round_ for round_, _ in victim.agreed][-2:] == [39, 40]


@pytest.mark.parametrize("k", range(4))
def test_a_host_that_dies_at_the_end_takes_a_copy_of_the_agreed_parameters(k):
    world = make_world(4, how=[{"drift": Fraction(1), "padding": 300_000}], agrees_at_end=True, steps=16)
    world.run(300, until=lambda: world.hosts[k].gasloc.round == world.rules.training_rounds)
    victim = world.hosts[k]
    victim.kill()
    others = [host for host in world.hosts if host is not victim]
    world.run(300, until=lambda: all(host.gasloc.life.is_over for host in others))
    world.revive(victim)
    world.finish()
    assert len({tuple(host.values) for host in world.hosts}) == 1
    assert victim.finished_at is not None


def test_a_host_that_comes_when_all_have_finished_gets_what_they_agreed_on():
    world = make_world(3, agrees_at_end=True, steps=16)
    world.finish()
    late = world.add(99)
    for host in world.hosts[:3]:
        world.plan(late, host)
    world.finish()
    assert late.values == world.hosts[0].values
    assert late.adopted == 1


def test_a_host_that_nobody_can_give_the_result_ends_apart():
    world = make_world(2, agrees_at_end=True, steps=8)
    world.run(300, until=lambda: world.hosts[0].gasloc.round == 2)
    lone, other = world.hosts
    lone.kill()
    world.run(300, until=lambda: other.finished_at is not None)
    world.plans.clear()
    lone.disk.members.update(other.disk.members)
    lone.start()
    world.run(500, until=lambda: lone.finished_at is not None)
    assert lone.finished_at is not None
    assert lone.named("ends with its own parameters: nobody had those that all agreed on")
    assert max(one.round for one in lone.disk.checkpoints) < world.rules.rounds


def test_at_the_end_fast_hosts_wait_for_slow_ones_and_for_those_that_are_away_for_a_moment():
    how = [{"step_seconds": 0.05}, {"step_seconds": 0.05}, *[{"step_seconds": 1.0}] * 3]
    world = make_world(5, how=how, matching="one", agrees_at_end=True)
    quick = world.hosts[0]
    world.run(300, until=lambda: quick.gasloc.is_waiting and quick.node.blockers(world.now))
    assert {one.kind for one in quick.node.blockers(world.now)} == {"neighbour"}
    for link in list(world.links.values()):
        world.cut(*link.ends, redial=20)
    world.finish()
    assert {host.gasloc.agreement.hosts for host in world.hosts} == {5}
    assert len({tuple(host.values) for host in world.hosts}) == 1


def test_hosts_that_have_waited_at_the_end_for_long_still_agree_with_each_other():
    """None of them has stated anything new for longer than it takes to be thought to stand still."""
    world = World(clients=5, matching="one", agrees_at_end=True)
    for k in range(5):
        world.add(step_seconds=30.0 if k == 4 else 0.25)
    for one, other in pairwise(world.hosts):
        world.plan(one, other)
    *quick, slow = world.hosts
    world.run(40)
    assert all(host.gasloc.is_waiting for host in quick)
    slow.do(lambda now: slow.node.gasloc._presence.declare())  # a link has come or gone: it does not stand still
    world.finish()
    assert {host.gasloc.agreement.hosts for host in quick} <= {4, 5}
    assert len({tuple(host.values) for host in quick}) == 1


def test_hosts_whose_exchanges_take_minutes_do_not_stand_still():
    """Their local steps take a second, and a content takes 40 s over one link."""
    world = World(bounds=Bounds(throughput_min=1e4), matching="all", steps=16)
    for _ in range(4):
        world.add(padding=400_000)
    world.ring(rate=1e4)
    world.finish(20_000)
    last = [values for _, values in sorted(results(world).items())][-2:]
    assert [len(values) for values in last] == [4, 4]
    assert {host.gasloc.agreement.hosts for host in world.hosts} == {4}


def test_a_host_that_is_gone_for_good_is_waited_for_only_some_time():
    world = make_world(3, matching="one", agrees_at_end=True)
    world.run(8)
    world.hosts[0].kill()
    left = world.hosts[1:]
    world.run(300, until=lambda: all(host.finished_at for host in left))
    assert {host.gasloc.agreement.hosts for host in left} == {2}
    assert max(host.finished_at for host in left) < 40 * 0.25 + 60 + 40


def test_a_slower_host_is_waited_for_and_one_that_is_too_slow_takes_what_the_others_found():
    world = make_world(4, how=[{}, {}, {}, {"step_seconds": 2.0}], steps=160)
    world.finish()
    slow = world.hosts[3]
    bound = max(host.gasloc.pace.wait_seconds() for host in world.hosts[:3])
    first, origins = Lottery(world.rules.run_seed).first, [host.origin for host in world.hosts]
    its_own = [round_ for round_ in range(40) if first(round_, origins) == slow.origin]
    allowed = 40 * (4 * 0.25 + bound + 0.5) + len(its_own) * 4 * 2.0  # as the root it is waited for
    assert max(host.finished_at for host in world.hosts[:3]) < allowed
    assert slow.agreed
    assert all(slow_values in values for round_, values in results(world).items() for slow_values in values[-1:])


def test_a_host_whose_parameters_often_do_not_count_is_told_what_to_do():
    world = make_world(4, how=[{}, {}, {}, {"step_seconds": 2.0}], steps=160)
    world.finish()
    *quick, slow = world.hosts
    assert slow.gasloc.agreement.uncounted >= 3
    told = slow.named("results lack what this host has learned")
    assert (told[0].facts["rounds"], told[0].facts["of"] <= 7) == (3, True)
    assert "[node] local_steps" in told[0].facts["advice"]
    assert len(told) <= 3
    assert [host.gasloc.agreement.uncounted for host in quick] == [0] * 3
    assert slow.node.view(world.now).figures["agreements_uncounted"] == slow.gasloc.agreement.uncounted


def test_a_sum_that_is_none_is_left_out():
    """A host sends other bytes than it has offered: the others agree without it."""
    world = make_world(3, "complete", steps=16)
    liar = max(world.hosts, key=lambda host: host.origin)

    def lie(sender, receiver, message):
        if sender is not liar or not isinstance(message, Opaque):
            return message
        saying = decode(message.data)
        if not isinstance(saying, Chunk):
            return message
        return Opaque(encode(saying._replace(data=bytes(len(saying.data)))))

    world.change = lie
    world.finish()
    honest = [host for host in world.hosts if host is not liar]
    others = sorted(host.disk.base[0] for host in honest)
    assert dict(honest[0].agreed)[0] == (mean(others),)
    assert {tuple(host.values) for host in honest} == {tuple(honest[0].values)}
    assert any(host.named("a neighbour exchanges no parameters of this run") for host in honest)


def test_what_is_never_offered_is_refused():
    world = make_world(2, agrees_at_end=True, matching="one")
    world.run(3)
    agreement, peer = world.hosts[0].gasloc.agreement, world.hosts[1].origin
    good = Offer(Kind.SUM, world.rules.rounds - 1, bytes(32), 10, 1, "float32")
    for changes in ({"round": 0}, {"round": world.rules.rounds}, {"size": 1 << 40}, {"degree": 0}, {"encoding": "x"}):
        fields = {name: getattr(good, name) for name in good.__slots__} | changes
        with pytest.raises(PeerError):
            agreement.offered(peer, Offer(**fields), world.now, 0)
    agreement.offered(peer, good, world.now, 0)
    with pytest.raises(PeerError, match="two things"):
        agreement.offered(peer, Offer(Kind.SUM, good.round, b"x" * 32, 10, 1, "float32"), world.now, 0)


@pytest.mark.parametrize("degree", [2, 30])
def test_a_sum_counts_for_no_more_hosts_than_are_below_whoever_offers_it(degree):
    world = make_world(3, "complete", steps=16)
    liar = max(world.hosts, key=lambda host: host.origin)

    def lie(sender, receiver, message):
        saying = decode(message.data) if sender is liar and isinstance(message, Opaque) else None
        if isinstance(saying, Offer) and saying.kind is Kind.SUM:
            return Opaque(encode(replace(saying, degree=degree)))
        return message

    world.change = lie
    world.finish()
    honest = [host for host in world.hosts if host is not liar]
    assert all(dict(host.agreed)[0] == (Fraction(1),) for host in honest)


def test_a_sum_that_is_offered_again_counts_once():
    world = make_world(3, "complete", steps=16, how=[{}, {}, {"step_seconds": 1.0}])
    world.finish()
    assert any(one > 2 for host in world.hosts for one in [host.gasloc.agreement.seconds])
    assert {values for found in results(world).values() for values in found} == {(Fraction(1),)}


def test_a_host_that_is_below_another_one_is_not_waited_for():
    world = make_world(3, "complete")
    world.run(2)
    agreement, peer = world.hosts[0].gasloc.agreement, world.hosts[1].origin
    agreement.declined(peer, Decline(Kind.SUM, 5, 1, 5), world.now)
    assert agreement._elsewhere[peer] == 5


def has_said_that_it_ended(host, of):
    word = host.node.membership.spoken(of.origin)
    return word is not None and word.last_step == host.world.rules.steps - 1


def test_that_a_run_has_ended_is_said_once_what_it_ended_with_is_on_the_disk():
    world = make_world(3, steps=20, matching="one", agrees_at_end=True)
    slow, other = world.hosts[1], world.hosts[0]
    slow.disk_seconds = lambda: 30.0
    world.run(100, until=lambda: other.node.phase == "finished" and slow.node.phase == "finished")
    world.run(1)
    rounds = world.rules.rounds
    assert all(one.round < rounds for one in slow.disk.checkpoints)
    assert not has_said_that_it_ended(other, slow)
    assert has_said_that_it_ended(other, other)
    world.run(60)
    assert any(one.round == rounds for one in slow.disk.checkpoints)
    assert has_said_that_it_ended(other, slow)


def test_a_host_that_comes_back_after_the_end_needs_nobody_to_find_what_all_agreed_on():
    world = make_world(3, steps=20, matching="one", agrees_at_end=True)
    world.finish()
    values = {host.values[0] for host in world.hosts}
    assert len(values) == 1
    world.run(1)
    lonely = world.hosts[2]
    for host in world.hosts:
        host.kill()
    world.revive(lonely)
    came_back_at = world.now
    world.run(1000, until=lambda: lonely.node.phase == "finished")
    assert lonely.values[0] in values
    assert world.now - came_back_at < 5.0
