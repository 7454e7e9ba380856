"""The checks can fail: each is shown a world that is broken in its way, by hand or by a fault in the core."""

import pytest
from worlds import STORMY, make_world, run_world

from seedflood.protocol.flood import Flood
from seedflood.protocol.frontier import Frontier
from seedflood.protocol.messages import Update
from seedflood.protocol.node import Node
from seedflood.protocol.pending import Pending
from seedflood.protocol.repair import Repair
from seedflood.simulation.checks import find_stuck, find_violations
from seedflood.simulation.host import Ledger


@pytest.fixture
def world():
    return run_world("ring", 3, steps=3)


def last_bundle(host):
    return host.journal.bundles[-1]


def test_a_good_world_has_no_violations(world):
    assert find_violations(world.hosts) == []
    assert find_stuck(world.hosts) == []


def test_an_update_applied_twice_is_seen(world):
    host = world.hosts[1]
    host.ledger.apply(last_bundle(host).updates()[0])
    assert any("h1 applied" in line and "2 times" in line for line in find_violations(world.hosts))


def test_an_update_that_was_never_applied_is_seen(world):
    host = world.hosts[1]
    update = last_bundle(host).updates()[0]
    del host.ledger.applied[update.origin, update.step]
    assert find_violations(world.hosts) == [f"h1 never applied ({update.origin:016x}, {update.step})"]


def test_an_update_that_nobody_published_is_seen(world):
    world.hosts[1].ledger.apply(Update(world.hosts[0].origin, 99, 5, 0))
    assert any("which nobody published" in line for line in find_violations(world.hosts))


def test_a_journal_that_holds_something_else_than_was_published_is_seen(world):
    host = world.hosts[0]
    step = last_bundle(world.hosts[1]).step
    host.published[step] = (1, 1)
    assert any("holds another" in line and f"{host.origin:016x}" in line for line in find_violations(world.hosts))


def test_unequal_frontiers_are_seen(world):
    world.hosts[2].node.frontier.add(world.hosts[0].origin, 50, 50)
    assert find_violations(world.hosts) == ["frontiers differ"]


def test_unequal_coefficients_are_seen(world):
    world.hosts[2].ledger.sum += 1
    assert find_violations(world.hosts) == ["coefficients differ"]


def test_who_left_is_not_judged_but_its_updates_are_known(world):
    leaver, others = world.hosts[0], world.hosts[1:]
    leaver.ledger.applied.clear()
    assert find_violations(world.hosts) != []
    assert find_violations(others) != []
    assert find_violations(others, left=[leaver]) == []


def test_who_is_stuck_is_named_with_what_it_waits_for():
    world = make_world("ring", 3, steps=50)
    world.start()
    world.run_until_step(2)
    world.hosts[1].crash()
    world.run_for(30)
    step = world.hosts[0].node.step
    assert find_stuck(world.hosts)[0] == f"h0 is collecting at step {step}, waits for h1"
    assert find_stuck(world.hosts)[1].startswith("h1 is down at step")


# A fault in the core itself: would anyone notice?


def judged(world):
    """Runs a world that may be broken in any way; says what was seen."""
    world.start()
    try:
        world.run(300)
    except AssertionError as error:
        return [str(error) or "an invariant broke"]
    return find_stuck(world.hosts) + find_violations(world.hosts)


def test_without_suppression_of_duplicates_updates_are_applied_twice(monkeypatch):
    monkeypatch.setattr(Node, "_receive_bundles", lambda node, peer, bundles: [node._take(b) for b in bundles])
    monkeypatch.setattr(Flood, "spread", lambda flood, bundle: None)  # or it would go round for ever
    assert any("2 times" in line for line in judged(make_world("complete", 3, window="none", weather=STORMY)))


def test_a_frontier_that_takes_news_for_duplicates_is_seen(monkeypatch):
    holds = Frontier.holds
    monkeypatch.setattr(Frontier, "holds", lambda *args: args[2] == 3 or holds(*args))
    assert any("never applied" in line for line in judged(make_world("complete", 3, window="none")))


def test_without_repair_a_broken_link_loses_updates(monkeypatch):
    monkeypatch.setattr(Repair, "_want", lambda repair, peer: None)
    monkeypatch.setattr(Flood, "offer", lambda flood, peer, bundles: None)
    assert judged(make_world("path", 5, steps=30, window="none", weather=STORMY)) != []


def test_without_flooding_and_repair_nobody_hears_anything(monkeypatch):
    monkeypatch.setattr(Repair, "_want", lambda repair, peer: None)
    monkeypatch.setattr(Flood, "spread", lambda flood, bundle: 0)
    monkeypatch.setattr(Flood, "offer", lambda flood, peer, bundles: None)
    assert len([line for line in judged(make_world("ring", 3)) if " at step 0" in line]) == 3


def test_a_journal_that_forgets_own_bundles_makes_an_origin_contradict_itself():
    world = make_world("path", 2, steps=30)
    world.start()
    world.run_until_step(5)
    for host in world.hosts:
        host.journal.bundles = [bundle for bundle in host.journal.bundles if bundle.step < 2]
        host.journal._durable = len(host.journal.bundles)
        world.crash(host.index, down_seconds=0.1)
    assert any("spoke twice" in line for line in judged_again(world))


def judged_again(world):
    try:
        world.run(300)
    except AssertionError as error:
        return [str(error)]
    return find_violations(world.hosts)


def test_a_window_that_forgets_what_was_late_is_seen(monkeypatch):
    take_window = Pending.take_window

    def forgetful(pending, window, *args):
        pending.bundles = [bundle for bundle in pending.bundles if bundle.last >= window.first]
        return take_window(pending, window, *args)

    monkeypatch.setattr(Pending, "take_window", forgetful)
    assert any("never applied" in line for line in judged(make_world("path", 5, window="none")))


def test_a_ledger_does_not_depend_on_order_and_tells_updates_apart(world):
    bundles = world.hosts[0].journal.bundles
    ledgers = [Ledger() for _ in range(3)]
    for bundle in bundles:
        ledgers[0].apply(bundle.updates()[0])
    for bundle in reversed(bundles):
        ledgers[1].apply(bundle.updates()[0])
    for bundle in bundles[1:]:
        ledgers[2].apply(bundle.updates()[0])
    assert ledgers[0].sum == ledgers[1].sum != ledgers[2].sum
