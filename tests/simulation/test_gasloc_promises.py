"""What GASLoC promises, kept with its mechanisms and broken without each of them."""

from fractions import Fraction

import pytest

from seedflood.protocol.gasloc.algorithm import Gasloc
from seedflood.protocol.gasloc.choice import Choice
from seedflood.protocol.gasloc.conversation import Conversation
from seedflood.protocol.gasloc.course import Checkpoints
from seedflood.protocol.gasloc.exchange import Exchange
from seedflood.protocol.gasloc.final_wait import FinalWait
from seedflood.protocol.gasloc.pairing import Pairing
from seedflood.protocol.gasloc.transfer import RETRY_SECONDS, Receiving
from seedflood.protocol.gasloc.trust import STILL_SECONDS, TransferDeadline
from simulation.gasloc import runs
from simulation.gasloc.compute import Compute
from simulation.gasloc.disk import ReplicaDisk
from simulation.gasloc.liars import let_lie
from simulation.gasloc.replica import Replica, digest_of, plus
from simulation.gasloc.runs import Plan, simulate


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
    return is_said(complaint, (simulated(profile, seed, **settings) for seed in seeds))


def is_said(complaint, results):
    """Of any of these runs? Those after it are not simulated."""
    return any(complaint in line for result in results for line in result.violations)


def lying(monkeypatch, seed, kinds, *, healing_seconds=400.0, **settings):
    """A run in which liars tell these kinds of lies, and no others."""
    monkeypatch.setattr(runs, "let_lie", lambda world, chosen, told: let_lie(world, chosen, told, kinds))
    monkeypatch.setattr(runs, "HEALING_SECONDS_MAX", healing_seconds)
    drawn = {"clients": 5, "topology": "complete", "matching": None, "gamma": None}
    return simulated("liars", seed, **{**drawn, **settings})


# The mean moves by no more than uneven pairs, and each has a reason


def test_that_a_partner_is_left_before_it_has_all_is_seen(monkeypatch):
    """Its own end mixes, and what is sent to the other one is no more than what was under way."""
    arrived = Exchange.arrived

    def arrive(exchange, peer, receiving, now):
        arrived(exchange, peer, receiving, now)
        pairing = exchange._pairings.get(peer)
        if pairing is not None and pairing.stage == "held":
            exchange._mix(pairing)

    assert simulated("none", 3).uneven == 0
    monkeypatch.setattr(Exchange, "arrived", arrive)
    results = (simulated("none", seed) for seed in range(4))
    assert any(result.uneven and result.mean_moved for result in results)


def test_that_one_end_mixes_without_a_reason_is_seen(monkeypatch):
    """One of the partners that have arrived is not mixed, and nobody has given it up."""
    end = Exchange.end
    monkeypatch.setattr(Exchange, "end", lambda exchange, now: end(exchange, now)[exchange._origin % 2 :])
    assert is_seen("which has not", "none", range(3))


def test_that_the_ends_of_a_pair_mix_different_things_is_seen(monkeypatch):
    share = Pairing.share.fget
    doubled = property(lambda pairing: share(pairing)._replace(weight=1 / (2 + pairing.partner % 2)))
    monkeypatch.setattr(Pairing, "share", doubled)
    assert is_seen("have mixed different things", "none", range(3))


def test_that_something_else_moves_the_mean_is_seen(monkeypatch):
    finish = Replica.finish

    def slip(replica, *, has_momentum=True):
        finish(replica, has_momentum=has_momentum)
        replica.values = plus(replica.values, (Fraction(1), Fraction(0)))

    monkeypatch.setattr(Replica, "finish", slip)
    assert is_seen("the mean of all replicas has moved by more than", "none", range(1))


def test_crashes_move_the_mean_only_by_pairs_that_mixed_at_one_end_alone():
    results = [simulated("crashes", seed, clients=8) for seed in range(6)]
    assert all(result.is_good for result in results)
    assert sum(result.uneven for result in results) > 0
    assert 0 < max(result.mean_moved for result in results) < 0.5


# Nobody waits beyond the bound


def test_that_a_partner_is_waited_for_without_end_is_seen(monkeypatch):
    monkeypatch.setattr(Exchange, "_end_of", lambda exchange, pairing: float("inf"))
    kinds = ["offer", "withhold"]
    results = (
        lying(monkeypatch, seed, kinds, healing_seconds=60.0, clients=6, topology="ring", matching="one")
        for seed in range(6, 8)
    )
    assert any(result.stuck or " are allowed" in str(result.violations) for result in results)


def test_who_cannot_say_why_it_waits_is_seen(monkeypatch):
    monkeypatch.setattr(Gasloc, "blockers", lambda gasloc, now: ())
    assert is_seen("cannot say for whom it waits", "none", range(1))


