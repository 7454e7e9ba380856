"""A host with two tongues: it says one thing to one neighbour and another thing to the next."""

import pytest
from worlds import make_world

from seedflood.protocol.seedflood.bundles import Updates, make_bundle
from seedflood.protocol.seedflood.divergence import DivergenceDetector
from seedflood.protocol.seedflood.messages import Equivocation
from seedflood.protocol.swarm.rules import Patience
from simulation.checks import find_stuck
from simulation.seedflood.checks import find_violations, has_equal_digests


def make_two_tongued(host, peer, forge):
    """To this neighbour it says something else: what `forge` makes of its bundles, None for nothing."""
    send = host.send

    def say(bundle):
        other = bundle if bundle.origin != host.origin else forge(bundle)
        if other is None or other == bundle:
            return other
        return other.with_signature(host.sign(other.signed_bytes(host.rules.run_id, host.public_key)))

    def send_forged(to, messages):
        if to == peer.origin:
            messages = [
                Updates(tuple(filter(None, map(say, message.bundles)))) if isinstance(message, Updates) else message
                for message in messages
            ]
        send(to, messages)

    host.send = send_forged  # answers to pulls say what its journal says
    host._check_said = lambda message: None


def with_values(bundle, *probes):
    return make_bundle(bundle.origin, bundle.step, probes, bundle.skipped, bundle.signature)


def skipping(bundle, skipped):
    return make_bundle(bundle.origin, bundle.step, bundle.probes, skipped, bundle.signature)


def other_scalars(steps):
    def forge(bundle):
        ((seed, scalar),) = bundle.probes
        return with_values(bundle, (seed, scalar + 1)) if bundle.step in steps else bundle

    return forge


def as_if_skipped(first, step):
    """What was measured from `first` on is declared as skipped by the bundle of `step`."""

    def forge(bundle):
        if first <= bundle.step < step:
            return None
        return skipping(bundle, step - first) if bundle.step == step else bundle

    return forge


def judge_ended(world, end):
    """All name the liar, and hold what it said before the end and nothing else."""
    world.run(400)
    assert find_stuck(world.hosts) == []
    world.run_for(30)  # what is on its way arrives, and replicas are made again, at most so often
    assert has_equal_digests(world.hosts)
    assert len({frozenset(host.journal.bundles.items()) for host in world.hosts}) == 1
    liar = world.hosts[1]
    for host in world.hosts:
        named = {event.facts["member"] for event in host.events if event.name == "a host contradicts itself"}
        assert named == {"h1"}
        assert {step for origin, step in host.ledger.applied if origin == liar.origin} == set(range(end))
        assert not host.node.is_doubted


@pytest.mark.parametrize("window", ["strict", "bounded"])
@pytest.mark.parametrize("steps", [{3}, {2, 3, 5, 8}, {19}])
def test_of_a_host_with_two_tongues_nothing_counts_from_the_first_step_on_of_which_it_told_two_things(window, steps):
    world = make_world("path", 5, steps=20, window=window, refresh_period=1000)
    make_two_tongued(world.hosts[1], world.hosts[2], other_scalars(steps))
    world.start()
    judge_ended(world, min(steps))


@pytest.mark.parametrize("window", ["strict", "bounded"])
@pytest.mark.parametrize("skipped", [(8, 10), (0, 1), (3, 9), (10, 19)])
def test_who_measured_for_one_what_it_skips_for_the_next_ends_with_the_first_of_these_steps(window, skipped):
    world = make_world("path", 5, steps=20, window=window, refresh_period=1000)
    make_two_tongued(world.hosts[1], world.hosts[2], as_if_skipped(*skipped))
    world.start()
    judge_ended(world, skipped[0])


def test_who_skips_for_one_what_it_never_mentions_to_the_next_is_found():
    """The next one lacks the skipped steps for ever, and all it is given for them is a bundle that it seems to have."""
    world = make_world("path", 5, steps=90, window="bounded", refresh_period=1000, patience=Patience(start_seconds=5.0))
    liar = world.hosts[1]
    make_two_tongued(liar, world.hosts[2], lambda bundle: skipping(bundle, 0))
    for host in world.hosts:
        world.start_later(host, 8.0 if host is liar else 0.0)
    world.run(400)
    judge_ended(world, next(iter(world.hosts[0].node.ends.proofs.values())).end)


def test_epochs_are_compacted_behind_the_end_of_an_origin():
    world = make_world("path", 5, steps=60, window="bounded", refresh_period=20)
    make_two_tongued(world.hosts[1], world.hosts[2], as_if_skipped(14, 23))
    world.start()
    world.run(400)
    assert find_stuck(world.hosts) == []
    world.run_for(60)
    assert has_equal_digests(world.hosts)
    assert all(2 in host.journal.closed for host in world.hosts)
    assert not any(host.node.is_doubted for host in world.hosts)


def contradict(world, liar, step):
    """It proves to all neighbours that it tells two things of one step."""
    held = liar.chronicle.bundles[liar.origin, step]
    bundle = with_values(held, (held.probes[0][0], held.probes[0][1] + 1))
    signature = liar.sign(bundle.signed_bytes(liar.rules.run_id, liar.public_key))
    for neighbour in world.network.neighbours(liar.index):
        world.network.send_raw(liar, neighbour, Equivocation(bundle.with_signature(signature), held))


def end_beside_a_contradiction(window):
    """What judges say of a run in which the end of an origin is proven earlier and earlier."""
    world = make_world("path", 5, steps=60, window=window, refresh_period=1000)
    liar = world.hosts[1]
    world.chronicle.liars, world.chronicle.is_tainted = {liar.origin}, True
    world.start()
    others = world.hosts[2]
    for said, step in ((9, 12), (7, 30), (5, 50), (3, 59)):
        assert world.clock.run(lambda step=step: others.is_up and others.node.step >= step, 100)
        contradict(world, liar, said)
    world.run(400)
    return find_stuck(world.honest) + find_violations(world.honest)


@pytest.mark.parametrize("window", ["strict", "bounded"])
def test_nobody_ends_a_run_with_other_coefficients_than_its_journal_gives(window):
    assert end_beside_a_contradiction(window) == []


@pytest.mark.parametrize("window", ["strict", "bounded"])
def test_that_replicas_are_behind_their_journals_at_the_end_is_seen(window, monkeypatch):
    monkeypatch.setattr(DivergenceDetector, "outdate", lambda *_: None)
    complaints = end_beside_a_contradiction(window)
    assert any("ends the run with other coefficients" in line for line in complaints)
