import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodes import agree, events, hear, linked, orders, publish, sent, tick
from origins import A, B, C, make_rules, replica

from disks import Disk
from seams import Recorder
from seedflood.errors import PeerError
from seedflood.host.seedflood.driver import SeedfloodDriver
from seedflood.host.seedflood.history import pages
from seedflood.protocol.frontier import Frontier, without
from seedflood.protocol.seedflood import inquiry
from seedflood.protocol.seedflood.inquiry import BLOCK_STEPS, Contents
from seedflood.protocol.seedflood.messages import BlockDigests, Equivocation, Updates
from seedflood.protocol.seedflood.outputs import Pulled, Rebuild, Remade, Replaced, SumEpoch

ONE, OTHER = B.bundle(0, scalar=7), B.bundle(0, scalar=8)


def make_contents(*bundles, **rules):
    contents = Contents(make_rules(**rules))
    contents.note(bundles)
    return contents


def deceived():
    """A node that was told one of two things."""
    node = linked(B)
    hear(node, B, B.updates(0))
    publish(node)
    return node


# What is said, block by block


@given(st.permutations([A.bundle(0), A.bundle(1), B.bundle(0), B.bundle(70)]))
def test_the_order_in_which_bundles_come_does_not_matter(bundles):
    contents = make_contents(A.bundle(0), A.bundle(1), B.bundle(0), B.bundle(70))
    assert sorted(make_contents(*bundles).told().blocks) == sorted(contents.told().blocks)
    assert contents.differing(make_contents(*bundles).told()) == []


def test_blocks_of_as_many_other_bundles_differ():
    contents = make_contents(ONE, A.bundle(0), B.bundle(BLOCK_STEPS))
    told = make_contents(OTHER, A.bundle(0), B.bundle(BLOCK_STEPS)).told()
    assert contents.differing(told) == [(B.id, 0, 0)]
    contents.replace(ONE, OTHER)
    assert contents.differing(told) == []


def test_contents_differ_though_the_points_of_their_signatures_were_chosen_alike():
    alike = OTHER._replace(signature=ONE.signature[:32] + OTHER.signature[32:])
    assert make_contents(ONE).differing(make_contents(alike).told()) == [(B.id, 0, 0)]


def test_where_something_is_on_its_way_nothing_differs():
    assert make_contents(ONE).differing(make_contents(OTHER, B.bundle(1)).told()) == []


def test_blocks_with_more_or_fewer_bundles_there_are_uneven():
    contents = make_contents(B.bundle(0), B.bundle(1))
    told = make_contents(B.bundle(1, skipped=1)).told()
    assert contents.uneven(told) == {(B.id, 0, 0): (2, 1)}
    assert contents.uneven(contents.told()) == {}
    assert make_contents().uneven(told) == {(B.id, 0, 0): (0, 1)}
    assert contents.differing(told) == []


def test_what_a_sum_stands_for_here_is_not_asked_for_because_others_have_its_bundles_yet():
    contents = make_contents(ONE)
    contents.forget(0)
    assert contents.uneven(make_contents(ONE, B.bundle(1)).told()) == {}


def test_more_bundles_there_are_asked_for_if_all_steps_are_held_or_nothing_moves():
    told = make_contents(B.bundle(0), B.bundle(1), B.bundle(2)).told()
    node = linked(B, steps=4)
    hear(node, B, Updates((B.bundle(2, skipped=2), B.bundle(3))))
    assert len(hear(node, B, told).pull) == 1, "whole"
    node = linked(B, steps=100)
    hear(node, B, Updates((B.bundle(2, skipped=2),)))
    assert hear(node, B, told).pull == [], "something may be on its way"
    assert len(hear(node, B, told).pull) == 1


def test_of_too_many_blocks_those_that_were_begun_last_are_told(monkeypatch):
    monkeypatch.setattr(inquiry, "BLOCKS_TOLD_MAX", 2)
    contents = make_contents(*(B.bundle(step) for step in (0, 70, 140, 300)), refresh_period=200)
    assert [block[:3] for block in contents.told().blocks] == [(B.id, 1, 4), (B.id, 0, 2)]


def test_what_a_sum_stands_for_is_compared_no_more():
    contents = make_contents(ONE)
    contents.forget(0)
    assert contents.told() == BlockDigests(())


@pytest.mark.parametrize(
    ("block", "steps"), [((B.id, 0, 0), (0, 63)), ((B.id, 0, 1), (64, 99)), ((B.id, 1, 1), (100, 127))]
)
def test_a_block_ends_with_its_epoch(block, steps):
    assert make_contents(refresh_period=100, steps=200).steps(block) == (B.id, *steps)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=6),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=4),
)
def test_a_frontier_without_some_steps_holds_all_others(added, taken):
    frontier, steps = Frontier(), set()
    for first, more in added:
        frontier.add(1, first, first + more)
        steps |= set(range(first, first + more + 1))
    spans = [(1, first, first + more) for first, more in taken]
    rest = Frontier(without(frontier.held(), spans))
    gone = {step for _, first, last in spans for step in range(first, last + 1)}
    assert {step for step in range(50) if rest.holds(1, step)} == steps - gone


