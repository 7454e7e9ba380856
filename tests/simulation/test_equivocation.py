"""A host with two tongues: it says one thing to one neighbour and another thing to the next."""

import pytest
from worlds import make_world

from seedflood.protocol.seedflood.messages import Equivocation, Updates
from seedflood.protocol.seedflood.watch import DigestWatch
from simulation.checks import find_stuck
from simulation.seedflood.checks import find_violations


def make_two_tongued(host, peer, forge):
    """To this neighbour it says something else: what `forge` makes of its bundles, None for nothing."""
    send = host.send

    def say(bundle):
        other = bundle if bundle.origin != host.origin else forge(bundle)
        if other is None or other == bundle:
            return other
        return other._replace(signature=host.sign(other.signed_bytes(host.rules.run_id, host.public_key)))

    def send_forged(to, messages):
        if to == peer.origin:
            messages = [
                Updates(tuple(filter(None, map(say, message.bundles)))) if isinstance(message, Updates) else message
                for message in messages
            ]
        send(to, messages)

    host.send = send_forged  # answers to pulls say what its journal says
    host._check_said = lambda message: None


def other_scalars(steps):
    def forge(bundle):
        ((seed, scalar),) = bundle.probes
        return bundle._replace(probes=((seed, scalar + 1),)) if bundle.step in steps else bundle

    return forge


def as_if_skipped(first, step):
    """What was measured from `first` on is declared as skipped by the bundle of `step`."""

    def forge(bundle):
        if first <= bundle.step < step:
            return None
        return bundle._replace(skipped=step - first) if bundle.step == step else bundle

    return forge


@pytest.mark.parametrize("window", ["strict", "bounded", "none"])
@pytest.mark.parametrize("steps", [{3}, {2, 3, 5, 8}, {19}])
def test_a_host_with_two_tongues_is_named_and_all_others_end_with_equal_journals_and_digests(window, steps):
    world = make_world("path", 5, steps=20, window=window, refresh_period=1000)
    liar, deceived = world.hosts[1], world.hosts[2]
    world.start()
    world.run_for(1.0)
    make_two_tongued(liar, deceived, other_scalars(steps))
    world.run(400)
    assert find_stuck(world.hosts) == []
    world.run_for(5)  # what is on its way arrives
    assert len({host.ledger.digest() for host in world.hosts}) == 1
    assert len({frozenset(host.journal.bundles.items()) for host in world.hosts}) == 1
    for host in world.hosts:
        named = {event.facts["step"] for event in host.events if event.name == "a host contradicts itself"}
        assert named == {step for step in steps if step in named}
        assert {e.facts["member"] for e in host.events if e.name == "a host contradicts itself"} <= {"h1"}
        assert named, f"{host.name} named nobody"
        assert not host.node.is_doubted


@pytest.mark.parametrize("window", ["strict", "bounded", "none"])
@pytest.mark.parametrize("skipped", [(8, 10), (0, 1), (3, 9), (10, 19)])
def test_what_was_measured_for_one_stands_though_it_is_skipped_for_the_next(window, skipped):
    world = make_world("path", 5, steps=20, window=window, refresh_period=1000)
    liar = world.hosts[1]
    make_two_tongued(liar, world.hosts[2], as_if_skipped(*skipped))
    world.start()
    world.run(400)
    assert find_stuck(world.hosts) == []
    world.run_for(30)  # replicas are made again, at most so often
    assert len({host.ledger.digest() for host in world.hosts}) == 1
    assert len({frozenset(host.journal.bundles.items()) for host in world.hosts}) == 1
    for host in world.hosts:
        named = {event.facts["member"] for event in host.events if event.name == "a host contradicts itself"}
        assert named == {"h1"}
        assert {step for origin, step in host.ledger.applied if origin == liar.origin} == set(range(20))
        assert not host.node.is_doubted


@pytest.mark.parametrize("window", ["bounded", "none"])
def test_all_hold_the_same_though_a_host_measured_for_one_what_it_skipped_for_the_next(window):
    world = make_world("path", 5, steps=60, window=window, refresh_period=20)
    make_two_tongued(world.hosts[1], world.hosts[2], as_if_skipped(14, 23))
    world.start()
    world.run(400)
    assert find_stuck(world.hosts) == []
    world.run_for(60)
    assert len({host.ledger.digest() for host in world.hosts}) == 1
    assert all(2 in host.journal.closed for host in world.hosts), "later epochs are compacted"
    assert not any(host.node.is_doubted for host in world.hosts)


def contradict(world, liar, skipped):
    """It proves to all neighbours that of one step it says something else, which stands over what it said before."""
    held = liar.journal.bundles[liar.origin, 8]
    bundle = held._replace(skipped=skipped, probes=((held.probes[0][0], skipped),))
    signature = liar.sign(bundle.signed_bytes(liar.rules.run_id, liar.public_key))
    for neighbour in world.network.neighbours(liar.index):
        world.network.send_raw(liar, neighbour, Equivocation(bundle._replace(signature=signature), held))


def end_beside_a_contradiction(window):
    """What judges say of a run at whose end all have been told something else, and have made their replicas again just
    before that."""
    world = make_world("path", 5, steps=60, window=window, refresh_period=1000)
    liar = world.hosts[1]
    world.chronicle.liars, world.chronicle.is_tainted = {liar.origin}, True
    world.start()
    for skipped, step in enumerate((10, 30, 50, 59), start=1):
        assert world.clock.run(lambda step=step: liar.is_up and liar.node.step >= step, 100)
        contradict(world, liar, skipped)
    world.run(400)
    return find_stuck(world.honest) + find_violations(world.honest)


@pytest.mark.parametrize("window", ["strict", "bounded", "none"])
def test_nobody_ends_a_run_with_other_coefficients_than_its_journal_gives(window):
    assert end_beside_a_contradiction(window) == []


@pytest.mark.parametrize("window", ["strict", "bounded", "none"])
def test_that_replicas_are_behind_their_journals_at_the_end_is_seen(window, monkeypatch):
    monkeypatch.setattr(DigestWatch, "outdate", lambda *_: None)
    complaints = end_beside_a_contradiction(window)
    assert any("ends the run with other coefficients" in line for line in complaints)