# All end with one replica, close to the mean


def test_that_everyone_takes_whom_it_likes_is_seen(monkeypatch):
    monkeypatch.setattr(Choice, "find", lambda choice, now, moving, is_late: choice.ours)
    assert is_seen("ends with other parameters", "none", range(1), topology="path")


def test_that_what_nobody_serves_is_waited_for_is_seen(monkeypatch):
    """A liar comes first in the draw, and has only promised a replica."""
    plan = {"clients": 6, "topology": "ring", "matching": "one"}
    assert all(lying(monkeypatch, seed, ["promise"], **plan).is_good for seed in range(8, 12))
    monkeypatch.setattr(Choice, "way_seconds", lambda *_: 1e9)
    monkeypatch.setattr(Choice, "give_up", lambda *_: False)
    assert not all(lying(monkeypatch, seed, ["promise"], **plan).is_good for seed in range(8, 12))


def test_that_nobody_is_waited_for_at_the_end_is_seen(monkeypatch):
    plan = {"clients": 6, "topology": "path", "steps": 24, "local_steps": 4}
    assert simulated("speeds", 3, **plan).is_good
    monkeypatch.setattr(FinalWait, "lasts", lambda *_: False)
    assert is_seen("ends with other parameters", "all", range(12), **plan)


def test_closing_rounds_bring_hosts_together_on_a_complete_graph_and_nearer_on_others():
    shape = {"clients": 8, "local_steps": 4}
    assert simulated("none", 1, topology="complete", **shape).distance == 0
    assert simulated("none", 1, topology="ring", **shape).distance < 0.8


# Most vouch for what all end with


ENDS = {"clients": 7, "topology": "random-regular", "matching": "one", "gamma": 0.0}


@pytest.mark.parametrize("kinds", [["stray"], ["stray", "conspire"], ["stray", "snub"], ["straddle", "conspire"]])
def test_nobody_ends_with_what_no_honest_host_vouches_for(monkeypatch, kinds):
    for seed in range(3):
        result = lying(monkeypatch, seed, kinds, **ENDS)
        assert (result.violations, result.stuck) == ([], [])


def test_that_the_first_in_the_draw_is_taken_whoever_it_is_is_seen(monkeypatch):
    monkeypatch.setattr(Replica, "is_near", lambda *_: True)
    results = (lying(monkeypatch, seed, ["stray"], **ENDS) for seed in range(8))
    assert is_said("far from what honest hosts have learned", results)


def test_that_one_host_alone_vouches_for_all_is_seen(monkeypatch):
    monkeypatch.setattr(Choice, "_is_backed", lambda choice, one: True)
    results = (lying(monkeypatch, seed, ["stray"], **ENDS) for seed in range(8))
    assert is_said("far from what honest hosts have learned", results)


def test_that_what_others_vouch_for_is_refused_is_seen(monkeypatch):
    """Half of the honest hosts are near what a liar states, and nobody takes what others hold."""
    monkeypatch.setattr(Choice, "_is_backed", lambda choice, one: False)
    find = Choice.find
    monkeypatch.setattr(
        Choice, "find", lambda choice, now, moving, is_late: find(choice, now, moving=moving, is_late=False)
    )
    results = (lying(monkeypatch, seed, ["straddle"], **ENDS) for seed in range(8))
    assert is_said("ends with other parameters", results)


# Contents


def test_that_other_bytes_than_were_offered_are_kept_is_seen(monkeypatch):
    trusted = Compute._read
    monkeypatch.setattr(Compute, "_read", lambda compute, sink, digest: trusted(compute, sink, digest_of(sink.data)))
    results = (lying(monkeypatch, seed, ["forge"], matching="one") for seed in range(3))
    assert is_said("kept parameters that its partner never offered", results)


def test_that_a_donor_may_be_as_slow_as_it_likes_is_seen(monkeypatch):
    assert lying(monkeypatch, 3, ["dribble"]).is_good

    def look(watch, held, now):
        if held > watch.held:
            watch.held, watch.until = held, now + STILL_SECONDS

    monkeypatch.setattr(TransferDeadline, "look", look)
    result = lying(monkeypatch, 3, ["dribble"])
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
    keep = Checkpoints.keep
    monkeypatch.setattr(Checkpoints, "keep", lambda checkpoints, round_: keep(checkpoints, max(0, round_ - 2)))
    assert is_seen("writes a checkpoint for round", "none", range(1))


@pytest.mark.parametrize("settings", [{}, {"matching": "full"}])
def test_all_promises_are_kept_by_the_same_plans(settings):
    """The judges are silent where nothing is switched off."""
    for profile in ("none", "crashes", "disks", "network", "liars"):
        result = simulated(profile, 0, **settings)
        assert (result.violations, result.stuck) == ([], [])