# Finding out


def test_neighbours_that_differ_at_equal_frontiers_tell_each_other_what_they_hold_and_not_all_the_time():
    node = linked(B)
    agree(node, B)
    out = hear(node, B, replica(*node.applied.held(), digest="other"))
    assert len(sent(out, B, BlockDigests)) == 1
    assert sent(hear(node, B, replica(*node.applied.held(), digest="third")), B, BlockDigests) == []


def test_a_block_that_differs_is_pulled_as_if_it_were_lacking_and_held_against_the_journal():
    node = deceived()
    out = hear(node, B, make_contents(OTHER).told())
    assert [(peer, Frontier(held).holds(B.id, 0)) for peer, held in out.pull] == [(B.id, False)]
    out = hear(node, B, B.updates(0))
    assert out.check == [(B.id, ONE)]
    node.answer(Pulled(B.id), 0.0)
    node.collect()
    assert hear(node, B, B.updates(0)).check == []


def test_a_neighbour_that_lies_about_blocks_is_asked_ever_more_rarely():
    node, asked = deceived(), []
    for now in range(200):
        if hear(node, B, make_contents(OTHER).told(), now).pull:
            asked.append(now)
            node.answer(Pulled(B.id), now)
            node.collect()
    assert asked == [0, 4, 12, 28, 60, 124]


def test_a_contradiction_is_named_settled_and_told_on_once():
    node = linked(B, C)
    node.inquiry.contradicted(B.id, ONE, OTHER)
    out = node.collect()
    (proof,) = out.settle
    assert {proof.kept, proof.dropped} == {ONE, OTHER}
    assert events(out) == ["a host contradicts itself"]
    assert sent(out, C, Equivocation) == sent(out, B, Equivocation) == [proof]
    assert node.inquiry.counts == {B.id: 1}
    node.inquiry.contradicted(B.id, OTHER, ONE)
    out = node.collect()
    assert (out.settle, out.send, events(out)) == ([proof], [], [])


def test_everyone_keeps_the_same_of_any_number_of_contents():
    contents = [B.bundle(4, scalar=scalar, skipped=scalar % 3) for scalar in range(6)]
    kept = set()
    for first in contents:
        node, held = linked(B, C), first
        for other in contents:
            if other != held:
                node.inquiry.contradicted(C.id, held, other)
                held = node.collect().settle[0].kept
        kept.add(held)
    assert len(kept) == 1


def test_what_gets_greater_without_end_is_told_on_a_few_times():
    node = linked(B, C)
    told = []
    for skipped in range(1, 40):
        proof = Equivocation(B.bundle(50, skipped=skipped), B.bundle(50, skipped=skipped - 1))
        told += sent(hear(node, C, proof), B, Equivocation)
    assert len(told) == inquiry.PROOFS_OF_ONE_MAX
    assert node.inquiry.count == 1


def test_a_proof_is_believed_only_if_both_bundles_are_signed():
    node = linked(B, C)
    with pytest.raises(PeerError):
        hear(node, C, Equivocation(ONE, OTHER._replace(signature=b"x" * 64)))
    assert node.inquiry.counts == {}


def test_a_proof_is_told_on_to_all_but_its_source():
    node = linked(B, C)
    out = hear(node, C, Equivocation(ONE, OTHER))
    assert sent(out, C, Equivocation) == []
    assert len(sent(out, B, Equivocation)) == 1
    assert out.settle != []
    assert hear(node, C, Equivocation(ONE, OTHER)).settle == []


def test_who_links_later_is_told_one_proof_of_each_culprit_and_again_when_it_links_again():
    node = linked(B, C)
    node.disconnected(C.id, 0.0)
    for step in (0, 1):
        node.inquiry.contradicted(B.id, B.bundle(step, scalar=7), B.bundle(step, scalar=8))
    first, _ = sent(node.collect(), B, Equivocation)

    for began in (10.0, 30.0):
        node.connected(C.id, C.hello(()), began)
        told = [proof for k in range(15) for proof in sent(tick(node, began + k), C, Equivocation)]
        assert told == [first]
        node.disconnected(C.id, began + 15)


def test_what_was_applied_already_is_made_again_from_the_journal():
    node = deceived()
    node.answer(Replaced(ONE, OTHER), 1.0)
    out = tick(node, 2.0)
    assert [order for order in out.orders if isinstance(order, Rebuild)] != []


def test_who_is_going_to_make_its_replica_again_tells_all_neighbours_what_its_journal_has():
    """What else was said twice is found meanwhile, though no digests are compared."""
    node = linked(B, C, window="none")
    hear(node, B, B.updates(0))
    publish(node)
    told = []
    for now in (2.0, 4.0, 6.0):
        node.answer(Replaced(ONE, OTHER), now)
        out = tick(node, now)
        told.append([len(sent(out, peer, BlockDigests)) for peer in (B, C)])
        if orders(out, Rebuild):
            node.answer(Remade(True), now)
    assert not orders(out, Rebuild)  # there were two just now
    assert told == [[1, 1], [0, 0], [1, 1]]


