"""A node of a closed run, by hand: what it takes of whom, and what a new roster makes it do."""

import hashlib

import pytest
from nodes import PROBES, hear, orders, publish, sent, tick, windows
from origins import EPOCH_BYTES, RUN_ID, A, B, C, D, epoch, make_rules, pretend_signature, verify

from seedflood.errors import PeerError
from seedflood.protocol.seedflood.bundles import Updates, make_bundle
from seedflood.protocol.seedflood.epochs import digest_of
from seedflood.protocol.seedflood.messages import BlockDigests, Vote, Votes
from seedflood.protocol.seedflood.node import Node
from seedflood.protocol.seedflood.outputs import Measured, Pulled, SumEpoch
from seedflood.protocol.seedflood.voting import DISPUTE_SECONDS
from seedflood.protocol.swarm.access import AccessList
from seedflood.protocol.swarm.admission import NOT_LISTED
from seedflood.protocol.swarm.messages import Member, Members
from seedflood.protocol.swarm.roster import Entry, Roster

OPERATOR = hashlib.sha256(b"operator").digest()


def signed(serial, *origins, removed=()):
    entries = [Entry(one.name, one.public_key, () if one in removed else ("train",)) for one in origins]
    return Roster(serial, tuple(entries)).signed(lambda message: pretend_signature(OPERATOR, message), OPERATOR, "")


ALL = signed(1, A, B, C)
WITHOUT_C = signed(2, A, B, C, removed=[C])


class Checked:
    """verify, and which keys it was asked about."""

    def __init__(self):
        self.keys = []

    def __call__(self, key, message, signature):
        self.keys.append(key)
        return verify(key, message, signature)


def started(roster=ALL, *, members=(), bundles=(), check=verify, calendar=lambda: 0.0, **rules):
    rules = make_rules(**({"clients": 3} | rules))
    access = AccessList(check, OPERATOR, "", roster, calendar)
    node = Node(rules, Member(A.public_key, A.name, 1), A.sign, check, access=access)
    node.start(bundles, members, 0.0)
    node.collect()
    return node


def linked(*peers, **settings):
    node = started(**settings)
    for peer in peers:
        node.connected(peer.id, peer.hello(), 0.0)
    node.collect()
    for peer in peers:
        node.answer(Pulled(peer.id), 0.0)
    node.collect()
    return node


@pytest.mark.parametrize(
    ("roster", "told"),
    [(ALL, "cyd"), (signed(1, A, B, C, D), "1 host of cyd, dan"), (signed(1, A, B), "1 host")],
)
def test_who_of_the_roster_never_came_is_named(roster, told):
    node = linked(B, roster=roster, window="bounded")
    publish(node)
    hear(node, B, B.updates(0))
    assert [(one.kind, one.name) for one in node.blockers(1.0)] == [("never joined", told)]


def pull_from(node, peer):
    """The peer is asked for what is missing here."""
    node.donors.ask(peer.id)


def test_a_stranger_is_refused_in_its_hello_and_a_listed_host_is_not():
    node = started()
    node.admission.check_hello(B.hello())
    with pytest.raises(PeerError) as caught:
        node.admission.check_hello(D.hello())
    assert (caught.value.reason, str(caught.value)) == ("roster", NOT_LISTED)
    node.admission.access.adopt(node.admission.access.roster.removing([C.name]))
    with pytest.raises(PeerError, match="has removed the host"):
        node.admission.check_hello(C.hello())
    assert node.admission.refused == {"stranger": 1, "removed": 1}


def test_statements_of_strangers_in_the_hello_of_a_listed_host_leave_no_trace():
    check = Checked()
    node = started(check=check)
    hello = B.hello(members=[D.member(), C.member()])
    node.admission.check_hello(hello)
    node.connected(B.id, hello, 0.0)
    out = node.collect()
    assert {member.origin for member in out.members} == {B.id, C.id}
    assert (D.id in node.membership, D.public_key in check.keys) == (False, False)


