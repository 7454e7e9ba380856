"""The checks can fail: each is shown a world that is broken in its way, by hand or by a fault in the core."""

from collections import Counter
from types import SimpleNamespace

import pytest
from worlds import STORMY, make_world, run_world

from seedflood.host.seedflood.driver import SeedfloodDriver
from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.seedflood.bundles import Update, Updates, make_bundle
from seedflood.protocol.seedflood.divergence import DivergenceDetector
from seedflood.protocol.seedflood.donors import Donors
from seedflood.protocol.seedflood.flood import Flood
from seedflood.protocol.seedflood.holdings import Holdings
from seedflood.protocol.seedflood.messages import ClosedEpoch, EpochDigest, Vote
from seedflood.protocol.seedflood.pending import Pending
from seedflood.protocol.seedflood.voting import DISPUTE_SECONDS
from seedflood.protocol.view import Blocker
from simulation.checks import find_refusals, find_stuck
from simulation.seedflood.checks import find_mistakes, find_violations
from simulation.seedflood.journal import MemoryBundleJournal
from simulation.seedflood.ledger import Ledger


@pytest.fixture
def world():
    return run_world("ring", 3, steps=3)


def last_bundle(host):
    return list(host.journal.bundles.values())[-1]


def test_a_good_world_has_no_violations(world):
    assert find_violations(world.hosts) == []
    assert find_stuck(world.hosts) == []


def test_an_update_applied_twice_is_seen(world):
    host = world.hosts[1]
    host.ledger.apply(last_bundle(host).updates())
    violations = find_violations(world.hosts)
    assert any("h1 applied" in line and "2 times" in line for line in violations)
    assert "h1 has other coefficients than its updates add up to" in violations


def test_an_update_that_was_never_applied_is_seen(world):
    host = world.hosts[1]
    update = last_bundle(host).updates()[0]
    del host.ledger.applied[update.origin, update.step]
    assert find_violations(world.hosts) == [f"h1 never applied ({update.origin:016x}, {update.step})"]


def test_an_update_that_nobody_published_is_seen(world):
    world.hosts[1].ledger.apply([Update(world.hosts[0].origin, 99, (5, 0))])
    assert any("which nobody published" in line for line in find_violations(world.hosts))


def test_a_journal_that_holds_something_else_than_was_published_is_seen(world):
    bundle = last_bundle(world.hosts[1])
    world.hosts[0].journal.bundles[bundle.origin, bundle.step] = make_bundle(bundle.origin, bundle.step, ((1, 1),))
    assert any("h0 holds another" in line for line in find_violations(world.hosts))


def test_unequal_frontiers_are_seen(world):
    world.hosts[2].node.frontier.add(world.hosts[0].origin, 3, 3)
    assert find_violations(world.hosts) == ["frontiers differ"]


def test_a_frontier_that_ends_with_holes_is_seen(world):
    world.hosts[2].node.frontier.add(world.hosts[0].origin, 50, 50)
    assert "h2 ends with 1 holes in its frontier" in find_violations(world.hosts)


def test_wrong_coefficients_are_seen(world):
    world.hosts[2].ledger.sums[0] += 1
    assert find_violations(world.hosts) == ["h2 has other coefficients than its updates add up to"]


def test_a_host_without_the_sum_that_others_have_is_seen():
    """Where steps go in their order, what came too late for the sum counts there, and not with the others."""
    world = run_world("ring", 3, steps=3, optimizer="momentum")
    late = last_bundle(world.hosts[1])
    covered = [Held(host.origin, late.step if host.origin == late.origin else 3) for host in world.hosts]
    ledger = Ledger(world.chronicle)
    ledger.apply(world.chronicle.covered(Frontier(covered), 0))
    closed = ClosedEpoch(0, tuple(covered), ledger.coefficients(0))
    for host in world.hosts[:2]:
        host.ledger.adopt(closed, host.journal.adopt(closed))
    assert find_violations(world.hosts) == ["h2 has other coefficients than its updates add up to"]
    world.hosts[2].ledger.adopt(closed, world.hosts[2].journal.adopt(closed))
    assert find_violations(world.hosts) == []


def test_a_contradiction_is_seen(world):
    world.chronicle.say(make_bundle(world.hosts[0].origin, 1, ((7, 7),)))
    assert any("spoke twice" in line for line in find_mistakes(world.hosts))


def test_a_window_that_closes_again_is_seen(world):
    world.hosts[1].compute(world.hosts[1].windows[0])
    assert any("h1 closed the window of step 0 after" in line for line in find_mistakes(world.hosts))


