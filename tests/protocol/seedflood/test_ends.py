"""Ends by hand: whatever nodes held of an origin before, what they hold of it then follows from cut and proof alone."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st
from nodes import hear, linked, orders, tick
from origins import A, B, C, make_rules, pretend_signature, verify

from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.bundles import Updates
from seedflood.protocol.seedflood.ends import FOLLOW_SECONDS, QUICK_PROOFS, Ends
from seedflood.protocol.seedflood.messages import Equivocation
from seedflood.protocol.seedflood.node import Node
from seedflood.protocol.seedflood.outputs import CutOff, Pulled, Rebuild
from seedflood.protocol.seedflood.statement import stated
from seedflood.protocol.swarm.access import AccessList
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.roster import Cut, Entry, Roster
from simulation.seedflood.journal import is_cut

OPERATOR = hashlib.sha256(b"operator").digest()
STEPS = 12
FROZEN = Roster(1, (Entry(A.name, A.public_key), Entry(B.name, B.public_key), Entry(C.name, C.public_key, ())))


def keeping(*held, serial=2):
    """The roster with a cut that keeps these ranges of steps of C."""
    content = bytes([serial]) * 32
    entries = FROZEN.cutting(C.name, Cut.keeping(held, 0, content)).entries
    return signed(Roster(serial, entries))


def signed(roster):
    return roster.signed(lambda message: pretend_signature(OPERATOR, message), OPERATOR, "")


class Desk:
    """A node of the run, linked with B, and its journal of what C has published."""

    def __init__(self, steps=(), roster=FROZEN):
        self.journal = {C.bundle(step) for step in steps}
        access = AccessList(verify, OPERATOR, "", signed(roster))
        rules = make_rules(clients=3, steps=STEPS, window="bounded")
        self.node = Node(rules, Member(A.public_key, A.name, 1), A.sign, verify, access=access)
        self.node.start(sorted(self.journal), [], 0.0)
        self.node.connected(B.id, B.hello(), 0.0)
        self.node.answer(Pulled(B.id), 0.0)
        self.carry_out()

    def carry_out(self):
        """What the driver does."""
        out = self.node.collect()
        self.journal |= {bundle for bundle in out.bundles if bundle.origin == C.id}
        for origin, spans in out.cut:
            gone = [one for one in sorted(self.journal) if is_cut(one, spans)]
            self.journal -= set(gone)
            self.node.answer(CutOff(origin, gone), 0.0)
        return out

    def follow(self, roster):
        self.node.enrol(roster, 0.0)
        self.carry_out()

    def pull(self, *bundles):
        """B answers a pull with these."""
        self.node.donors.ask(B.id)
        self.node.received(B.id, Updates(bundles), 0.0)
        self.carry_out()

    @property
    def steps(self):
        return {bundle.step for bundle in self.journal}


some_steps = st.sets(st.integers(0, STEPS - 1))


def ranges(steps):
    """The same as ranges in order."""
    first = [step for step in sorted(steps) if step - 1 not in steps]
    last = [step for step in sorted(steps) if step + 1 not in steps]
    return list(zip(first, last, strict=True))


@given(st.lists(some_steps, min_size=2, max_size=4), some_steps, st.randoms())
def test_hosts_that_held_anything_and_follow_one_cut_hold_the_same(held, kept, random):
    desks, roster = [Desk(steps) for steps in held], keeping(*ranges(kept))
    everything = sorted({bundle for desk in desks for bundle in desk.journal})
    for desk in desks:
        is_early = random.random() < 0.5
        if is_early:
            desk.follow(roster)
        random.shuffle(everything)
        desk.pull(*everything)
        if not is_early:
            desk.follow(roster)
    found = kept & set().union(*held)
    assert [desk.steps for desk in desks] == [found] * len(desks)
    holes = set(range(STEPS)) - kept
    assert [{s for s in range(STEPS) if desk.node.frontier.holds(C.id, s)} for desk in desks] == (
        [found | holes] * len(desks)
    )
    assert len({desk.node.frontier.digest() for desk in desks}) == 1
    assert len({desk.node.ends.digest(C.id) for desk in desks}) == 1


@given(some_steps, some_steps, some_steps)
def test_a_cut_that_takes_the_place_of_another_is_followed_as_if_there_had_been_no_other(held, first, second):
    ours, fresh = Desk(held), Desk(held)
    rosters = [keeping(*ranges(first)), keeping(*ranges(second), serial=3)]
    for roster in rosters:
        ours.follow(roster)
    fresh.follow(rosters[1])
    everything = [C.bundle(step) for step in sorted(held)]
    for desk in (ours, fresh):
        desk.pull(*everything)
    assert ours.steps == fresh.steps == held & second
    assert ours.node.frontier == fresh.node.frontier


def test_what_is_outside_of_holes_is_taken_from_anybody_and_nothing_else():
    desk = Desk([0, 1])
    desk.follow(keeping((0, 2)))
    assert hear(desk.node, B, C.updates(2, 3)).bundles == [C.bundle(2)]
    assert desk.node.admission.refused == {}  # what is in a hole is held


def test_nothing_of_a_hole_comes_back():
    desk = Desk([0, 1])
    desk.follow(keeping((0, 2)))
    out = hear(desk.node, B, Updates((C.bundle(4, skipped=3),)))
    assert (out.bundles, out.check) == ([], [])


@given(some_steps, some_steps, st.integers(0, STEPS - 1), st.booleans())
def test_holes_of_a_cut_and_of_a_proof_add_up_whichever_comes_first(held, kept, end, is_proof_first):
    desk, proof = Desk(held), Equivocation(C.bundle(end, scalar=1), C.bundle(end, scalar=2))
    for is_proof in (is_proof_first, not is_proof_first):
        if is_proof:
            desk.node.received(B.id, proof, 0.0)
            desk.carry_out()
        else:
            desk.follow(keeping(*ranges(kept)))
    assert desk.steps == {step for step in held & kept if step < end}


def test_a_proof_is_known_after_a_restart_and_told_to_who_links_then():
    node = linked(B, C)
    node.equivocation.contradicted(B.id, C.bundle(3, scalar=1), C.bundle(4, skipped=2))
    (record,) = node.collect().records
    again = Ends(node.rules, node.access, node.seedflood.holdings, node._presence, node._outbox)
    again.recall(dict([record]))
    assert again.proofs == node.ends.proofs


def test_surplus_that_was_applied_is_taken_out_of_the_model_by_a_rebuild():
    desk = Desk([0, 1, 2])
    node = desk.node
    node.seedflood.holdings.apply(node.seedflood.holdings.pending.take_before(2))
    node.collect()
    desk.follow(keeping((0, 0)))
    (rebuild,) = orders(tick(node, 3.0), Rebuild)
    assert desk.steps == {0}
    assert [one.mark for one in rebuild.frontier if one.origin == C.id] == [STEPS]


def test_surplus_that_waited_costs_no_rebuild():
    desk = Desk([0, 1, 2])
    desk.follow(keeping((0, 0)))
    assert orders(tick(desk.node, 3.0), Rebuild) == []
    assert [bundle.step for bundle in desk.node.seedflood.holdings.pending] == [0]


def test_a_step_that_nobody_has_holds_nobody_up_once_it_is_cut_off():
    desk = Desk([0, 2])
    assert desk.node.frontier.mark(C.id) == 1
    desk.follow(keeping((0, 0), (2, 2)))
    assert desk.node.frontier.mark(C.id) == STEPS
    assert desk.node.frontier.last(C.id) == STEPS - 1 < STEP_MAX


def test_hosts_state_the_same_of_a_removed_one_when_they_hold_the_same():
    one, other = Desk([0, 1]), Desk([0, 1, 2])
    assert one.node.ends.remains() != other.node.ends.remains()
    one.pull(C.bundle(2))
    (same,) = one.node.ends.remains()
    assert (same,) == other.node.ends.remains()
    one.follow(keeping((0, 2)))
    assert one.node.ends.remains() == (same,)
    assert stated(A.member()).remains == ()


def test_who_was_cut_off_is_shown_with_its_last_step_that_counts():
    desk = Desk([0, 1, 3])
    for roster, state in ((FROZEN, (False, False)), (keeping((0, 1)), (True, False))):
        desk.follow(signed(roster))
        view = desk.node.view(0.0)
        (removal,) = view.roster.removals
        assert (removal.name, removal.is_cut, removal.is_settled) == (C.name, *state)
        assert removal.held == (((0, 1), (3, 3)) if not removal.is_cut else ((0, 1),))
        assert (removal.same, removal.others, removal.unreached) == ((), (B.name,), ())
        assert [member.mark for member in view.members if member.origin == C.id] == [2]


def test_a_host_on_the_roster_that_was_never_heard_of_counts_as_not_reached():
    desk = Desk([0, 1])
    desk.follow(signed(FROZEN.adding(Entry("delta", bytes([7]) * 32))))
    (removal,) = desk.node.view(0.0).roster.removals
    assert removal.unreached == ("delta",)


def test_a_cut_is_settled_where_exactly_the_content_is_held_that_it_says():
    desk = Desk([0, 1])
    content = desk.node.ends.content(C.id)
    for told, is_settled in ((content, True), (bytes(32), False)):
        other = Desk([0, 1])
        entries = FROZEN.cutting(C.name, Cut.keeping([(0, 1)], 0, told)).entries
        other.follow(signed(Roster(2, entries)))
        assert other.node.ends.is_settled(C.id) == is_settled


def test_an_origin_that_proves_an_earlier_end_again_and_again_is_followed_now_and_then():
    """Each of them would cost all hosts a look through all that they hold, and a write that waits for the disk."""
    node = linked(B, C, steps=1000)

    def told():
        out = node.collect()
        return len(out.records), len([one for _, one in out.send if isinstance(one, Equivocation)]), len(out.cut)

    for step in range(900, 100, -1):
        node.received(B.id, Equivocation(C.bundle(step), C.bundle(step, scalar=8)), 0.0)
    records, sent, cuts = told()
    assert max(records, sent, cuts) <= QUICK_PROOFS + 1
    assert node.ends.proofs[C.id].end == 101
    tick(node, FOLLOW_SECONDS - 0.1)
    out = tick(node, FOLLOW_SECONDS)
    assert [(peer, one.end) for peer, one in out.send if isinstance(one, Equivocation)] == [(C.id, 101)]
    assert (len(out.records), out.cut) == (1, [(C.id, ((C.id, 101, 999),))])