def test_what_a_valid_peer_passes_on_of_a_stranger_costs_neither_memory_nor_verification():
    check = Checked()
    node = linked(B, check=check)
    check.keys.clear()
    for version in range(50):
        out = hear(node, B, Members((D.member(version=version),)))
        assert (out.members, out.send, out.events) == ([], [], [])
        out = hear(node, B, D.updates(version))
        assert (out.bundles, out.send, out.events) == ([], [], [])
    assert node.admission.refused == {"stranger": 100}
    assert check.keys == []
    assert (D.id in node.membership, node.frontier.count()) == (False, 0)


def test_a_forgery_in_the_name_of_a_listed_host_is_still_the_fault_of_the_peer():
    node = linked(B, C)
    with pytest.raises(PeerError, match="wrong signature"):
        node.received(B.id, Updates((make_bundle(C.id, 0, ((5, 5),), signature=C.bundle(0).signature),)), 0.0)


def test_a_newer_roster_is_kept_told_to_the_others_and_ends_the_links_of_who_was_removed():
    node = linked(B, C)
    node.received(B.id, WITHOUT_C, 0.0)
    out = node.collect()
    assert (out.roster, out.drop, out.is_removed) == (WITHOUT_C, [C.id], False)
    assert [message for peer, message in out.send if message == WITHOUT_C and peer == C.id] == [WITHOUT_C]
    assert not [peer for peer, message in out.send if message == WITHOUT_C and peer == B.id]
    assert hear(node, C, C.updates(0)).bundles == []  # the shell has not ended the link yet
    assert hear(node, B, C.updates(0)).bundles == []
    assert node.admission.refused == {"removed": 1}
    assert hear(node, B, ALL).roster is None


def test_a_newcomer_brings_the_roster_that_lists_it():
    node = started(signed(1, A, B))
    roster = signed(2, A, B, C)
    with pytest.raises(PeerError):
        node.admission.check_hello(C.hello())
    node.enrol(roster, 0.0)
    assert node.collect().roster == roster
    node.admission.check_hello(C.hello())


def test_a_peer_whose_hello_had_another_roster_is_told_ours():
    node = started(WITHOUT_C)
    node.connected(B.id, B.hello(), 0.0)
    assert [message for _, message in node.collect().send if isinstance(message, Roster)] == [WITHOUT_C]
    assert node.hello().roster == WITHOUT_C


def test_a_host_whose_time_is_over_is_known_to_be_gone_when_a_peer_links_that_does_not_name_it():
    now = [0.0]
    entries = [Entry(one.name, one.public_key, not_after=60 if one is C else None) for one in (A, B, C)]
    roster = Roster(1, tuple(entries)).signed(lambda message: pretend_signature(OPERATOR, message), OPERATOR, "")
    node = started(roster, calendar=lambda: now[0])
    now[0] = 61.0
    node.connected(B.id, B.hello(), 0.0)
    pull_from(node, B)
    assert hear(node, B, C.updates(0)).bundles == [C.bundle(0)]


def test_a_clock_that_is_wrong_for_a_while_ends_no_host_and_no_link():
    now = [0.0]
    entries = [Entry(one.name, one.public_key, not_after=60) for one in (A, B, C)]
    roster = Roster(1, tuple(entries)).signed(lambda message: pretend_signature(OPERATOR, message), OPERATOR, "")
    node = linked(B, C, roster=roster, calendar=lambda: now[0])
    for reading, is_untimely in ((1.4e9, True), (30.0, False)):
        now[0] = reading
        out = tick(node, 2.0 + (not is_untimely) * 2.0)
        assert (out.is_removed, out.drop) == (False, [])
        assert node.access.is_untimely == is_untimely


def test_who_is_out_of_time_is_refused_with_a_sentence_that_is_true():
    entries = [Entry(A.name, A.public_key), Entry(B.name, B.public_key, not_after=60)]
    roster = Roster(1, tuple(entries)).signed(lambda message: pretend_signature(OPERATOR, message), OPERATOR, "")
    node = started(roster, calendar=lambda: 99.0)
    with pytest.raises(PeerError, match="by this host's clock the other one's time on the roster is over") as caught:
        node.admission.check_hello(B.hello())
    assert caught.value.reason == "removed"  # so it is told our roster, and what our clock reads


def test_a_window_no_longer_waits_for_who_was_removed():
    node = linked(B, C)
    node.answer(Measured(node.step, PROBES), 0.0)
    node.collect()
    assert windows(hear(node, B, B.updates(0))) == []
    assert [window.steps for window in windows(hear(node, B, WITHOUT_C))] == [(0, 0)]