def test_a_bundle_that_is_sent_before_it_is_kept_is_seen(world):
    host = world.hosts[1]
    host.send(world.hosts[0].origin, [Updates((make_bundle(host.origin, 3, ((7, 7),)),))])
    assert find_mistakes(world.hosts) == ["h1 sent step 3 before it was durable"]


def test_a_host_that_is_ready_with_wrong_coefficients_is_seen():
    world = make_world("ring", 3, steps=10)
    world.start()
    world.run_until_step(2)
    host = world.hosts[0]
    host.ledger.sums[0] += 1
    host._was_ready = False
    run_through(world)
    assert any(line.startswith("h0 reported ready with other") for line in find_mistakes(world.hosts))


def test_who_left_is_not_judged_but_its_updates_are_known(world):
    leaver, others = world.hosts[0], world.hosts[1:]
    leaver.ledger.applied.clear()
    assert find_violations(world.hosts) != []
    assert find_violations(others) == []


def test_who_is_stuck_is_named_with_what_it_waits_for():
    world = make_world("ring", 3, steps=50)
    world.start()
    world.run_until_step(2)
    world.hosts[1].crash()
    world.run_for(30)
    step = world.hosts[0].node.step
    assert find_stuck(world.hosts)[0] == f"h0 is collecting at step {step}, waits for h1 (window from step {step})"
    assert find_stuck(world.hosts)[1].startswith("h1 is down at step")


def test_hosts_of_one_name_are_named_once():
    made_up = [Blocker("window", origin, "h7", 4, 0.0) for origin in range(30)]
    others = [Blocker("window", origin, f"s{origin}", 4, 0.0) for origin in range(30)]
    node = SimpleNamespace(phase="collecting", step=4, blockers=lambda _: (*made_up, *others))
    host = SimpleNamespace(name="h0", is_up=True, is_done=False, node=node, clock=SimpleNamespace(now=0.0))
    (line,) = find_stuck([host])
    assert line.startswith(
        "h0 is collecting at step 4, waits for 30 times h7 (window from step 4), s0 (window from step"
    )
    assert line.endswith(", s14 (window from step 4), and 15 more")


# A mechanism switched off: would anyone notice?


def run_through(world, seconds=300):
    try:
        world.run(seconds)
    except AssertionError as error:
        return [str(error) or "an invariant broke"]
    return find_stuck(world.hosts) + find_violations(world.hosts)


def judged(world):
    """Runs a world that may be broken in any way; says what was seen."""
    world.start()
    return run_through(world)


def test_a_frontier_that_takes_news_for_duplicates_is_seen(monkeypatch):
    holds = Frontier.holds
    monkeypatch.setattr(Frontier, "holds", lambda *args: args[2] == 3 or holds(*args))
    assert judged(make_world("complete", 3, window="bounded")) != []


def test_without_suppression_of_duplicates_updates_are_applied_twice(monkeypatch):
    receive = Holdings.receive

    def receive_all(holdings, peer, bundles, terms):
        taken = receive(holdings, peer, bundles, terms)
        holdings.pending.add(bundle for bundle in bundles if bundle not in taken)
        return taken

    monkeypatch.setattr(Holdings, "receive", receive_all)
    assert any("2 times" in line for line in judged(make_world("complete", 3, window="bounded", weather=STORMY)))


def test_without_repair_a_lost_frame_is_missed_for_ever(monkeypatch):
    monkeypatch.setattr(Donors, "next_donor", lambda donors, frontier: None)
    monkeypatch.setattr(Flood, "offer", lambda flood, peer, bundles: None)
    assert judged(make_world("path", 5, steps=30, window="bounded", weather=STORMY)) != []


def test_without_flooding_and_repair_nobody_hears_anything(monkeypatch):
    monkeypatch.setattr(Donors, "next_donor", lambda donors, frontier: None)
    monkeypatch.setattr(Flood, "spread", lambda flood, bundle: None)
    monkeypatch.setattr(Flood, "offer", lambda flood, peer, bundles: None)
    assert len([line for line in judged(make_world("ring", 3)) if " at step 0" in line]) == 3


def test_a_journal_that_forgets_own_bundles_makes_an_origin_contradict_itself():
    world = make_world("path", 2, steps=30)
    world.start()
    world.run_until_step(5)
    for host in world.hosts:
        host.journal.bundles = {name: b for name, b in host.journal.bundles.items() if b.step < 2}
        world.crash(host.index, down_seconds=0.1)
    assert any("spoke twice" in line for line in run_through(world))


