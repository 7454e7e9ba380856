"""How many votes make a certificate: of any two sums of an epoch with certificates, there is only one."""

import hashlib
from math import ceil

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from origins import A, B, C, D, E, Origin, epoch, make_rules, pretend_signature, verify

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.certificates import (
    CERTIFIED_EPOCHS_SENT,
    RETURN_ROUNDS,
    Certificates,
    blocking,
    liars_max,
    quorum,
)
from seedflood.protocol.seedflood.epochs import CLOSING_ROUNDS, OVERDUE_EPOCHS, Closings
from seedflood.protocol.swarm.access import AccessList
from seedflood.protocol.swarm.membership import Membership
from seedflood.protocol.swarm.roster import Entry, Roster

OPERATOR = hashlib.sha256(b"operator").digest()
PERIOD = 2
ORIGINS = (A, B, C, D, E)
BUNDLES = [origin.bundle(step) for origin in ORIGINS for step in range(PERIOD)]
AFTER = 10
"""The step at which the first epoch is closed, and no other, whatever is lacking."""
ONE, OTHER = epoch(0, A.held(2), total=1), epoch(0, A.held(2), total=2)
MORE = epoch(0, A.held(2), B.held(2), total=1)


def roster_of(*hosts, removed=()):
    entries = [Entry(one.name, one.public_key, () if one in removed else ("train",)) for one in hosts]
    return Roster(1, tuple(entries)).signed(lambda told: pretend_signature(OPERATOR, told), OPERATOR, "")


def gate_of(*hosts, removed=()):
    return AccessList(verify, OPERATOR, "", roster_of(*hosts, removed=removed))


def closed_run(*hosts, removed=(), window="bounded", members=(), us=A):
    """The votes of a closed run as one host knows them."""
    rules = make_rules(clients=len(hosts), refresh_period=PERIOD, window=window)
    return Certificates(rules, gate_of(*hosts, removed=removed), Membership(members), us.id)


def open_run(*members, clients=None, steps=100, period=PERIOD, window="strict", us=A):
    rules = make_rules(clients=clients or len(members), refresh_period=period, steps=steps, window=window)
    return Certificates(rules, AccessList(verify), Membership(members), us.id)


def found(certificates, *votes):
    """Does a certificate follow from these votes, and for which sum?"""
    for vote in votes:
        assert certificates.is_news(vote)
        certificates.take(vote)
    certificates.review()
    certificates.forget(but=())
    return certificates.of(0)


def votes(closed, *origins):
    return [one.vote(closed) for one in origins]


# Where a quorum is enough


class Host:
    """One host of five: what it holds of the first epoch, the sum in its journal, and the votes that it knows."""

    def __init__(self, origin):
        self.origin = origin
        self.certificates = closed_run(*ORIGINS, us=origin)
        self.closings = Closings(self.certificates._rules, self.certificates)
        self.held = Frontier()
        self.sum = None

    def hear(self, bundle):
        if not self.held.holds(*bundle.span):
            self.held.add(*bundle.span)
            self.closings.note([bundle])

    def close(self):
        for order in self.closings.due(AFTER, lambda _: False, lambda _: True):
            closed = epoch(order.epoch, *order.frontier, total=Frontier(order.frontier).count())
            if self.closings.summed(closed) is not None and self.certificates.ours_on(0) is None:
                self.certificates.take(self.origin.vote(closed))

    def meet(self, peer):
        """Hears the votes that the other knows."""
        for vote in peer.certificates.to_send():
            if self.certificates.is_news(vote):
                assert self.certificates.take(vote), "an honest host votes twice"
        self.certificates.review()
        for closed in self.closings.agreed(lambda *_: True, 0.0):
            self.closings.wrote(closed, 0.0)
            self.sum = closed

    def pull(self, donor):
        """Takes what the other holds and it lacks: a sum, if there is one, and else bundles."""
        if donor.sum is not None and not self.held.covers(donor.sum.frontier) and self.closings.may_adopt(0):
            certificate = donor.sum.certificate
            assert self.certificates.suffices(0, certificate)
            self.certificates.note(0, certificate[0].digests, certificate)
            self.closings.restore(donor.sum)
            self.sum = donor.sum
            self.held.add_held(donor.sum.frontier)
        for bundle in BUNDLES:
            if donor.held.holds(*bundle.span) and not donor.closings.compacted(bundle.origin).holds(*bundle.span):
                self.hear(bundle)


