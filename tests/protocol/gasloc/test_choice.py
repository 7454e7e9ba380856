"""The end of a run: closing rounds, and one replica for all, whatever late, dead or lying hosts do."""

from collections import Counter
from fractions import Fraction
from itertools import pairwise

import pytest
from gossip import PATIENCE, World, unleash

from seedflood.protocol.gasloc.matching import Lottery
from seedflood.protocol.gasloc.messages import Chunk, Offer, decode
from seedflood.protocol.gasloc.rules import Bounds
from seedflood.protocol.gasloc.statement import Result
from seedflood.protocol.gasloc.trust import STILL_SECONDS
from seedflood.protocol.swarm.access import stand_in
from seedflood.protocol.swarm.messages import Opaque
from seedflood.protocol.swarm.rules import Patience
from simulation.gasloc.replica import digest_of, spell


def make_world(hosts=4, shape="ring", *, how=None, link=None, seed=0, **rules):
    """how: of each host, in turn."""
    world = World(seed=seed, clients=hosts, **rules)
    for k in range(hosts):
        world.add(**(how or [{}])[k % len(how or [{}])])
    if shape == "path":
        for one, other in pairwise(world.hosts):
            world.plan(one, other, **(link or {}))
    else:
        getattr(world, shape)(**(link or {}))
    return world


def ends(world):
    return {host.last for host in world.hosts}


def first(world):
    """The host that comes first in the draw."""
    return drawn(world)[0]


def drawn(world):
    """All hosts, in the order of the draw."""
    lottery, rounds = Lottery(world.rules.run_seed), world.rules.rounds
    return sorted(world.hosts, key=lambda host: lottery.number(rounds, host.origin))


def mean(world):
    return world.total() / len(world.hosts)


@pytest.mark.parametrize("rules", [{"matching": "one"}, {"matching": "two", "gamma": 0.5}, {"delay_steps": 3}])
@pytest.mark.parametrize("shape", ["ring", "path"])
def test_all_end_with_the_replica_of_the_host_that_comes_first(rules, shape):
    world = make_world(5, shape, how=[{"drift": Fraction(k, 8)} for k in range(5)], **rules)
    world.finish()
    assert ends(world) == {first(world).values}
    assert first(world).taken == 0
    assert {host.gasloc.agreement.choice.ours.author for host in world.hosts} == {first(world).origin}
    if not rules.get("gamma"):
        assert world.total() == world.initial + sum(host.drifted for host in world.hosts)


@pytest.mark.parametrize(("hosts", "shape", "left"), [(6, "complete", 0), (8, "ring", Fraction(2, 3))])
def test_closing_rounds_bring_it_near_the_mean(hosts, shape, left):
    world = make_world(hosts, shape, steps=8)
    world.finish()
    assert [len(host.closing) for host in world.hosts] == [3] * hosts
    before = max(abs(host.compute.replica.before_closing[0] - mean(world)) for host in world.hosts)
    assert abs(world.hosts[0].last[0] - mean(world)) <= before * left


def test_equal_replicas_are_not_sent():
    world = make_world(2, steps=8)
    world.finish()
    assert len(ends(world)) == 1
    assert [host.taken for host in world.hosts] == [0, 0]


def test_a_host_alone_ends_with_its_own():
    world = make_world(1, how=[{"drift": Fraction(1)}])
    world.finish()
    assert ends(world) == {(Fraction(40),)}
    assert world.hosts[0].closing == [(round_, ()) for round_ in (10, 11, 12)]


@pytest.mark.parametrize("k", range(4))
def test_a_host_that_dies_at_the_end_takes_what_the_others_ended_with(k):
    world = make_world(4, how=[{"drift": Fraction(1), "padding": 300_000}], steps=16)
    victim = world.hosts[k]
    world.run(300, until=lambda: victim.gasloc.round == world.rules.training_rounds)
    victim.kill()
    others = [host for host in world.hosts if host is not victim]
    world.run(300, until=lambda: all(host.gasloc.life.is_over for host in others))
    world.revive(victim)
    world.finish()
    assert len(ends(world)) == 1


def test_a_host_that_comes_when_all_have_ended_moves_nobody():
    world = make_world(3, steps=16)
    world.finish()
    ended = ends(world)
    late = world.add(99)
    for host in world.hosts[:3]:
        world.plan(late, host)
    world.finish()
    assert ends(world) == ended
    assert late.taken == 1


