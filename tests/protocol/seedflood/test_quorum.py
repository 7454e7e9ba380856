"""Compaction by a quorum, by hand: any two sums of an epoch in journals are such that one covers the other."""

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from origins import A, B, C, D, E, epoch, is_signed, make_rules, pretend_signature, verify

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.seedflood.epochs import Closings
from seedflood.protocol.seedflood.evidence import Evidence
from seedflood.protocol.seedflood.quorum import Quorum
from seedflood.protocol.swarm.gate import Gate
from seedflood.protocol.swarm.roster import Entry, Roster

OPERATOR = hashlib.sha256(b"operator").digest()
PERIOD = 2
ORIGINS = (A, B, C, D, E)
BUNDLES = [origin.bundle(step) for origin in ORIGINS for step in range(PERIOD)]
AFTER = 10
"""The step at which the first epoch is closed, and no other, whatever is lacking."""


def roster_of(*hosts, removed=()):
    entries = [Entry(one.name, one.public_key, () if one in removed else ("train",)) for one in hosts]
    return Roster(1, tuple(entries)).signed(lambda told: pretend_signature(OPERATOR, told), OPERATOR, "")


def make_quorum(*hosts, removed=()):
    rules = make_rules(clients=len(hosts), refresh_period=PERIOD, window="bounded")
    gate = Gate(verify, OPERATOR, "", roster_of(*hosts, removed=removed))
    return rules, Quorum(rules, gate, is_signed)


class Host:
    """One host of five: what it holds of the first epoch as bundles, the sum in its journal, what it has heard that
    others state, and who was removed as far as it knows."""

    def __init__(self, origin):
        self.origin = origin
        self.gate = Gate(verify, OPERATOR, "", roster_of(*ORIGINS))
        self.rules = make_quorum(*ORIGINS)[0]
        self.quorum = Quorum(self.rules, self.gate, is_signed)
        self.removed = frozenset()
        self.closings = Closings(self.rules, self.quorum)
        self.bundles = set()
        self.sum = None
        self.heard = {}
        self.state()

    @property
    def covered(self):
        return Frontier(self.sum.frontier if self.sum is not None else ())

    @property
    def held(self):
        held = Frontier(self.covered.held())
        for bundle in self.bundles:
            held.add(*bundle.span)
        return held

    def hear_of(self, removed):
        """The operator has removed these: what they stated is not known any more."""
        self.removed |= removed
        self.gate.adopt(roster_of(*ORIGINS, removed=self.removed))
        for origin in self.removed:
            self.heard.pop(origin.id, None)

    def state(self):
        self.heard[self.origin.id] = self.origin.member(closed=self.closings.statement())

    def hear(self, bundle):
        if not self.held.holds(*bundle.span):
            self.bundles.add(bundle)
            self.closings.note([bundle])
            self.state()

    def close(self):
        for order in self.closings.due(AFTER, lambda _: False):
            total = Frontier(order.frontier).count()
            for closed in self.closings.summed(epoch(order.epoch, *order.frontier, total=total)):
                self.keep(closed)
        self.state()

    def settle(self):
        self.closings.reconsider(self.heard.values())
        for closed in self.closings.agreed(self.heard.values()):
            self.keep(closed)
        self.state()

    def keep(self, closed):
        assert Frontier(closed.frontier).covers(self.covered.held()), "the journal would lose updates"
        self.sum = closed
        self.bundles = {bundle for bundle in self.bundles if not self.covered.holds(*bundle.span)}

    def take(self, donor):
        if donor.sum is None or self.held.covers(donor.sum.frontier):
            return
        evidence = Evidence(self.rules)
        for told in donor.closings.told():
            evidence.take(told)
        signed = evidence.of(donor.sum, self.heard.values(), self.origin.id, self.quorum, is_patient=True)
        if signed is not None and not self.closings.is_closed(0, signed[0]) and self.closings.may_adopt(donor.sum):
            adopted = replace(donor.sum, warrant=signed[1])
            self.keep(adopted)
            self.closings.restore(adopted)
            self.state()


def meet(hosts):
    """Each closes what it can, and hears what the others state."""
    for host in hosts:
        host.close()
    known = frozenset().union(*(host.removed for host in hosts))
    for host in hosts:
        host.hear_of(known)
    hosts = [host for host in hosts if host.origin not in known]
    for host in hosts:
        host.heard |= {peer.origin.id: peer.heard[peer.origin.id] for peer in hosts}
    for host in hosts:
        host.settle()


