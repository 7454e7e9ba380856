"""Warrants: they show who has signed a sum, and nothing that nobody has signed."""

from dataclasses import replace

import pytest
from origins import A, B, C, D, closed_digests, epoch, has_closed, is_signed

from seedflood.protocol.seedflood.chain import Chain
from seedflood.protocol.seedflood.messages import EpochDigest
from seedflood.protocol.seedflood.statement import Closed
from seedflood.protocol.seedflood.warrant import WARRANT_MEMBERS_MAX, WARRANT_NEIGHBOURS_MAX, issue, signers

PERIOD = 2
SUMS = [epoch(number, A.held(0, (PERIOD * number, PERIOD * number + 1)), total=number) for number in range(4)]
OTHER = EpochDigest(bytes(32), bytes(32))


def states(origin, *sums, **said):
    return origin.member(**has_closed(*sums, period=PERIOD), **said)


def chain_of(sums):
    chain = Chain()
    for digest in closed_digests(*sums).digests:
        chain.append(digest)
    return chain


def make(number, *members):
    return issue(chain_of(SUMS), number, members, PERIOD)


def found(warrant, number):
    return signers(warrant, number, PERIOD, is_signed)


MEMBERS = [states(A, *SUMS[:2]), states(B, *SUMS[:3]), states(C, *SUMS)]


@pytest.mark.parametrize(("number", "who"), [(0, (A, B, C)), (1, (A, B, C)), (2, (B, C)), (3, (C,))])
def test_who_has_closed_an_epoch_has_signed_its_sum(number, who):
    warrant = make(number, *MEMBERS)
    assert found(warrant, number) == {one.id for one in who}
    assert warrant.digests[0] == closed_digests(*SUMS).digests[number]
    assert len(warrant.digests) == len(SUMS) - number


def test_a_warrant_goes_no_further_than_its_statements():
    assert len(make(1, MEMBERS[0], MEMBERS[1]).digests) == 2
    assert make(3, MEMBERS[0], D.member()) is None


def test_nothing_counts_that_nobody_has_signed():
    warrant = make(1, *MEMBERS)
    assert found(warrant._replace(digests=(OTHER, *warrant.digests[1:])), 1) == set()
    assert found(warrant._replace(before=(bytes(32), bytes(32))), 1) == set()
    assert found(warrant._replace(digests=()), 1) == set()
    for wrong in (0, 2, 3):
        assert found(warrant, wrong) == set()


def test_a_statement_of_another_run_or_with_a_wrong_signature_ends_the_count():
    forged = replace(states(D, *SUMS), signature=bytes(64))
    assert found(make(0, MEMBERS[0], forged, MEMBERS[1]), 0) == {A.id}
    unsound = D.member(closed=Closed(2 * PERIOD - 1, bytes(32), bytes(32)))
    assert found(make(0, MEMBERS[0])._replace(members=(unsound, MEMBERS[0])), 0) == set()


def test_one_host_counts_once():
    assert found(make(0, MEMBERS[0], states(A, *SUMS, version=1)), 0) == {A.id}


def test_a_warrant_stays_within_its_limits():
    assert len(make(0, *[MEMBERS[0]] * (WARRANT_MEMBERS_MAX + 1)).members) == WARRANT_MEMBERS_MAX
    crowded = replace(MEMBERS[1], neighbours=tuple(range(1024)))
    chosen = make(0, *[crowded] * 40, MEMBERS[0]).members
    assert chosen[0] == MEMBERS[0]
    assert sum(len(member.neighbours) for member in chosen) == WARRANT_NEIGHBOURS_MAX