def test_a_window_that_forgets_what_was_late_is_seen(monkeypatch):
    take_window = Pending.take_window

    def amnesic(pending, window, *args):
        applied = Frontier(pending.applied.held())
        pending.drop(lambda bundle: bundle.last < window.first)
        pending.applied = applied
        return take_window(pending, window, *args)

    monkeypatch.setattr(Pending, "take_window", amnesic)
    assert any("never applied" in line for line in judged(make_world("path", 5, window="bounded")))


def test_sending_before_persisting_is_seen(monkeypatch):
    monkeypatch.setattr(SeedfloodDriver, "_persist", lambda driver, out: None)
    assert any("before it was durable" in line for line in judged(make_world("ring", 3, steps=4)))


def test_a_compaction_that_drops_too_much_is_seen(monkeypatch):
    def careless(journal, closed):
        journal.bundles = {name: b for name, b in journal.bundles.items() if journal.epoch_of(b) > closed.epoch + 1}
        return 0

    monkeypatch.setattr(MemoryBundleJournal, "compact", careless)
    world = make_world("ring", 4, steps=20, refresh_period=4, window="bounded")
    world.start()
    world.run_until_step(14)
    world.hosts[0].lose_disk()
    world.start_later(world.hosts[0], 0.5)
    assert run_through(world) != []


def test_without_a_digest_watch_a_flipped_coefficient_stays(monkeypatch):
    monkeypatch.setattr(DivergenceDetector, "rebuild", lambda *_: False)
    world = make_world("ring", 4, steps=12)
    world.start()
    world.run_until_step(4)
    world.hosts[0].corrupt()
    assert run_through(world) != []


def test_a_host_that_ends_with_other_coefficients_than_its_journal_gives_is_seen(world):
    host = world.hosts[1]
    host.finished()
    world.run_for(1)
    assert host.mistakes == []
    host.ledger.sums[0] += 1
    host.finished()
    world.run_for(1)
    assert host.mistakes == ["ends the run with other coefficients than its journal gives"]


def test_an_honest_host_that_is_named_is_seen(world):
    world.hosts[2].named.add(world.hosts[1].origin)
    assert find_mistakes(world.hosts) == [f"h2 named {world.hosts[1].origin:016x}, which sent no two things"]


def test_an_honest_host_that_a_page_shows_as_one_that_signs_other_sums_is_seen_unless_its_bit_had_flipped(world):
    shown, shows = world.hosts[1], world.hosts[2]
    shows.node.seedflood.exchange.voting.misvoting[shown.origin] = 0
    assert find_violations(world.hosts) == [f"h2 shows that {shown.origin:016x} signs other sums"]
    shown.was_corrupt = True
    assert find_violations(world.hosts) == []


def test_an_honest_host_that_is_shown_as_one_that_votes_twice_is_seen(world):
    twice, shows = world.hosts[1], world.hosts[2]
    vote = Vote(twice.origin, 0, EpochDigest(bytes(32), bytes(32)))
    shows.node.seedflood.holdings.certificates.doubles[twice.origin] = vote, vote
    assert find_violations(world.hosts) == [f"h2 shows that {twice.origin:016x} votes twice"]


def test_a_liar_that_somebody_does_not_name_is_seen(world):
    liar, *honest = world.hosts
    world.chronicle.liars = {liar.origin}
    for scalar, taker in ((1, honest[0]), (1, honest[1]), (2, honest[1])):
        world.chronicle.take(make_bundle(liar.origin, 99, ((7, scalar),)), taker.origin, 1.0)
    for host in honest[:-1]:
        host.named.add(liar.origin)
    assert find_violations(honest) == [f"{honest[-1].name} does not name {liar.origin:016x}"]


@pytest.mark.parametrize(("seconds", "is_named"), [(DISPUTE_SECONDS - 0.1, False), (DISPUTE_SECONDS, True)])
def test_what_only_a_removed_host_heard_of_a_liar_counts_if_it_could_be_compared(world, seconds, is_named):
    liar, removed, honest = world.hosts
    world.chronicle.liars = {liar.origin}
    for scalar, taker in ((1, honest), (2, removed)):
        world.chronicle.take(make_bundle(liar.origin, 99, ((7, scalar),)), taker.origin, 1.0)
    world.chronicle.removed[removed.origin] = 1.0 + seconds
    assert find_violations([honest]) == [f"{honest.name} does not name {liar.origin:016x}"] * is_named


def test_honest_hosts_that_refuse_each_other_are_seen(world):
    liar, *honest = world.hosts
    refusals = Counter({(1, 2, "signature"): 3, (1, 0, "signature"): 1, (0, 1, "run"): 1, (2, 1, "duplicate"): 1})
    assert find_refusals(honest, refusals) == ["h1 refused h2 (signature, 3 times)"]
    assert liar not in honest