@pytest.mark.parametrize("has_ended", [False, True])
def test_who_gets_nothing_of_its_first_copy_still_takes_what_the_others_ended_with(has_ended):
    """Its only neighbour is mute for half a minute, when it joins during the last round, or after the end."""
    world = make_world(3, how=[{"padding": 3000}], steps=40)
    donor, rounds = world.hosts[0], world.rules.training_rounds
    world.run(300, until=lambda: world.are_finished if has_ended else donor.gasloc.round == rounds - 1)
    late = world.add(99)
    world.plan(late, donor)
    mute_until = world.now + STILL_SECONDS + 1.0
    world.drop = lambda sender, receiver, message: (
        (sender, receiver) == (donor, late)
        and world.now < mute_until
        and isinstance(message, Opaque)
        and isinstance(decode(message.data), Chunk)
    )
    world.finish()
    assert late.gasloc.trust.failures == {donor.origin: 1}
    assert len(ends(world)) == 1


@pytest.mark.parametrize("away_seconds", [35, 50])
def test_who_loses_its_link_midway_still_takes_what_the_others_ended_with(away_seconds):
    """The replica takes longer to come than a host waits for one."""
    slow = Bounds(chunk_bytes=1 << 10, throughput_min=1e3)
    world = make_world(3, how=[{"padding": 100_000}], steps=16, bounds=slow)
    world.finish()
    donor, late = world.hosts[0], world.add(99)
    world.plan(late, donor, rate=1e3)
    world.run(80)
    assert late.gasloc.fetch.moving
    world.cut(late, donor, redial=away_seconds)
    world.finish()
    assert len(ends(world)) == 1


@pytest.mark.parametrize("removed", [0, 3])
def test_what_most_of_those_hold_who_were_not_removed_is_waited_for(removed):
    """Nobody gives it anything for longer than the way of a replica takes."""
    world = make_world(6, "complete", steps=16, content_bytes_max=1000)
    late = world.hosts[0]
    world.run(300, until=lambda: late.gasloc.round == 1)
    late.kill()
    gone, others = world.hosts[6 - removed :], world.hosts[1 : 6 - removed]
    stand_ins = {one.origin: stand_in(one.node.membership.get(one.origin).public_key, one.name) for one in gone}
    for host in gone:
        host.kill()
    for host in others:
        host.node.membership.silence(stand_ins, lambda key: False, stand_ins.keys())
    world.run(600, until=lambda: all(host.finished_at is not None for host in others))
    mute_until = world.now + 20
    world.drop = lambda sender, receiver, message: receiver is late and world.now < mute_until and is_given(message)
    late.start()
    late.node.membership.silence(stand_ins, lambda key: False, stand_ins.keys())
    world.redial()
    world.run(600, until=lambda: late.finished_at is not None)
    assert len({host.last for host in (late, *others)}) == 1


def is_given(message):
    return isinstance(message, Opaque) and isinstance(decode(message.data), Chunk | Offer)


@pytest.mark.parametrize("rounds", [-1, 0, 2])
def test_a_host_that_leaves_after_its_local_steps_and_comes_back_ends_with_the_others(rounds):
    """In the exchange before the closing rounds, or in one of these."""
    world = make_world(5, how=[{"drift": Fraction(k)} for k in range(5)], steps=16)
    host, *others = world.hosts
    round_ = world.rules.training_rounds + rounds
    world.run(300, until=lambda: host.gasloc.round == round_ and host.gasloc.exchange.is_open)
    host.do(host.node.leave)
    host.kill()
    assert host.gasloc.round >= world.rules.training_rounds
    world.run(0.2)
    world.revive(host)
    world.finish()
    assert len(ends(world)) == 1
    assert host.closing
    assert world.now < PATIENCE.linger_seconds  # nobody has waited in vain
    assert all(has_said_that_it_ended(one, host) for one in others)


def test_a_replica_is_waited_for_on_its_way_from_host_to_host():
    """Over each link it takes nearly as long as a host waits for one."""
    slow, patience = Bounds(chunk_bytes=1 << 10, throughput_min=1e3), Patience(start_seconds=5.0, linger_seconds=10.0)
    sizes = {"how": [{"padding": 12_000}], "content_bytes_max": 13_000}
    world = make_world(6, "path", **sizes, link={"rate": 1e3}, steps=8, bounds=slow, patience=patience)
    world.finish()
    assert len(ends(world)) == 1