def compact(hosts, bundle):
    """These hold a bundle, meet, and compact the epoch."""
    for host in hosts:
        host.hear(bundle)
    meet(hosts)
    assert all(host.sum is not None for host in hosts)


def are_comparable(hosts):
    kept = [host.covered for host in hosts if host.sum is not None]
    return all(one.covers(other.held()) or other.covers(one.held()) for one in kept for other in kept)


def heal(hosts):
    """Everyone hears everything of everyone, again and again."""
    for host in hosts * 3:
        for peer in hosts:
            for bundle in sorted(peer.bundles):
                host.hear(bundle)
            host.take(peer)
        meet(hosts)


HOSTS = st.integers(0, 4)
REMOVALS = st.tuples(st.just("remove"), HOSTS, HOSTS)
ACTIONS = st.one_of(
    st.tuples(st.just("hear"), HOSTS, st.integers(0, 3)),
    st.tuples(st.just("meet"), st.sets(HOSTS, min_size=2, max_size=4)),
    st.tuples(st.just("take"), HOSTS, HOSTS),
)


@settings(max_examples=150)
@given(st.booleans(), st.lists(ACTIONS | REMOVALS, max_size=40))
def test_of_two_compacted_sums_one_covers_the_other_and_in_the_end_all_hold_the_same(is_begun, actions):
    """Whomever the operator removes, and tells of it when. Who was removed is looked at no more. is_begun: does it
    begin with a compacted sum?"""
    hosts = [Host(origin) for origin in ORIGINS]
    removed = frozenset()
    if is_begun:
        compact(hosts[: hosts[0].quorum.size], BUNDLES[0])
    for action in actions:
        match action:
            case "hear", one, bundle:
                hosts[one].hear(BUNDLES[bundle])
            case "meet", those:
                meet([hosts[one] for one in sorted(those)])
            case "take", one, donor:
                hosts[one].take(hosts[donor])
            case "remove", one, told:
                removed |= {ORIGINS[one]} if len(removed) < len(ORIGINS) - 1 else set()
                hosts[told].hear_of(removed)
        assert are_comparable([host for host in hosts if host.origin not in removed])
    hosts = [host for host in hosts if host.origin not in removed]
    for host in hosts:
        host.hear_of(removed)
    heal(hosts)
    assert len({host.held.digest() for host in hosts}) == 1
    assert len({host.closings.statement() for host in hosts}) == 1


def test_less_than_half_would_let_two_sides_part_for_ever(monkeypatch):
    """Which is why a quorum is more than half."""
    monkeypatch.setattr(Quorum, "size", 2)
    hosts = [Host(origin) for origin in ORIGINS]
    for pair, bundle in (((0, 1), BUNDLES[0]), ((2, 3), BUNDLES[2])):
        for k in pair:
            hosts[k].hear(bundle)
            hosts[k].close()
        hosts[pair[0]].heard[hosts[pair[1]].origin.id] = hosts[pair[1]].heard[hosts[pair[1]].origin.id]
        hosts[pair[0]].settle()
    assert not are_comparable(hosts)


def parted():
    """Three of five have compacted the epoch, two have heard nothing of it. Then two of the three are removed, as all
    others know."""
    hosts = [Host(origin) for origin in ORIGINS]
    compact(hosts[:3], BUNDLES[0])
    ada, *cut_off = hosts[0], *hosts[3:]
    for host in (ada, *cut_off):
        host.hear_of(frozenset((B, C)))
    return ada, cut_off


def test_a_sum_is_believed_though_most_who_signed_it_were_removed():
    ada, (dan, eve) = parted()
    dan.take(ada)
    assert dan.sum == ada.sum
    eve.take(dan)
    assert eve.sum == ada.sum


def test_no_quorum_is_left_without_the_host_that_has_the_sum():
    ada, (dan, eve) = parted()
    for host in (dan, eve):
        host.hear(BUNDLES[6])
    meet([dan, eve])
    assert (dan.sum, eve.sum) == (None, None)
    heal([ada, dan, eve])
    assert len({host.covered.digest() for host in (ada, dan, eve)}) == 1
    assert len({host.held.digest() for host in (ada, dan, eve)}) == 1