HOSTS = st.integers(0, 4)
ACTIONS = st.one_of(
    st.tuples(st.just("hear"), HOSTS, st.integers(0, 9)),
    st.tuples(st.just("close"), HOSTS),
    st.tuples(st.just("meet"), HOSTS, HOSTS),
    st.tuples(st.just("pull"), HOSTS, HOSTS),
)


@settings(max_examples=200)
@given(st.lists(ACTIONS, max_size=50))
def test_whatever_hosts_hear_and_when_one_sum_is_certified_at_most_and_in_the_end_all_hold_the_same(actions):
    hosts = [Host(origin) for origin in ORIGINS]
    for action in actions:
        match action:
            case "hear", one, bundle:
                hosts[one].hear(BUNDLES[bundle])
            case "close", one:
                hosts[one].close()
            case "meet", one, other:
                hosts[one].meet(hosts[other])
            case "pull", one, donor:
                hosts[one].pull(hosts[donor])
        assert len({host.sum.certificate[0].digests for host in hosts if host.sum is not None}) <= 1
    for host in hosts * 3:
        for peer in hosts:
            host.meet(peer)
            host.pull(peer)
    assert len({host.held.digest() for host in hosts}) == 1


@pytest.mark.parametrize(("hosts", "wanted"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 4)])
def test_two_thirds_of_the_roster_are_a_quorum(hosts, wanted):
    certificates = closed_run(*ORIGINS[:hosts])
    assert certificates.votes_wanted() == wanted
    assert found(certificates, *votes(ONE, *ORIGINS[: wanted - 1])) is None
    assert found(certificates, ORIGINS[wanted - 1].vote(ONE)) == A.vote(ONE).digests


