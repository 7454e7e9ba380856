import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodes import agree, events, hear, linked, orders, publish, sent, tick
from origins import A, B, C, make_rules, replica

from disks import Disk
from seams import Recorder
from seedflood.errors import PeerError
from seedflood.host.seedflood.driver import SeedfloodDriver
from seedflood.protocol.frontier import Frontier, without
from seedflood.protocol.seedflood import contents as contents_module
from seedflood.protocol.seedflood.bundles import Updates
from seedflood.protocol.seedflood.contents import BLOCK_STEPS, Contents
from seedflood.protocol.seedflood.messages import BlockDigests, Equivocation
from seedflood.protocol.seedflood.outputs import CutOff, Pulled, Rebuild, Remade, SumEpoch

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


def take_out(node, bundle, now):
    """It is proven that B contradicts itself, and the journal has lost what it said."""
    node.ends.prove(Equivocation(ONE, OTHER))
    node.ends.follow(0.0)
    node.answer(CutOff(B.id, [bundle]), now)


# What is said, block by block


@given(st.permutations([A.bundle(0), A.bundle(1), B.bundle(0), B.bundle(70)]))
def test_the_order_in_which_bundles_come_does_not_matter(bundles):
    contents = make_contents(A.bundle(0), A.bundle(1), B.bundle(0), B.bundle(70))
    assert sorted(make_contents(*bundles).digests().blocks) == sorted(contents.digests().blocks)
    assert contents.differing(make_contents(*bundles).digests()) == []


def test_blocks_of_as_many_other_bundles_differ():
    contents = make_contents(ONE, A.bundle(0), B.bundle(BLOCK_STEPS))
    told = make_contents(OTHER, A.bundle(0), B.bundle(BLOCK_STEPS)).digests()
    assert contents.differing(told) == [(B.id, 0, 0)]


def test_contents_differ_though_the_points_of_their_signatures_were_chosen_alike():
    alike = OTHER.with_signature(ONE.signature[:32] + OTHER.signature[32:])
    assert make_contents(ONE).differing(make_contents(alike).digests()) == [(B.id, 0, 0)]


def test_where_something_is_on_its_way_nothing_differs():
    assert make_contents(ONE).differing(make_contents(OTHER, B.bundle(1)).digests()) == []


def test_blocks_with_more_or_fewer_bundles_there_are_uneven():
    contents = make_contents(B.bundle(0), B.bundle(1))
    told = make_contents(B.bundle(1, skipped=1)).digests()
    assert contents.uneven(told) == {(B.id, 0, 0): (2, 1)}
    assert contents.uneven(contents.digests()) == {}
    assert make_contents().uneven(told) == {(B.id, 0, 0): (0, 1)}
    assert contents.differing(told) == []


def test_what_a_sum_stands_for_here_is_not_asked_for_because_others_have_its_bundles_yet():
    contents = make_contents(ONE)
    contents.forget(0)
    assert contents.uneven(make_contents(ONE, B.bundle(1)).digests()) == {}


def test_more_bundles_there_are_asked_for_if_all_steps_are_held_or_nothing_moves():
    told = make_contents(B.bundle(0), B.bundle(1), B.bundle(2)).digests()
    node = linked(B, steps=4)
    hear(node, B, Updates((B.bundle(2, skipped=2), B.bundle(3))))
    assert len(hear(node, B, told).pull) == 1, "whole"
    node = linked(B, steps=100)
    hear(node, B, Updates((B.bundle(2, skipped=2),)))
    assert hear(node, B, told).pull == [], "something may be on its way"
    assert len(hear(node, B, told).pull) == 1


def test_of_too_many_blocks_those_that_were_begun_last_are_told(monkeypatch):
    monkeypatch.setattr(contents_module, "BLOCKS_SENT_MAX", 2)
    contents = make_contents(*(B.bundle(step) for step in (0, 70, 140, 300)), refresh_period=200)
    assert [block[:3] for block in contents.digests().blocks] == [(B.id, 1, 4), (B.id, 0, 2)]


def test_what_a_sum_stands_for_is_compared_no_more():
    contents = make_contents(ONE)
    contents.forget(0)
    assert contents.digests() == BlockDigests(())


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
    out = hear(node, B, make_contents(OTHER).digests())
    assert [(peer, Frontier(held).holds(B.id, 0)) for peer, held in out.pull] == [(B.id, False)]
    out = hear(node, B, B.updates(0))
    assert out.check == [(B.id, ONE)]
    node.answer(Pulled(B.id), 0.0)
    node.collect()
    assert hear(node, B, B.updates(0)).check == []


def test_who_tells_nothing_of_an_epoch_is_asked_for_its_sum_though_not_all_of_our_blocks_are_whole():
    node = linked(B, C, window="bounded", refresh_period=4)
    hear(node, B, B.updates(0))
    hear(node, C, C.updates(*range(4)))
    ((_, frontier),) = hear(node, B, BlockDigests(())).pull
    assert not Frontier(frontier).holds_any(C.id, 0, 3)


def test_a_neighbour_that_lies_about_blocks_is_asked_ever_more_rarely():
    node, asked = deceived(), []
    for now in range(200):
        if hear(node, B, make_contents(OTHER).digests(), now).pull:
            asked.append(now)
            node.answer(Pulled(B.id), now)
            node.collect()
    assert asked == [0, 4, 12, 28, 60, 124]