def test_what_a_donor_held_of_who_was_removed_is_taken_and_what_others_pass_on_is_not():
    node = linked(B, roster=WITHOUT_C)
    assert hear(node, B, C.updates(0)).bundles == []
    pull_from(node, B)
    assert hear(node, B, C.updates(0)).bundles == [C.bundle(0)]
    pull_from(node, B)
    assert hear(node, B, D.updates(0)).bundles == []


def test_a_donor_cannot_bring_what_a_relay_has_signed():
    entries = (Entry("ada", A.public_key), Entry("bob", B.public_key), Entry("cyd", C.public_key, ("relay",)))
    roster = Roster(1, entries).signed(lambda message: pretend_signature(OPERATOR, message), OPERATOR, "")
    node = linked(B, roster=roster)
    pull_from(node, B)
    assert hear(node, B, C.updates(0)).bundles == []
    assert node.admission.refused == {"role": 1}


def test_after_a_restart_a_removed_host_of_the_journal_stays_out_and_its_updates_stay_in():
    node = started(WITHOUT_C, members=[A.member(), B.member(), C.member()], bundles=[C.bundle(0), B.bundle(0)])
    assert node.frontier.holds(C.id, 0)
    assert not node.membership.is_expected(C.id, 1)
    assert node.membership.taking_part == 3
    with pytest.raises(PeerError):
        node.admission.check_hello(C.hello())
    stranger = started(signed(3, A, B), members=[A.member(), B.member(), C.member()], bundles=[C.bundle(0)])
    assert stranger.frontier.holds(C.id, 0)  # its entry was taken out altogether
    assert not stranger.membership.is_expected(C.id, 1)


def test_a_node_that_is_removed_itself_says_so():
    node = linked(B)
    out = hear(node, B, signed(2, A, B, C, removed=[A]))
    assert out.is_removed


def test_a_relay_of_the_roster_that_has_not_come_yet_is_unknown_and_not_removed():
    roster = Roster(2, (*WITHOUT_C.entries, Entry(D.name, D.public_key, ("relay",))))
    node = linked(B)
    hear(node, B, roster.signed(lambda message: pretend_signature(OPERATOR, message), OPERATOR, ""))
    assert {one.name: one.status for one in node.view(0.0).members} == {
        "ada": "self",
        "bob": "linked",
        "cyd": "removed",
        "dan": "unknown",
    }


# A sum in place of bundles


def vote(origin, closed):
    """Its vote by the roster ALL."""
    unsigned = Vote(origin.id, closed.epoch, digest_of(closed, EPOCH_BYTES), serial=ALL.serial)
    return unsigned._replace(signature=origin.sign(unsigned.signed_bytes(RUN_ID, origin.public_key)))


def summed(steps=4):
    """A node that has voted for its sums of all epochs. B and C have not yet."""
    node = linked(B, C, window="bounded", steps=steps, refresh_period=4)
    sums = []
    for step in range(steps):
        for peer in (B, C):
            hear(node, peer, peer.updates(step))
        node.answer(Measured(step, PROBES), 0.0)
        for order in orders(node.collect(), SumEpoch):
            sums.append(epoch(order.epoch, *order.frontier, total=7))
            node.answer(sums[-1], 0.0)
    return node, *sums


def test_bundles_give_way_to_a_sum_as_soon_as_most_have_voted_for_it():
    node, closed = summed()
    assert [one.epoch for one in hear(node, B, Votes((vote(B, closed),))).compact] == [0]


def test_if_a_vote_says_another_sum_neighbours_are_told_what_is_held_before_bundles_give_way():
    node, closed = summed()
    other = epoch(0, *closed.frontier, total=8)
    out = hear(node, C, Votes((vote(C, other), vote(B, closed))))
    assert (out.compact, sent(out, B, BlockDigests)) == ([], [])
    out = tick(node, 2.0)
    assert [len(sent(out, peer, BlockDigests)) for peer in (B, C)] == [1, 1]
    assert [len(tick(node, at).compact) for at in (4.0, 6.0, DISPUTE_SECONDS)] == [0, 0, 1]
    assert sent(tick(node, DISPUTE_SECONDS + 2.0), B, BlockDigests) == []


