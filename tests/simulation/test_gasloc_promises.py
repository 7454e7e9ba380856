"""What GASLoC promises, kept with its mechanisms and broken without each of them."""

import pytest

from seedflood.host.backlog import Backlog
from seedflood.host.driver import Driver
from seedflood.protocol.gasloc import algorithm
from seedflood.protocol.gasloc.algorithm import Gasloc
from seedflood.protocol.gasloc.choice import Choice
from seedflood.protocol.gasloc.conversation import Conversation
from seedflood.protocol.gasloc.exchange import Exchange
from seedflood.protocol.gasloc.final_wait import FinalWait
from seedflood.protocol.gasloc.ledger import Ledger
from seedflood.protocol.gasloc.orders import Keep
from seedflood.protocol.gasloc.transfer import RETRY_SECONDS, Receiving
from seedflood.protocol.gasloc.trust import STILL_SECONDS, Watch
from simulation.gasloc import runs
from simulation.gasloc.compute import Compute
from simulation.gasloc.disk import ReplicaDisk
from simulation.gasloc.liars import let_lie
from simulation.gasloc.replica import digest_of
from simulation.gasloc.runs import Plan, simulate
from simulation.journal import MemoryJournal


def simulated(profile, seed, **settings):
    return simulate(
        Plan(
            **({"clients": 6, "steps": 24, "matching": "one", "gamma": 0.0} | settings),
            profile=profile,
            seed=seed,
        )
    )


def is_seen(complaint, profile, seeds=range(8), **settings):
    """Does any seed show it?"""
    results = (simulated(profile, seed, **settings) for seed in seeds)
    return any(complaint in line for result in results for line in result.violations)


def lying(monkeypatch, seed, kinds, *, healing_seconds=400.0, **settings):
    """A run in which liars tell these kinds of lies, and no others."""
    monkeypatch.setattr(runs, "let_lie", lambda world, chosen, told: let_lie(world, chosen, told, kinds))
    monkeypatch.setattr(runs, "HEALING_SECONDS_MAX", healing_seconds)
    drawn = {"clients": 5, "topology": "complete", "matching": None, "gamma": None}
    return simulated("liars", seed, **{**drawn, **settings})


# A pair mixes together or not at all


def test_that_nothing_is_kept_is_seen(monkeypatch):
    monkeypatch.setattr(Driver, "_persist", lambda *_: None)
    assert is_seen("before that was durable", "crashes")


def test_a_disk_that_keeps_nothing_through_a_power_failure_is_seen(monkeypatch):
    monkeypatch.setattr(MemoryJournal, "_sync", lambda journal: None)
    assert is_seen("before that was durable", "crashes")


def test_that_a_full_disk_withholds_nothing_is_seen(monkeypatch):
    monkeypatch.setattr(Backlog, "holds_back", lambda *_: False)
    assert is_seen("before that was durable", "disks")


def test_that_parts_are_not_added_again_after_a_crash_is_seen(monkeypatch):
    restored = Ledger.restored
    monkeypatch.setattr(Ledger, "restored", lambda ledger, serial: restored(ledger, serial)[:0])
    assert is_seen("the mean of all replicas has moved", "crashes")


def test_that_parts_are_added_again_though_a_checkpoint_has_them_is_seen(monkeypatch):
    monkeypatch.setattr(runs, "HEALING_SECONDS_MAX", 20.0)
    monkeypatch.setattr(Ledger, "checkpointed", lambda ledger, serial: [])
    restored = Ledger.restored
    monkeypatch.setattr(Ledger, "restored", lambda ledger, serial: restored(ledger, 0))
    assert is_seen("twice with one partner", "crashes", range(1))


def test_that_nobody_asks_for_the_word_is_seen(monkeypatch):
    monkeypatch.setattr(Exchange, "_remind", lambda *_: None)
    assert is_seen("which has not", "network")


def test_that_both_ends_may_skip_is_seen(monkeypatch):
    """A partner that is prepared takes silence for a no."""
    heard = Exchange.heard_outcome
    monkeypatch.setattr(
        Exchange, "heard_outcome", lambda one, peer, outcome: heard(one, peer, outcome._replace(is_mixed=False))
    )
    assert is_seen("which has not", "none", range(1))


# Nobody waits beyond the bound


def test_that_a_partner_is_waited_for_without_end_is_seen(monkeypatch):
    monkeypatch.setattr(Exchange, "advance", lambda exchange, now: None)
    kinds = ["offer", "withhold"]
    results = [
        lying(monkeypatch, seed, kinds, healing_seconds=60.0, clients=6, topology="ring", matching="one")
        for seed in range(6, 8)
    ]
    assert any(" are allowed" in line for result in results for line in result.violations)
    assert any(result.stuck for result in results)


def test_who_cannot_say_why_it_waits_is_seen(monkeypatch):
    monkeypatch.setattr(Gasloc, "blockers", lambda gasloc, now: ())
    assert is_seen("cannot say for whom it waits", "none", range(1))


# All end with one replica, close to the mean


def test_that_everyone_takes_whom_it_likes_is_seen(monkeypatch):
    monkeypatch.setattr(Choice, "find", lambda choice, now, moving: choice.ours)
    assert is_seen("ends with other parameters", "none", range(1), topology="path")