def test_who_comes_back_after_the_end_states_again_which_replica_it_holds():
    """It may come to hold another one than in its life before, and hosts behind it need to know."""
    world = make_world(4, "path", steps=16)
    last, host, *others = world.hosts
    last.kill()
    world.run(600, until=lambda: all(one.finished_at for one in (host, *others)))
    world.run(5)
    host.kill()
    world.revive(host)
    world.run(300, until=lambda: host.finished_at)
    world.run(5)
    words = [one.node.membership.spoken(host.origin) for one in (host, *others)]
    assert [word.incarnation for word in words] == [2, 2, 2]
    assert len({host.last, *(one.last for one in others)}) == 1


def test_who_has_come_back_is_waited_for_at_the_end_before_it_says_that_it_takes_part():
    """A host was admitted in the place of one that was removed, so as many as the run has were met without it."""
    world = World(clients=2, steps=16)
    host, late, gone = (world.add() for _ in range(3))
    world.complete(delay=1.0)
    world.run(300, until=lambda: late.gasloc.round == 1)
    gone.kill()
    stand_ins = {gone.origin: stand_in(host.node.membership.get(gone.origin).public_key, gone.name)}
    for one in (host, late):
        one.node.membership.silence(stand_ins, lambda key: False, stand_ins.keys())
    late.kill()
    world.run(300, until=lambda: host.gasloc.agreement.wait.is_under_way)
    world.revive(late)
    late.node.membership.silence(stand_ins, lambda key: False, stand_ins.keys())
    world.run(1.9)  # nothing but its hello has come
    assert host.finished_at is None
    world.run(600, until=lambda: host.finished_at and late.finished_at)
    assert host.last == late.last


def test_who_comes_first_and_dies_is_given_up_for_the_next():
    world = make_world(4, "complete", how=[{"padding": 300_000}], steps=16, link={"rate": 1e6})
    chosen = first(world)
    others = [host for host in world.hosts if host is not chosen]
    world.run(300, until=lambda: any(host.gasloc.fetch.moving for host in others))
    chosen.kill()
    world.run(600, until=lambda: all(host.finished_at is not None for host in others))
    assert len({host.last for host in others}) == 1
    assert others[0].gasloc.agreement.choice.ours.author != chosen.origin


def test_who_states_a_replica_and_serves_nothing_is_given_up_for_the_next():
    world = make_world(4, "complete", how=[{"padding": 3000}], steps=16)
    liar = first(world)

    def withhold(sender, receiver, message):
        is_over = liar.gasloc.round == world.rules.rounds
        sent = decode(message.data) if is_over and sender is liar and isinstance(message, Opaque) else None
        return isinstance(sent, Chunk | Offer)

    world.drop = withhold
    others = [host for host in world.hosts if host is not liar]
    world.run(600, until=lambda: all(host.finished_at is not None for host in others))
    assert len({host.last for host in others}) == 1
    assert others[0].gasloc.agreement.choice.ours.author != liar.origin


@pytest.mark.parametrize("bytes_max", [1, 5, 1000])
@pytest.mark.parametrize("place", ["end", "middle", "beside all"])
def test_who_gives_its_replica_byte_by_byte_is_given_up_for_the_next(place, bytes_max):
    """It comes first in the draw, and gives each of its neighbours no more than this."""
    world = World(clients=5, steps=16)
    for k in range(5):
        world.add(drift=Fraction(k), padding=3000)
    liar = first(world)
    others = [host for host in world.hosts if host is not liar]
    for one, other in pairwise(others):
        world.plan(one, other)
    for host in {"end": others[:1], "middle": others[1:3], "beside all": others}[place]:
        world.plan(liar, host)
    given, gives_at = Counter(), {}

    def dribble(sender, receiver, message):
        if sender is not liar or liar.gasloc.round < world.rules.rounds:
            return False
        liar.gasloc.carrier._chunk_bytes = 1
        if not isinstance(message, Opaque) or not isinstance(decode(message.data), Chunk):
            return False
        if world.now < gives_at.get(receiver, 0.0) or given[receiver] >= bytes_max:
            return True
        given[receiver], gives_at[receiver] = given[receiver] + 1, world.now + 20
        return False

    world.drop = dribble
    world.run(1200, until=lambda: all(host.finished_at is not None for host in others))
    assert all(given[host] for host in others if host.origin in liar.node.neighbours)
    assert len({host.last for host in others}) == 1
    assert others[0].gasloc.agreement.choice.ours.author != liar.origin


