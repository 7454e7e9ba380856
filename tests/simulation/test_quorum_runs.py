"""Closed runs with bounded windows: who is away, or lies, keeps nobody's journal from being compacted, and in the end
all hold the same."""

from collections import Counter

import pytest
from worlds import STORMY, make_world

from seedflood.protocol.seedflood import certificates
from seedflood.protocol.seedflood.bundles import Updates, make_bundle
from seedflood.protocol.seedflood.epochs import Closings
from seedflood.protocol.seedflood.messages import Votes
from seedflood.protocol.seedflood.voting import DISPUTE_SECONDS
from simulation.checks import find_stuck
from simulation.operator import Operator
from simulation.seedflood.checks import find_violations, has_equal_digests, has_equal_frontiers
from simulation.seedflood.liars import let_lie
from simulation.seedflood.runs import Plan, simulate

PERIOD = 4


def make_closed(clients=5, *, window="bounded", steps=60, is_closed=True, **settings):
    world = make_world("complete", clients, window=window, steps=steps, refresh_period=PERIOD, **settings)
    if is_closed:
        world.operator = Operator(world)
    world.start()
    return world


def compacted(host):
    return len(host.journal.closed)


def judge(world):
    world.run(600.0)
    assert find_stuck(world.honest) == []
    assert find_violations(world.honest) == []
    assert has_equal_frontiers(world.honest)
    assert has_equal_digests(world.honest)


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_host_that_is_down_for_long_keeps_epochs_open_unless_there_is_a_quorum(is_closed):
    world = make_closed(is_closed=is_closed)
    world.run_until_step(12)
    world.hosts[4].crash()
    before = compacted(world.hosts[0])
    world.run_until_step(60)
    world.run_for(5.0)
    assert (compacted(world.hosts[0]) >= 60 // PERIOD - 2) == is_closed
    assert is_closed or compacted(world.hosts[0]) <= before + 1
    world.start_later(world.hosts[4], 0.5)
    judge(world)
    assert world.hosts[4].node.frontier.last(world.hosts[4].origin) >= 11


@pytest.mark.parametrize("seed", [1, 2])
def test_what_a_part_that_was_cut_off_has_measured_counts_though_the_others_have_compacted(seed):
    world = make_closed(6, seed=seed, steps=80)
    world.run_until_step(8)
    world.network.partition({4, 5})
    world.run_until_step(60)
    for host, others in ((world.hosts[0], (4, 5)), (world.hosts[4], (0, 1, 2, 3))):
        behind = [host.node.frontier.last(world.hosts[one].origin) for one in others]
        assert max(behind) < host.node.step - 2 * PERIOD
    assert compacted(world.hosts[0]) > compacted(world.hosts[4])
    world.network.unite()
    judge(world)
    late = {update for update in world.chronicle.updates if update[0] in (world.hosts[4].origin, world.hosts[5].origin)}
    assert len(late) > 40
    assert late <= set(world.hosts[0].ledger.applied)


def test_a_part_that_was_cut_off_takes_sums_though_half_of_those_who_signed_them_were_removed():
    world = make_closed(6, seed=4, steps=80)
    world.run_until_step(8)
    world.network.partition({4, 5})
    world.run_until_step(24)
    signed = compacted(world.hosts[0])
    assert signed > compacted(world.hosts[4])
    for index in (1, 2):
        world.operator.remove(index, at=0)
    world.operator.give(world.operator.roster, 4)
    world.run_until_step(40)
    assert compacted(world.hosts[0]) < 40 // PERIOD - 2, "less than a quorum has gone on alone"
    world.network.unite()
    judge(world)
    assert compacted(world.hosts[4]) > signed


def test_when_all_hosts_were_replaced_one_by_one_two_thirds_of_the_new_ones_are_enough():
    world = make_closed(4, steps=100)
    for old in range(4):
        world.run_until_step(12 * (old + 1))
        world.operator.remove(old, at=old + 1)
        late = world.operator.admit((old + 1, old + 2, old + 3), at=old + 1)
        world.start_later(late, 0.1)
    world.run_until_step(64)
    world.hosts[7].crash()
    world.run_until_step(90)
    assert compacted(world.hosts[4]) >= 90 // PERIOD - 4
    world.start_later(world.hosts[7], 0.5)
    judge(world)


def test_two_halves_of_which_one_has_heard_of_removals_never_both_compact_an_epoch():
    """Four of six are a quorum of the old roster, and two of three of the new one."""
    world = make_closed(6, steps=80)
    world.run_until_step(12)
    world.network.partition({0, 1})
    world.run_for(1.0)
    for index in (3, 4, 5):
        world.operator.remove(index, at=0)
    world.hosts[0].enter(lambda: world.hosts[0].driver.enrol(world.operator.roster))
    before = compacted(world.hosts[0])
    world.run_until_step(40)
    assert world.hosts[1].roster == world.operator.roster != world.hosts[2].roster
    assert compacted(world.hosts[0]) <= before + 1 < compacted(world.hosts[2])
    world.network.unite()
    judge(world)


def passes_nothing_on(world, index):
    """Keeps a host from passing on what others say: so it may be linked with both sides of a split."""
    host = world.hosts[index]
    send = host.send

    def send_own(peer, messages):
        own = []
        for message in messages:
            if isinstance(message, Updates):
                own.append(Updates(tuple(one for one in message.bundles if one.origin == host.origin)))
            elif isinstance(message, Votes):
                own.append(Votes(tuple(one for one in message.votes if one.origin == host.origin)))
            else:
                own.append(message)
        if own := [message for message in own if message not in (Updates(()), Votes(()))]:
            send(peer, own)

    host.send = send_own
    let_lie(world, {index}, Counter(), ["seconds"])
    world.network.forgers[index] = lambda answer: []


@pytest.mark.parametrize("is_safe", [True, False], ids=["two thirds", "more than half"])
def test_a_liar_that_votes_on_both_sides_of_a_split_makes_no_second_certificate(is_safe, monkeypatch):
    """Two honest hosts on each side, and a liar that is linked with all: three of five. Hosts wait sixteen epochs for
    those whom they reach through the liar."""
    if not is_safe:
        monkeypatch.setattr(certificates, "quorum", lambda hosts: hosts // 2 + 1)
    world = make_closed(5, steps=240)
    world.run_until_step(8)
    passes_nothing_on(world, 4)
    world.network.partition({0, 1}, but=4)
    world.run_until_step(200)
    sides = [{epoch: one.certificate[0].digests for epoch, one in host.journal.closed.items()} for host in world.hosts]
    contradicting = [epoch for epoch in sides[0] if epoch in sides[2] and sides[0][epoch] != sides[2][epoch]]
    assert bool(contradicting) != is_safe
    if is_safe:
        world.network.unite()
        judge(world)
        assert world.hosts[4].mistakes == []


def test_hosts_that_lose_their_disks_take_sums_that_a_quorum_has_signed():
    world = make_closed(seed=3, weather=STORMY)
    world.run_until_step(12)
    world.hosts[4].crash()
    world.run_until_step(36)
    world.hosts[1].lose_disk()
    world.start_later(world.hosts[1], 0.5)
    world.start_later(world.hosts[4], 2.0)
    judge(world)
    assert compacted(world.hosts[1]) > 0


def test_who_signs_other_sums_is_named_and_keeps_nobody_from_compacting(monkeypatch):
    world = make_closed(4, seed=2)  # in some seeds its votes always come when the others have compacted
    world.run_until_step(1)
    liar = world.hosts[3]
    world.cast_out(liar.origin)
    true_digests = Closings.summed

    def summed(closings, closed):
        digests = true_digests(closings, closed)
        return digests._replace(sum_digest=bytes(32)) if digests and closings is liar.node.closings else digests

    monkeypatch.setattr(Closings, "summed", summed)
    judge(world)
    world.run_for(2 * DISPUTE_SECONDS)
    for host in world.honest:
        assert compacted(host) > 10
        named = [event for event in host.events if event.name == "a host signs another sum than the others"]
        assert {event.facts["member"] for event in named} == {liar.name}
        view = host.node.view(world.clock.now)
        assert view.words["other sums"] == liar.name
        assert view.figures["hosts_with_other_sums"] == 1.0


def test_of_two_sums_that_hosts_voted_for_because_a_liar_said_two_things_one_stands_everywhere_or_none():
    """Hosts may have voted for sums with different bundles of the liar; at most one of these sums has a certificate."""
    result = simulate(Plan(5, "complete", 425, 48, "bounded", "liars", closed=True))
    assert result.faults["culprits"]
    assert result.is_good, result.violations


def deceive(world, liar, victim, steps):
    """The liar tells this host alone another update of these steps."""
    send, key = liar.send, liar.public_key

    def forged(bundle):
        if bundle.origin != liar.origin or bundle.step not in steps:
            return bundle
        (seed, scalar), *others = bundle.probes
        bundle = make_bundle(bundle.origin, bundle.step, ((seed, scalar + 1), *others), bundle.skipped)
        return bundle.with_signature(liar.sign(bundle.signed_bytes(liar.rules.run_id, key)))

    def send_forged(to, messages):
        if to == victim.origin:
            messages = [
                Updates(tuple(map(forged, message.bundles))) if isinstance(message, Updates) else message
                for message in messages
            ]
        send(to, messages)

    world.chronicle.is_tainted = True
    liar.send = send_forged
    liar._check_said = lambda message: None


def named(host):
    said = [event for event in host.events if event.name == "a host signs another sum than the others"]
    return {event.facts["member"] for event in said}


def tell_apart(seed, epochs):
    """A run in which a liar deceives one host about the last steps of these epochs. Returns the world and the liar."""
    world = make_closed(seed=seed)
    liar = world.hosts[4]
    world.chronicle.liars.add(liar.origin)
    deceive(world, liar, world.hosts[0], {(one + 1) * PERIOD - 1 for one in epochs})
    return world, liar


def judge_names(world):
    """Nobody names an honest host in its log, or shows one."""
    for host in world.hosts:
        assert named(host) == set()
        assert host.node.view(world.clock.now).words["other sums"] == "none"


@pytest.mark.parametrize(("seed", "epochs"), [(1, {1}), (4, {0, 1, 2})])
def test_whom_a_liar_tells_another_update_at_the_end_of_an_epoch_is_not_named(seed, epochs):
    """Nobody names the host that was deceived, not even for a while, and all name the liar."""
    world, liar = tell_apart(seed, epochs)
    judge(world)
    world.run_for(2 * DISPUTE_SECONDS)
    judge_names(world)
    assert all(host.named == {liar.origin} for host in world.hosts)