def test_who_votes_for_other_sums_again_and_again_holds_back_one_of_them():
    node, first, second = summed(steps=8)
    others = [epoch(one.epoch, *one.frontier, total=8) for one in (first, second)]
    votes = [*(vote(C, one) for one in others), vote(B, first), vote(B, second)]
    out = hear(node, C, Votes(tuple(votes)))
    assert [one.epoch for one in out.compact] == [1]


def test_whose_vote_showed_that_an_origin_said_two_things_may_hold_back_sums_by_its_vote_again():
    node, first, second, _ = summed(steps=12)
    hear(node, C, Votes((vote(C, epoch(0, *first.frontier, total=8)), vote(B, first))))
    node.equivocation.contradicted(C.id, B.bundle(11, scalar=7), B.bundle(11, scalar=8))
    assert node.ends.proofs.keys() == {B.id}
    votes = vote(C, epoch(1, *second.frontier, total=8)), vote(B, second)
    assert hear(node, C, Votes(votes)).compact == []


# Who is named


def disputed(*, steps=4):
    """A node to which C has told that it votes for another sum than the others."""
    node, closed, *_ = summed(steps)
    other = epoch(0, *closed.frontier, total=8)
    hear(node, C, Votes((vote(C, other), vote(B, closed))))
    return node


def shown(node, now=DISPUTE_SECONDS):
    return node.view(now).words["other sums"]


def wait(node):
    """Until the search is over. What does the log say?"""
    ticks = [tick(node, at) for at in (2.0, 4.0, 6.0, DISPUTE_SECONDS)]
    return [(event.name, event.facts.get("member")) for out in ticks for event in out.events]


NAMED = "a host signs another sum than the others"


def test_who_signs_another_sum_is_named_when_neighbours_had_time_to_compare_their_bundles():
    node = disputed()
    assert shown(node) == "none"
    assert (NAMED, "cyd") in wait(node)
    assert shown(node) == "cyd"


def test_who_signs_another_sum_because_somebody_deceived_it_is_not_named():
    node = disputed()
    node.equivocation.contradicted(C.id, B.bundle(3, scalar=7), B.bundle(3, scalar=8))
    assert (NAMED, "cyd") not in wait(node)
    assert shown(node) == "none"


def test_a_name_is_taken_back_when_it_is_proven_who_deceived_its_host():
    node = disputed()
    wait(node)
    node.equivocation.contradicted(C.id, B.bundle(3, scalar=7), B.bundle(3, scalar=8))
    out = tick(node, DISPUTE_SECONDS + 2.0)
    (event,) = [event for event in out.events if event.name == "a host signed another sum as it was deceived"]
    assert event.facts == {"member": "cyd", "epoch": 0, "by": "bob"}
    assert shown(node) == "none"


def test_what_an_origin_told_in_two_ways_later_is_no_excuse_for_an_earlier_epoch():
    node = disputed(steps=12)
    wait(node)
    node.equivocation.contradicted(C.id, B.bundle(11, scalar=7), B.bundle(11, scalar=8))
    tick(node, DISPUTE_SECONDS + 2.0)
    assert shown(node) == "cyd"


def test_nobody_is_the_excuse_of_itself():
    node = disputed()
    wait(node)
    node.equivocation.contradicted(C.id, C.bundle(3, scalar=7), C.bundle(3, scalar=8))
    tick(node, DISPUTE_SECONDS + 2.0)
    assert shown(node) == "cyd"


def test_whose_link_broke_meanwhile_could_not_show_its_bundles_and_is_not_named():
    node = disputed()
    node.disconnected(C.id, 1.0, "cut")
    assert (NAMED, "cyd") not in wait(node)
    assert shown(node) == "none"


def test_who_signs_another_sum_of_what_is_compacted_already_is_not_named():
    """Nobody has the bundles any more that would show whether it was deceived."""
    node, closed = summed()
    hear(node, B, Votes((vote(B, closed),)))
    hear(node, C, Votes((vote(C, epoch(0, *closed.frontier, total=8)),)))
    wait(node)
    assert shown(node) == "none"