def test_what_one_host_alone_says_of_another_ones_replica_counts_for_nothing():
    """It makes one up and serves it, as that of the host that comes first."""
    world = make_world(4, "complete", steps=16)
    chosen = first(world)
    liar = next(host for host in world.hosts if host is not chosen)
    false = spell((Fraction(666),))

    def lie():
        liar.gasloc.agreement.choice.ours = Result(chosen.origin, digest_of(false))
        liar.do(lambda now: liar.gasloc.compare(now))
        world.at(world.now + 0.05, lie)

    lie()
    others = [host for host in world.hosts if host is not liar]
    world.run(600, until=lambda: all(host.finished_at is not None for host in others))
    assert {host.last for host in others} == {chosen.values}


def test_two_that_state_the_same_replica_do_not_outweigh_the_host_that_comes_first():
    """It is the replica of one of them, which serves it."""
    world = make_world(10, steps=16, how=[{"drift": Fraction(k), "padding": 3000} for k in range(10)])
    others, liars = drawn(world)[:8], drawn(world)[8:]

    def lie():
        ours = liars[0].gasloc.agreement.choice.ours
        if ours is not None and ours.author == liars[0].origin and liars[1].gasloc.round == world.rules.rounds:
            liars[1].gasloc.agreement.choice.ours = ours
            liars[1].do(lambda now: liars[1].gasloc.compare(now))
        world.at(world.now + 0.05, lie)

    lie()
    world.run(600, until=lambda: all(host.finished_at is not None for host in others))
    assert {host.last for host in others} == {first(world).values}


@pytest.mark.parametrize("seconds", [5, 10, 20])
def test_liars_that_make_up_a_replica_of_one_host_after_the_other_spend_nobodys_time_but_theirs(seconds):
    """Two say the same of one host, which outweighs its own word, and then of the next one, and serve none of them."""
    world = make_world(7, steps=16, how=[{"drift": Fraction(k), "padding": 3000} for k in range(7)])
    others, liars = world.hosts[:5], world.hosts[5:]
    draw, rounds = Lottery(world.rules.run_seed), world.rules.rounds
    victims = sorted(others, key=lambda host: draw.number(rounds, host.origin))

    def lie(liar):
        if liar.gasloc.round == rounds:
            number = int(world.now / seconds) % len(victims)
            false = digest_of(spell((Fraction(666 + number),)))
            liar.gasloc.agreement.choice.ours = Result(victims[number].origin, false)
            liar.do(lambda now: liar.gasloc.compare(now))
        world.at(world.now + 0.25, lambda: lie(liar))

    for liar in liars:
        lie(liar)
    world.run(300, until=lambda: all(host.finished_at is not None for host in others))
    assert all(host.finished_at is not None for host in others)
    assert len({host.last for host in others}) == 1


def test_hosts_that_were_cut_apart_say_who_holds_what_else():
    world = make_world(4, "complete", steps=400, how=[{"drift": Fraction(k)} for k in range(4)])
    world.run(300, until=lambda: world.hosts[0].gasloc.round == 3)
    world.plans = {plan for plan in world.plans if (plan[0] in world.hosts[:2]) == (plan[1] in world.hosts[:2])}
    for link in list(world.links.values()):
        world.cut(*link.ends)
    world.run(600, until=lambda: world.are_finished)
    assert len(ends(world)) == 2
    assert world.hosts[0].last == world.hosts[1].last
    world.hosts[2].disk.members.update(world.hosts[0].disk.members)
    alone = world.hosts[2]
    alone.kill()
    world.revive(alone)
    world.run(600, until=lambda: alone.finished_at is not None)
    (told,) = alone.named("ends, and other hosts hold another replica")
    assert set(told.facts["unequal_to"]) == {"h0", "h1"}


def test_a_host_to_which_nobody_gives_the_replica_ends_with_its_own():
    world = make_world(2, steps=8)
    world.run(300, until=lambda: world.hosts[0].gasloc.round == 1)
    lone, other = world.hosts
    lone.kill()
    world.run(300, until=lambda: other.finished_at is not None)
    world.plans.clear()
    lone.disk.members.update(other.disk.members)
    lone.start()
    world.run(500, until=lambda: lone.finished_at is not None)
    assert lone.named("ends with what it has: nobody gives it the replica with which the others end")


def test_at_the_end_quick_hosts_wait_for_slow_ones_and_for_those_that_are_away_for_a_moment():
    how = [{"step_seconds": 0.05}, {"step_seconds": 0.05}, *[{"step_seconds": 1.0}] * 3]
    world = make_world(5, how=how, matching="one")
    quick = world.hosts[0]
    world.run(300, until=lambda: quick.gasloc.agreement.wait.is_under_way and quick.node.blockers(world.now))
    assert {one.kind for one in quick.node.blockers(world.now)} == {"neighbour"}
    for link in list(world.links.values()):
        world.cut(*link.ends, redial=20)
    world.finish()
    assert len(ends(world)) == 1
    assert all(len(host.closing) == 3 for host in world.hosts)