def test_that_what_nobody_serves_is_waited_for_is_seen(monkeypatch):
    """A liar comes first in the draw, and has only promised a replica."""
    plan = {"clients": 6, "topology": "ring", "matching": "one"}
    assert lying(monkeypatch, 10, ["promise"], **plan).is_good
    monkeypatch.setattr(Choice, "_way_seconds", lambda *_: 1e9)
    monkeypatch.setattr(Choice, "give_up", lambda *_: False)
    assert "ends with other parameters" in str(lying(monkeypatch, 10, ["promise"], **plan).violations)


@pytest.mark.long
def test_that_one_replica_takes_the_time_of_all_others_is_seen(monkeypatch):
    """A liar comes first in the draw, and gives its replica byte by byte."""
    assert simulated("liars", 58, topology="bridge").is_good
    monkeypatch.setattr(Choice, "give_up", lambda *_: False)
    assert "ends with other parameters" in str(simulated("liars", 58, topology="bridge").violations)


def test_that_nobody_is_waited_for_at_the_end_is_seen(monkeypatch):
    plan = {"clients": 6, "topology": "path", "steps": 24, "local_steps": 4}
    assert simulated("speeds", 3, **plan).is_good
    monkeypatch.setattr(FinalWait, "lasts", lambda *_: False)
    assert is_seen("ends with other parameters", "all", range(12), **plan)


def test_that_hosts_close_no_distance_is_seen(monkeypatch):
    shape = {"topology": "ring", "clients": 8, "local_steps": 4}
    assert simulated("none", 1, **shape).distance < 1.05e-3
    monkeypatch.setattr(algorithm, "closing_rounds", lambda *_: 0)
    assert simulated("none", 1, **shape).distance is None


# Contents


def test_that_other_bytes_than_were_offered_are_kept_is_seen(monkeypatch):
    keep = Compute._keep

    def trust(compute, order):
        keep(compute, Keep(order.round, order.partner, digest_of(order.sink.data), order.sink))

    monkeypatch.setattr(Compute, "_keep", trust)
    results = [lying(monkeypatch, seed, ["forge"], matching="one") for seed in range(3)]
    assert "kept parameters that its partner never offered" in str([result.violations for result in results])


def test_that_a_donor_may_be_as_slow_as_it_likes_is_seen(monkeypatch):
    assert lying(monkeypatch, 7, ["dribble"]).is_good

    def look(watch, held, now):
        if held > watch.held:
            watch.held, watch.until = held, now + STILL_SECONDS

    monkeypatch.setattr(Watch, "look", look)
    result = lying(monkeypatch, 7, ["dribble"])
    assert any("is kept from a copy" in line for line in result.violations)
    assert result.stuck


def test_that_contents_are_found_by_their_digest_alone_is_seen(monkeypatch):
    """What a liar has sent under a true digest is taken for the bytes of the next one that offers it."""
    plan = {"clients": 6, "topology": "ring", "matching": "full"}
    assert lying(monkeypatch, 1, ["reuse"], **plan).is_good
    opened = ReplicaDisk.open
    monkeypatch.setattr(ReplicaDisk, "open", lambda disk, peer, digest, size: opened(disk, 0, digest, size))
    assert "for a liar" in str(lying(monkeypatch, 1, ["reuse"], **plan).violations)


def test_a_liar_that_alone_has_a_copy_and_crawls_is_not_waited_for_for_ever(monkeypatch):
    """All others are late, so that nobody else has begun."""
    result = lying(monkeypatch, 5, ["dribble"], healing_seconds=1000.0)
    assert (result.violations, result.stuck) == ([], [])


def test_that_a_full_disk_ends_a_host_to_which_parameters_come_is_seen(monkeypatch):
    def take(receiving, chunk, now):
        if chunk.offset != receiving.held:
            return False
        receiving.sink.write(chunk.data)
        receiving.held, receiving.ask_at = chunk.offset + len(chunk.data), now + RETRY_SECONDS
        return True

    monkeypatch.setattr(Receiving, "take", take)
    assert is_seen("no space left", "disks", range(3, 9))


def test_a_table_that_grows_is_seen(monkeypatch):
    disconnected = Conversation.disconnected

    def keep_progress(talk, peer):
        progress = dict(talk.progress)
        disconnected(talk, peer)
        talk.progress.update(progress)

    monkeypatch.setattr(Conversation, "disconnected", keep_progress)
    assert is_seen("in Conversation.progress, more than", "crashes")


def test_a_checkpoint_that_holds_a_later_round_is_seen(monkeypatch):
    keep = Gasloc._keep_checkpoint
    monkeypatch.setattr(Gasloc, "_keep_checkpoint", lambda gasloc, round_: keep(gasloc, max(0, round_ - 2)))
    assert is_seen("writes a checkpoint for round", "none", range(1))


@pytest.mark.parametrize("settings", [{}, {"matching": "full"}])
def test_all_promises_are_kept_by_the_same_plans(settings):
    """The judges are silent where nothing is switched off."""
    for profile in ("none", "crashes", "disks", "network", "liars"):
        result = simulated(profile, 0, **settings)
        assert (result.violations, result.stuck) == ([], [])