def test_no_epoch_is_summed_before_the_coefficients_are_those_of_the_journal():
    node = linked(B, steps=1, refresh_period=1)
    hear(node, B, B.updates(0))
    assert orders(publish(node), SumEpoch) != []
    node.answer(Replaced(ONE, OTHER), 1.0)
    assert orders(node.collect(), SumEpoch) == []
    out = tick(node, 2.0)
    assert (orders(out, SumEpoch), len(orders(out, Rebuild))) == ([], 1)
    node.answer(Remade(True), 3.0)
    assert len(orders(node.collect(), SumEpoch)) == 1


def test_what_waits_for_its_window_is_replaced_there():
    node = linked(B)
    hear(node, B, B.updates(0))
    node.answer(Replaced(ONE, OTHER), 0.0)
    out = publish(node)
    assert [u.told for order in out.orders for u in getattr(order, "updates", ()) if u.origin == B.id] == [
        OTHER.probes[0]
    ]
    assert not any(isinstance(order, Rebuild) for order in tick(node, 2.0).orders)


# Measured here, skipped there


MEASURED, SKIPPING = B.bundle(1), B.bundle(2, skipped=2)


def test_a_bundle_that_skips_what_is_held_is_taken_beside_it_and_held_against_the_journal():
    node = linked(B)
    hear(node, B, B.updates(0, 1))
    out = hear(node, B, Updates((SKIPPING,)))
    assert (out.bundles, out.check) == ([SKIPPING], [(B.id, SKIPPING)])
    assert node.frontier.mark(B.id) == 3
    assert node.admission.refused == {}


def test_who_measured_for_one_what_it_skipped_for_the_next_is_named_and_both_are_told_on():
    node = linked(B, C)
    node.inquiry.contradicted(B.id, SKIPPING, MEASURED)
    out = node.collect()
    assert out.settle == [Equivocation(MEASURED, SKIPPING)]
    assert sent(out, C, Equivocation) == [Equivocation(MEASURED, SKIPPING)]
    assert events(out) == ["a host contradicts itself"]
    again = hear(node, C, Equivocation(SKIPPING, MEASURED))
    assert (again.settle, sent(again, B, Equivocation)) == ([], [])


@pytest.mark.parametrize("is_applied", [True, False])
def test_what_was_measured_is_applied_beside_what_skips_it(is_applied):
    node = linked(B)
    hear(node, B, Updates((SKIPPING,)))
    if is_applied:
        publish(node, 0)
        publish(node, 1)
        publish(node, 2)
    assert node.applied.holds(B.id, 1) == is_applied
    assert node.may_insert(MEASURED)
    node.answer(Replaced(None, MEASURED), 1.0)
    out = tick(node, 2.0)
    assert [order for order in out.orders if isinstance(order, Rebuild)] != [] or not is_applied
    assert (MEASURED in node.seedflood.holdings.pending) != is_applied
    assert B.id in node.contradicting


def test_of_two_bundles_of_one_step_the_one_that_skips_more_stands_and_nothing_held_is_taken_back():
    node = linked(B, C)
    more, fewer = B.bundle(2, skipped=2), B.bundle(2, skipped=1)
    for one, other in ((more, fewer), (fewer, more)):
        node.inquiry.contradicted(B.id, one, other)
        assert node.collect().settle == [Equivocation(more, fewer)]
    hear(node, B, Updates((fewer,)))
    node.answer(Replaced(fewer, more), 0.0)
    assert node.frontier.mark(B.id) == 3


@st.composite
def said(draw):
    """Whatever an origin may have signed of a few steps."""
    step = draw(st.integers(0, 12))
    return B.bundle(step, skipped=draw(st.integers(0, step)), scalar=draw(st.integers(0, 2)))


@given(st.lists(said(), unique=True, max_size=12), st.randoms())
def test_whatever_comes_first_all_hold_the_same_in_the_end(bundles, rng):
    """Driver, node and journal, fed with all that somebody signed, as news and then as what neighbours differ in."""
    held = set()
    for _ in range(3):
        rng.shuffle(bundles)
        disk, seams = Disk(1000), Recorder()
        driver = SeedfloodDriver(linked(B, C), disk, seams, seams, seams, lambda: 0.0)
        driver.node.collect()
        for _ in range(2):
            for bundle in bundles:
                driver.received(B.id, Updates((bundle,)))
                driver._check(B.id, bundle)
        told = sorted(update for page in pages(disk, disk.covered(), list, None, {B.id}) for update in page)
        held.add((frozenset(disk.bundles), driver.node.frontier.held(), tuple(told)))
        assert len({update.step for update in told}) == len(told) == len({one.step for one in bundles})
    assert len(held) == 1