def test_hosts_that_have_waited_at_the_end_for_long_still_end_with_each_other():
    """None of them has stated anything new for longer than it takes to be thought to stand still."""
    world = World(clients=5, matching="one")
    for k in range(5):
        world.add(step_seconds=30.0 if k == 4 else 0.25)
    for one, other in pairwise(world.hosts):
        world.plan(one, other)
    *quick, slow = world.hosts
    world.run(40)
    assert all(host.gasloc.agreement.wait.is_under_way for host in quick)
    slow.do(lambda now: slow.node.gasloc._presence.declare())  # a link has come or gone: it does not stand still
    world.finish()
    assert len(ends(world)) == 1


@pytest.mark.parametrize("k", range(1, 4))
def test_nobody_ends_beside_hosts_that_come_back_before_long(k):
    """It starts again when all choose, and cuts the others apart meanwhile."""
    world = make_world(5, "path", how=[{"padding": 30_000}], steps=16)
    victim, *others = [world.hosts[k], *world.hosts[:k], *world.hosts[k + 1 :]]
    world.run(300, until=lambda: all(host.node.phase == "choosing" for host in world.hosts))
    world.run(0.05)
    victim.kill()
    world.run(20)
    assert not any(host.finished_at for host in others)
    world.revive(victim)
    world.finish()
    assert len(ends(world)) == 1


def test_a_host_that_is_gone_for_good_is_waited_for_only_some_time():
    world = make_world(3, matching="one")
    world.run(8)
    world.hosts[0].kill()
    left = world.hosts[1:]
    world.run(400, until=lambda: all(host.finished_at for host in left))
    assert left[0].last == left[1].last
    assert max(host.finished_at for host in left) < 40 * 0.25 + 60 + 40


def has_said_that_it_ended(host, of):
    word = host.node.membership.spoken(of.origin)
    return word is not None and word.last_step == host.world.rules.steps - 1


def test_that_a_run_has_ended_is_said_once_what_it_ended_with_is_on_the_disk():
    world = make_world(3, steps=20, matching="one")
    slow, other = world.hosts[1], world.hosts[0]
    slow.disk_seconds = lambda: 30.0
    world.run(300, until=lambda: other.node.phase == "finished" and slow.node.phase == "finished")
    assert all(one.round < world.rules.rounds for one in slow.disk.checkpoints)
    assert not has_said_that_it_ended(other, slow)
    world.run(60)
    assert any(one.round == world.rules.rounds for one in slow.disk.checkpoints)
    assert has_said_that_it_ended(other, slow)


def test_a_host_that_comes_back_after_the_end_needs_nobody_to_find_what_all_ended_with():
    world = make_world(3, steps=20, matching="one")
    world.finish()
    (ended,) = ends(world)
    lonely = world.hosts[2]
    for host in world.hosts:
        host.kill()
    world.revive(lonely)
    came_back_at = world.now
    world.run(1000, until=lambda: lonely.node.phase == "finished")
    assert lonely.last == ended
    assert world.now - came_back_at < 5.0


@pytest.mark.parametrize("seed", range(13))
def test_whatever_breaks_and_whoever_dies_all_end_with_one_replica(seed):
    world = make_world(5, ["ring", "complete"][seed % 2], seed=seed, how=[{"padding": 20_000}])
    unleash(world, world.rng)
    world.run(4000, until=lambda: world.now > 70 and world.are_finished)
    for host in world.hosts:
        world.revive(host)
    world.finish(4000)
    assert len(ends(world)) == 1


def test_who_has_finished_with_another_replica_is_waited_for_while_it_is_linked():
    """It has heard of too few, and comes for the one that all others hold."""
    world = make_world(4, "path")
    world.finish()
    host = world.hosts[1]
    choice = host.gasloc.agreement.choice
    assert choice.awaited(with_away=False) == set()
    choice.ours = choice.ours._replace(digest=bytes(32))
    assert choice.awaited(with_away=False) == {world.hosts[k].origin for k in (0, 2, 3)}
    host.node.disconnected(world.hosts[2].origin, world.now)
    assert choice.awaited(with_away=False) == {world.hosts[0].origin}