class Epochs:
    """Hosts of a closed run that know different rosters, and vote for sums of epochs; everyone hears all votes, at
    once or when it looks. Two sums are possible of each epoch."""

    SUMS = tuple((epoch(number, A.held(2), total=1), epoch(number, A.held(2), total=2)) for number in range(4))

    def __init__(self, clients):
        self.rosters = [roster_of(*KEYS[:clients])]
        self.clients = clients
        self.hosts = []
        self.votes = {}
        self.found = {}
        for key in KEYS:
            rules = make_rules(clients=clients, refresh_period=PERIOD, window="bounded")
            access = AccessList(verify, OPERATOR, "", self.rosters[0])
            self.hosts.append((key, access, Certificates(rules, access, Membership(), key.id)))

    def change(self, change):
        self.rosters.append(change(self.rosters[-1]))

    def hear_roster(self, host, number):
        _, access, _ = self.hosts[host]
        roster = self.rosters[max(-len(self.rosters), min(number, len(self.rosters) - 1))]
        if roster.serial > access.roster.serial:
            access.adopt(roster)

    def vote(self, host, number, total):
        key, _, certificates = self.hosts[host]
        serial = certificates.serial_for(number)
        if certificates.ours_on(number) is None and serial is not None:
            vote = key.vote(self.SUMS[number][total])._replace(serial=serial)
            certificates.take(vote)
            self.votes[key.id, number] = vote

    def lie(self, host, number, total, roster):
        """Votes for this sum, too, and by any roster."""
        key = KEYS[host]
        serial = self.rosters[max(-len(self.rosters), roster)].changed_at
        self.votes[key.id, number] = key.vote(self.SUMS[number][total])._replace(serial=serial)

    def bears(self, liars):
        """Do at most so many hosts of each roster lie as its quorum can bear?"""
        roster = self.rosters[-1]
        editions = roster.voters(0, roster.serial)
        return all(len(liars & voters) <= (len(voters) - 1) // 3 for voters in editions)

    def hear_vote(self, host, voter, number):
        _, access, certificates = self.hosts[host]
        vote = self.votes.get((KEYS[voter].id, number))
        if vote is not None and vote.origin in access.listed and certificates.is_news(vote):
            certificates.take(vote)
        for one, digests in certificates.review():
            self.found.setdefault(one, {}).setdefault(digests, certificates.certificate(one, digests))

    def adopt(self, host, number):
        _, access, certificates = self.hosts[host]
        for digests, votes in list(self.found.get(number, {}).items()):
            is_new = certificates.of(number) is None
            if is_new and all(one.origin in access.listed for one in votes) and certificates.suffices(number, votes):
                certificates.note(number, digests, votes)


KEYS = (A, B, C, D, E, *map(Origin, ("late0", "late1", "late2")))
ROSTERS = st.sampled_from([0, -1, -2])
PARTS = st.tuples(
    st.integers(0, 2),  # how many of those who have been there for longest are removed
    st.integers(0, 2),  # and admitted
    st.integers(0, 2),  # the epoch
    st.integers(0, len(KEYS)),  # how many hosts, those who came first, are in one half
    st.tuples(ROSTERS, ROSTERS),  # of which each half has heard
    st.sets(st.integers(0, len(KEYS) - 1), max_size=1),  # who is away
)


def turned_over(roster, removed, admitted):
    present = [key for key in KEYS if (entry := roster.get(key.id)) is not None and not entry.is_removed]
    new = [key for key in KEYS if roster.get(key.id) is None][:admitted]
    roster = roster.removing([key.name for key in present[:removed]])
    return roster.adding(*(Entry(key.name, key.public_key) for key in new))


LIARS = st.sets(st.integers(0, len(KEYS) - 1), max_size=2)


@given(st.integers(1, 4096))
def test_a_quorum_shares_an_honest_host_with_any_other_and_with_what_blocks_it(hosts):
    wanted, least, liars = quorum(hosts), blocking(hosts), liars_max(hosts)
    assert wanted == ceil(2 * hosts / 3)
    assert 2 * wanted - hosts > liars
    assert wanted + least - hosts > liars
    assert least <= wanted <= hosts - liars, "liars that do not vote stop nothing"


@settings(max_examples=500, deadline=None)
@given(st.integers(2, 7), LIARS, st.lists(PARTS, max_size=5))
def test_whatever_rosters_hosts_have_received_and_who_votes_twice_one_sum_of_an_epoch_is_certified_at_most(
    clients, liars, parts
):
    world = Epochs(clients)
    for removed, admitted, number, border, heard, away in parts:
        world.change(lambda roster, one=removed, other=admitted: turned_over(roster, one, other))
        assume(world.bears({KEYS[liar].id for liar in liars}))
        halves = [{*range(border)} - away - liars, {*range(border, len(KEYS))} - away - liars]
        for total, (half, roster) in enumerate(zip(halves, heard, strict=True)):
            for host in sorted(half):
                world.hear_roster(host, roster)
                world.vote(host, number, total)
            for liar in liars:
                world.lie(liar, number, total, roster)
            for host in sorted(half):
                for voter in sorted(half | liars):
                    world.hear_vote(host, voter, number)
                world.adopt(host, number)
        assert all(len(sums) == 1 for sums in world.found.values())


def following(*rosters, clients, us=A, epochs=(), steps=20):
    """The votes as a host knows them that has the last of these rosters, after certificates of some epochs."""
    rules = make_rules(clients=clients, refresh_period=PERIOD, window="bounded", steps=steps)
    certificates = Certificates(rules, AccessList(verify, OPERATOR, "", rosters[-1]), Membership(), us.id)
    for number, voters, serial in epochs:
        voted = [one.vote(epoch(number, A.held(2)))._replace(serial=serial) for one in voters]
        assert certificates.suffices(number, voted)
        certificates.note(number, voted[0].digests, voted)
    return certificates


def by(serial, closed, *origins):
    return [one.vote(closed)._replace(serial=serial) for one in origins]


FIRST = roster_of(*ORIGINS)
TWO_LESS = FIRST.removing([D.name, E.name])


def test_removed_hosts_count_until_an_epoch_has_a_certificate_without_them():
    begun = following(FIRST, TWO_LESS, clients=5)
    sum_of = [epoch(number, A.held(2)) for number in range(2)]
    assert not begun.suffices(1, by(2, sum_of[1], A, B))
    assert begun.suffices(0, by(2, sum_of[0], A, B, C))
    gone_on = following(FIRST, TWO_LESS, clients=5, epochs=[(0, (A, B, C), 2)])
    assert gone_on.suffices(1, by(2, sum_of[1], A, B))
    assert not gone_on.suffices(1, by(0, sum_of[1], A, B)), "by the first roster they are too few"
    assert not gone_on.suffices(0, by(2, sum_of[0], A, B)), "the epoch before knew nothing of it"


def test_votes_that_show_a_roster_to_be_over_are_told_as_long_as_the_run_lasts():
    """Who holds the bundles of that epoch, and so asks for no sum of it, could not believe any later one."""
    last = CERTIFIED_EPOCHS_SENT + 5
    donor, late = (following(FIRST, TWO_LESS, clients=5, us=one, steps=100) for one in (A, C))
    for number in range(last + 1):
        found(donor, *by(2, epoch(number, A.held(2)), *(A, B, C)[: 2 if number else 3]))
    assert {vote.epoch for vote in donor.to_send()} == {0, *range(last + 1 - CERTIFIED_EPOCHS_SENT, last + 1)}
    certificate = donor.certificate(last, A.vote(epoch(last, A.held(2))).digests)
    assert not late.suffices(last, certificate)
    found(late, *donor.to_send())
    assert late.suffices(last, certificate)


def test_who_was_given_the_sum_that_shows_a_roster_to_be_over_tells_its_votes():
    given = following(FIRST, TWO_LESS, clients=5, us=D, epochs=[(0, (A, B, C), 2)])
    assert {(vote.origin, vote.epoch) for vote in given.to_send()} == {(one.id, 0) for one in (A, B, C)}


def test_our_vote_that_shows_a_roster_to_be_over_does_not_hide_that_later_ones_are_forgotten():
    run, last = following(FIRST, TWO_LESS, clients=5, steps=100), CERTIFIED_EPOCHS_SENT + 5
    for number in range(last + 1):
        found(run, *by(2, epoch(number, A.held(2)), *(A, B, C)[: 2 if number else 3]))
    assert run.ours_on(0) is not None
    assert run.ours_on(3) is None
    assert run.serial_for(3) is None
    assert run.serial_for(last + 1) == 2


def test_a_certificate_of_those_who_have_not_heard_of_a_removal_keeps_the_removed_in_the_count():
    run = following(FIRST, TWO_LESS, clients=5, epochs=[(0, (A, B, C, D), 0)])
    assert not run.suffices(1, by(2, epoch(1, A.held(2)), A, B))


def test_newcomers_are_no_part_of_the_quorum_of_those_who_have_not_heard_of_them():
    more = FIRST.adding(*(Entry(late.name, late.public_key) for late in KEYS[5:]))
    run = following(FIRST, more, clients=5)
    assert run.suffices(0, by(0, ONE, A, B, C, D))
    assert not run.suffices(0, by(2, ONE, A, B, C))
    assert not run.suffices(0, by(3, ONE, A, B, C, D, E)), "a roster that is not known here"


def test_a_certificate_has_no_more_votes_than_it_takes():
    run = closed_run(*ORIGINS)
    found(run, *votes(ONE, *ORIGINS))
    assert len(run.certificate(0, A.vote(ONE).digests)) == 4


def test_a_host_votes_on_an_earlier_epoch_by_no_newer_roster_than_on_later_ones():
    run = following(FIRST, clients=5)
    run.take(by(0, epoch(1, A.held(2)), A)[0])
    run._access.adopt(TWO_LESS)
    assert run.serial_for(2) == 2
    assert run.serial_for(0) is None
    run.take(by(2, epoch(3, A.held(2)), A)[0])
    assert run.serial_for(2) == 2


def test_before_as_many_hosts_are_listed_as_the_run_has_clients_there_is_no_certificate():
    assert not following(FIRST, clients=6).suffices(0, by(0, ONE, *ORIGINS))


def test_of_votes_for_different_steps_none_makes_a_certificate():
    certificates = closed_run(*ORIGINS)
    assert found(certificates, *votes(ONE, A, B, C), *votes(MORE, D)) is None
    assert certificates.waiting() == [0]


# Where everyone has to vote


def test_strict_windows_and_open_runs_want_the_votes_of_all_who_take_part():
    assert closed_run(*ORIGINS).is_by_quorum
    assert not closed_run(*ORIGINS, window="strict").is_by_quorum
    members = [one.member() for one in (A, B, C)]
    for certificates in (open_run(*members, window="bounded"), closed_run(A, B, C, window="strict", members=members)):
        assert found(certificates, *votes(ONE, A, B)) is None
        assert found(certificates, C.vote(ONE)) == A.vote(ONE).digests


def test_who_says_another_sum_of_the_same_steps_is_outvoted():
    members = [one.member() for one in (A, B, C)]
    certificates = open_run(*members)
    assert found(certificates, *votes(ONE, A, B), C.vote(OTHER)) == A.vote(ONE).digests
    assert certificates.against(0, A.vote(ONE).digests) == [C.id]
    assert found(open_run(*members[:2]), A.vote(ONE), B.vote(OTHER)) is None


def test_a_vote_for_other_steps_keeps_the_bundles():
    members = [one.member() for one in (A, B, C)]
    assert found(open_run(*members), *votes(ONE, A, B), C.vote(MORE)) is None


@pytest.mark.parametrize("absent", [{"last_step": 99}, {"first_step": STEP_MAX}, {"first_step": 2}, {"last_step": -1}])
def test_who_has_finished_or_took_no_part_is_not_waited_for(absent):
    certificates = open_run(A.member(), B.member(), C.member(**absent), clients=2)
    assert found(certificates, *votes(ONE, A, B)) is not None


def test_who_left_on_the_way_may_return_and_need_our_bundles_for_a_long_time():
    period, steps = RETURN_ROUNDS, 4 * RETURN_ROUNDS
    certificates = open_run(A.member(), B.member(), C.member(last_step=0), steps=steps, period=period)
    first, second = (epoch(number, A.held(1)) for number in (0, 1))
    assert found(certificates, *votes(first, A, B)) is None
    assert found(certificates, *votes(second, A, B)) is not None


def test_before_all_clients_have_come_there_is_no_certificate():
    assert found(open_run(A.member(), B.member(), clients=3), *votes(ONE, A, B)) is None


def test_nobody_is_its_own_witness_but_who_is_alone_in_its_run():
    gone = B.member(last_step=99)
    assert found(open_run(A.member(), gone), A.vote(ONE)) is None
    assert found(open_run(A.member(), gone), *votes(ONE, A, B)) is not None
    assert found(open_run(A.member()), A.vote(ONE)) is not None


STATED = st.sampled_from([{}, {"first_step": PERIOD}, {"last_step": 0}, {"last_step": 99}])
AMNESIC = {"incarnation": 2, "first_step": STEP_MAX}
"""What a host states that has lost its disk. It takes no word back."""


@settings(max_examples=300)
@given(
    st.lists(STATED, min_size=5, max_size=5), st.sets(HOSTS), st.sets(st.sampled_from(ORIGINS)), st.booleans(), HOSTS
)
def test_whatever_hosts_stated_a_sum_that_one_has_a_certificate_for_is_believed_by_every_other(
    stated, amnesic, voters, is_closed, maker
):
    members = [origin.member(**one) for origin, one in zip(ORIGINS, stated, strict=True)]
    members += [ORIGINS[k].member(**AMNESIC) for k in sorted(amnesic)]

    def run(us):
        if is_closed:
            return closed_run(*ORIGINS, window="strict", members=members, us=us)
        return open_run(*members, clients=5, window="bounded", us=us)

    if found(run(ORIGINS[maker]), *votes(ONE, *voters)) is not None:
        assert all(run(one).suffices(0, votes(ONE, *voters)) for one in ORIGINS)


def test_the_few_who_never_left_make_no_certificate_alone():
    returned = [one.member(first_step=PERIOD) for one in (C, D, E)]
    certificates = open_run(A.member(), B.member(), *returned, window="bounded", period=PERIOD)
    assert found(certificates, *votes(ONE, A, B)) is None
    assert certificates.shortfall(0) == ("votes are missing", sorted(one.id for one in (C, D, E)))
    assert found(certificates, C.vote(ONE)) == A.vote(ONE).digests


def test_an_epoch_is_given_up_when_too_few_are_left_to_vote_for_it():
    gone = [one.member(first_step=PERIOD, last_step=99) for one in (C, D, E)]
    certificates = open_run(A.member(), B.member(), *gone, window="bounded", period=PERIOD)
    assert found(certificates, *votes(ONE, A, B)) is None
    assert certificates.shortfall(0) == ("too few hosts are left to vote for its sum, so it stays as bundles", [])


# What others give us


@pytest.mark.parametrize(("signers", "is_enough"), [((), False), ((B,), False), ((B, C), True), ((A, B), False)])
def test_a_sum_needs_votes_of_most_others_who_took_part(signers, is_enough):
    certificates = open_run(*(one.member() for one in (A, B, C, D)))
    assert certificates.suffices(0, votes(ONE, *signers)) == is_enough


def test_of_an_even_number_half_are_not_enough_for_one_who_has_voted_otherwise():
    """Else each half would believe the other, though neither has a certificate."""
    us, other = (ONE, (A, B)), (MORE, (C, D))
    for (ours, voters), (theirs, others) in ((us, other), (other, us)):
        certificates = open_run(*(one.member() for one in (A, B, C, D)), us=voters[0])
        assert certificates.suffices(0, votes(theirs, *others))
        assert found(certificates, *votes(ours, *voters), *votes(theirs, *others)) is None
        assert not certificates.suffices(0, votes(theirs, *others))
        assert certificates.believed(0) is None


def test_one_who_knows_nobody_yet_believes_no_single_donor():
    assert not open_run(A.member(), B.member(), clients=4).suffices(0, votes(ONE, B))
    assert open_run(A.member(), B.member(), clients=2).suffices(0, votes(ONE, B))


# What is kept


def test_the_first_vote_counts_and_two_are_kept_as_proof():
    certificates = open_run(*(one.member() for one in (A, B, C)))
    assert certificates.take(B.vote(ONE))
    assert not certificates.is_news(B.vote(ONE))
    assert certificates.is_news(B.vote(OTHER))
    assert not certificates.take(B.vote(OTHER))
    assert certificates.doubles == {B.id: (B.vote(ONE), B.vote(OTHER))}
    assert set(certificates.to_send()) == {B.vote(ONE), B.vote(OTHER)}
    assert not certificates.is_news(B.vote(MORE))


def test_votes_on_epochs_that_the_run_does_not_have_are_not_taken():
    assert not open_run(A.member(), steps=3).is_news(A.vote(epoch(1)))


def test_votes_are_kept_until_their_certificate_is_long_known():
    certificates = open_run(A.member(), B.member())
    for number in range(CERTIFIED_EPOCHS_SENT + 5):
        found(certificates, *votes(epoch(number), A, B))
    assert {vote.epoch for vote in certificates.to_send()} == set(range(5, CERTIFIED_EPOCHS_SENT + 5))
    assert not certificates.is_news(B.vote(ONE))
    assert certificates.waiting() == []


def test_an_epoch_that_lacks_something_is_closed_one_epoch_later_if_nobody_can_say_it_who_is_there():
    def due(step, *, is_held_of_reached, is_by_quorum=True):
        certificates = closed_run(*ORIGINS) if is_by_quorum else open_run(A.member())
        closings = Closings(certificates._rules, certificates)
        closings.note([A.bundle(0)])
        return len(closings.due(step, lambda _: False, lambda _: is_held_of_reached))

    end = PERIOD + CLOSING_ROUNDS
    assert due(end, is_held_of_reached=True) == 1
    assert due(2 * PERIOD - 1, is_held_of_reached=True) == 0
    assert due(end, is_held_of_reached=False) == 0
    assert due(PERIOD + OVERDUE_EPOCHS * PERIOD, is_held_of_reached=False) == 1
    assert due(99, is_held_of_reached=True, is_by_quorum=False) == 0


# Why there is none


def test_an_epoch_waits_for_those_who_have_not_voted():
    run = open_run(A.member(), B.member(), C.member())
    assert found(run, *votes(ONE, A, B)) is None
    assert run.shortfall(0) == ("votes are missing", [C.id])


def test_where_all_have_to_vote_alike_two_votes_for_other_steps_are_the_end():
    run = open_run(A.member(), B.member(), C.member())
    assert found(run, *votes(ONE, A), *votes(MORE, B)) is None
    assert run.shortfall(0) == ("hosts voted for different sums, so it stays as bundles", [])


def test_where_a_quorum_is_enough_an_epoch_is_given_up_once_none_can_come_about():
    run = closed_run(A, B, C, D)
    assert found(run, *votes(ONE, A, B), *votes(OTHER, C)) is None
    assert run.shortfall(0) == ("votes are missing", [D.id])
    assert run.waiting() == [0]
    run.take(D.vote(OTHER))
    assert run.shortfall(0)[1] == []
    assert run.waiting() == [], "nobody is asked for votes that do not help"