# How many


@pytest.mark.parametrize(("hosts", "size"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_quorum_is_more_than_half(hosts, size):
    assert make_quorum(*ORIGINS[:hosts])[1].size == size


def test_strict_windows_and_open_runs_have_no_quorum():
    rules, quorum = make_quorum(*ORIGINS)
    assert quorum.is_in_force
    assert not Quorum(rules, Gate(verify), is_signed).is_in_force
    strict = make_rules(clients=5, refresh_period=PERIOD)
    assert not Quorum(strict, quorum._gate, is_signed).is_in_force


def test_a_quorum_follows_the_roster_and_who_was_removed_has_no_word_but_counts():
    _, quorum = make_quorum(*ORIGINS, removed=[E])
    assert quorum.size == 3
    _, quorum = make_quorum(*ORIGINS, removed=[D, E])
    assert quorum.size == 3
    assert quorum.of([one.member() for one in ORIGINS]) == [one.member() for one in (A, B, C)]


@pytest.mark.parametrize(
    ("signers", "removed", "is_met"),
    [
        ((A, B, C), (), True),
        ((A, B), (), False),
        ((A, B, C), (B, C), True),
        ((D, E), (A, B), False),
        ((D, E), (A, B, C), True),
        ((A, B), (A, B, C), False),
        ((), ORIGINS, False),
    ],
)
def test_removed_hosts_count_and_all_who_stay_are_enough(signers, removed, is_met):
    _, quorum = make_quorum(*ORIGINS, removed=removed)
    assert quorum.is_met({one.id for one in signers}) == is_met


# Closing and compacting


def closed_alone(*bundles):
    """A host that has closed the first epoch though something is lacking."""
    host = Host(A)
    for bundle in bundles:
        host.hear(bundle)
    host.close()
    return host


def test_an_epoch_that_lacks_something_is_closed_one_epoch_later():
    closings = Closings(*make_quorum(*ORIGINS))
    assert closings.due(AFTER - 1, lambda _: False) == []
    assert [order.epoch for order in closings.due(AFTER, lambda _: False)] == [0]


def test_who_is_away_does_not_keep_an_epoch_from_being_compacted():
    host = closed_alone(A.bundle(0), B.bundle(0))
    said = host.closings.statement()
    away = [D.member(), E.member(closed=said._replace(digest=bytes(32)))]
    assert host.closings.agreed([A.member(closed=said), B.member(closed=said), *away]) == []
    (closed,) = host.closings.agreed([A.member(closed=said), B.member(closed=said), C.member(closed=said), *away])
    assert closed.frontier == Frontier([A.held(1), B.held(1)]).held()


def test_what_comes_late_stays_beside_a_compacted_sum_until_somebody_states_another():
    host = closed_alone(A.bundle(0))
    said = host.closings.statement()
    agreeing = [one.member(closed=said) for one in (A, B, C)]
    assert len(host.closings.agreed(agreeing)) == 1
    host.closings.note([D.bundle(1)])
    host.closings.reconsider(agreeing)
    assert host.closings.statement() == said
    assert host.closings.due(AFTER, lambda _: False) == []
    other = closed_alone(A.bundle(0), D.bundle(1)).closings.statement()
    host.closings.reconsider([*agreeing, E.member(closed=other)])
    (order,) = host.closings.due(AFTER, lambda _: False)
    assert order.epoch == 0
    assert order.frontier == Frontier([A.held(1), D.held(0, (1, 1))]).held()
    assert host.closings.summed(epoch(0, *order.frontier, total=2)) == []
    assert host.closings.statement() == other
    assert host.closings.agreed(agreeing) == []
    assert len(host.closings.agreed([one.member(closed=other) for one in (A, B, E)])) == 1


def test_who_signs_another_sum_of_the_same_bundles_than_a_quorum_is_found():
    host = closed_alone(A.bundle(0))
    said = host.closings.statement()
    agreeing = [one.member(closed=said) for one in (A, B, C)]
    wrong = D.member(closed=said._replace(digest=bytes(32)))
    assert host.closings.misstated_by([*agreeing[:2], wrong]) == []
    assert host.closings.misstated_by([*agreeing, wrong, E.member()]) == [wrong]