def test_a_contradiction_is_named_told_on_once_and_ends_its_origin():
    node = linked(B, C)
    node.equivocation.contradicted(B.id, ONE, OTHER)
    out = tick(node, 0.0)
    proof = Equivocation(ONE, OTHER)
    assert events(out) == ["a host contradicts itself"]
    assert sent(out, C, Equivocation) == sent(out, B, Equivocation) == [proof]
    assert [(origin, [first for _, first, _ in spans]) for origin, spans in out.cut] == [(B.id, [0])]
    assert node.ends.proofs == {B.id: proof}
    node.equivocation.contradicted(B.id, OTHER, ONE)
    out = tick(node, 0.0)
    assert (out.cut, sent(out, C, Equivocation), events(out)) == ([], [], [])


def test_a_proof_is_believed_only_if_both_bundles_are_signed():
    node = linked(B, C)
    with pytest.raises(PeerError):
        hear(node, C, Equivocation(ONE, OTHER.with_signature(b"x" * 64)))
    assert node.ends.proofs == {}


def test_a_proof_is_told_on_to_all_but_its_source():
    node = linked(B, C)
    out = hear(node, C, Equivocation(ONE, OTHER))
    assert sent(out, C, Equivocation) == []
    assert len(sent(out, B, Equivocation)) == 1
    assert len(out.cut) == 1
    assert hear(node, C, Equivocation(ONE, OTHER)).cut == []


def test_who_links_later_is_told_the_proof_with_the_earliest_end():
    node = linked(B, C)
    node.disconnected(C.id, 0.0)
    for step in (1, 0):
        node.equivocation.contradicted(B.id, B.bundle(step, scalar=7), B.bundle(step, scalar=8))
    node.connected(C.id, C.hello(()), 10.0)
    assert sent(node.collect(), C, Equivocation) == [Equivocation(ONE, OTHER)]


def test_what_was_applied_already_is_made_again_from_the_journal():
    node = deceived()
    take_out(node, ONE, 1.0)
    out = tick(node, 2.0)
    assert [order for order in out.orders if isinstance(order, Rebuild)] != []


def test_who_is_going_to_make_its_replica_again_tells_all_neighbours_what_its_journal_has():
    """What else was said twice is found meanwhile, though no digests are compared."""
    node = linked(B, C, window="bounded")
    hear(node, B, B.updates(0))
    publish(node)
    tick(node, 0.5)
    assert node.applied.holds(B.id, 0)
    told = []
    for now in (2.0, 4.0, 6.0):
        take_out(node, ONE, now)
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
    take_out(node, ONE, 1.0)
    assert orders(node.collect(), SumEpoch) == []
    out = tick(node, 2.0)
    assert (orders(out, SumEpoch), len(orders(out, Rebuild))) == ([], 1)
    node.answer(Remade(True), 3.0)
    assert len(orders(node.collect(), SumEpoch)) == 1


# Measured here, skipped there


MEASURED, SKIPPING = B.bundle(1), B.bundle(2, skipped=2)


def test_a_bundle_that_skips_what_is_held_is_not_taken_but_held_against_the_journal():
    node = linked(B)
    hear(node, B, B.updates(0, 1))
    out = hear(node, B, Updates((SKIPPING,)))
    assert (out.bundles, out.check) == ([], [(B.id, SKIPPING)])
    assert node.frontier.mark(B.id) == 2


def test_who_measured_for_one_what_it_skipped_for_the_next_ends_with_the_first_of_these_steps():
    node = linked(B, C)
    node.equivocation.contradicted(B.id, SKIPPING, MEASURED)
    assert sent(node.collect(), C, Equivocation) == [Equivocation(SKIPPING, MEASURED)]
    assert node.ends.proofs[B.id].end == 0


@st.composite
def said(draw):
    """Whatever an origin may have signed of a few steps."""
    step = draw(st.integers(0, 12))
    return B.bundle(step, skipped=draw(st.integers(0, step)), scalar=draw(st.integers(0, 2)))


@given(st.lists(said(), unique=True, max_size=12), st.randoms())
def test_whatever_comes_first_all_hold_the_same_in_the_end(bundles, rng):
    """Drivers, nodes and journals, fed with all that somebody signed, as news and then as what neighbours differ in.
    All hear of the same proofs in the end."""
    drivers = []
    for _ in range(3):
        rng.shuffle(bundles)
        disk, seams = Disk(1000), Recorder()
        drivers.append((SeedfloodDriver(linked(B, C, steps=14), disk, seams, seams, seams, lambda: 0.0), disk))
        drivers[-1][0].node.collect()
        for _ in range(2):
            for bundle in bundles:
                drivers[-1][0].received(B.id, Updates((bundle,)))
                drivers[-1][0]._check(B.id, bundle)
    for _ in range(len(bundles)):
        for proof in [proof for driver, _ in drivers for proof in driver.node.ends.proofs.values()]:
            for driver, _ in drivers:
                driver.received(C.id, proof)
    held = {(frozenset(disk.bundles), driver.node.frontier.held()) for driver, disk in drivers}
    assert len(held) == 1
    (left,) = (left for left, _ in held)
    pairs = [(one, other) for one in bundles for other in bundles if one.contradicts(other)]
    ends = [min(one.first_covered, other.first_covered) for one, other in pairs]
    end = min(ends, default=14)
    assert left == {one for one in bundles if one.last < end}
