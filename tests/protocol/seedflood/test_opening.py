"""A node that is given the end of its journal alone is as if it had been given all of it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nodes import PATIENCE
from origins import EPOCH_BYTES, A, B, C, epoch, make_rules

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.epochs import digest_of
from seedflood.protocol.seedflood.opening import WAITING_ROUNDS, Inventory, joined, settled_ends

PERIOD = 7
MEMBERS = [A.member(), B.member(), C.member()]


def stock(bundles, **rules):
    """(by epoch what is settled, what waits) of a journal with these bundles."""
    rules = make_rules(clients=3, refresh_period=PERIOD, **rules)
    inventory = Inventory()
    for bundle in bundles:
        inventory.bundles.setdefault(bundle.step // PERIOD, Frontier()).add(*bundle.span)
    held = inventory.of_bundles()
    early = held.below(settled_ends(held, MEMBERS, A.id, rules))
    waiting = [bundle for bundle in bundles if not early.holds(*bundle.span)]
    return inventory.settled(waiting), waiting, rules


@st.composite
def journals(draw):
    """Bundles of each origin in order, some after steps that were skipped."""
    bundles = []
    for origin in (A, B, C):
        step = 0
        for skipped in draw(st.lists(st.sampled_from([0, 0, 0, 1, 5]), max_size=60)):
            bundles.append(origin.bundle(step + skipped, skipped=skipped))
            step += skipped + 1
    return bundles


@pytest.mark.parametrize("delay", [0, 3, 40])
def test_with_a_delay_so_many_more_rounds_wait_as_neighbours_may_not_have_applied(delay):
    _, waiting, _ = stock([B.bundle(step) for step in range(100)], window="bounded", delay=delay)
    assert [bundle.step for bundle in waiting] == list(range(100 - WAITING_ROUNDS - delay, 100))


@settings(deadline=None, max_examples=60)
@given(journals(), st.sampled_from(["strict", "bounded"]))
def test_the_end_of_a_journal_and_what_the_rest_covers_are_all_that_a_node_needs(bundles, window):
    settled, waiting, rules = stock(bundles, window=window, steps=1000)
    given_all = A.node(rules, bundles=bundles, members=MEMBERS, patience=PATIENCE)
    given_end = A.node(rules, bundles=waiting, members=MEMBERS, patience=PATIENCE, settled=settled)
    assert given_end.frontier == given_all.frontier
    assert given_end.step == given_all.step
    assert given_end.phase == given_all.phase
    assert given_end.seedflood.holdings.closings._held == given_all.seedflood.holdings.closings._held
    early = joined(settled.values())
    assert given_end.applied == early
    assert [bundle for bundle in bundles if not early.holds(*bundle.span)] == waiting
    assert not any(early.holds_any(*bundle.span) for bundle in waiting)


@settings(deadline=None, max_examples=60)
@given(journals(), st.sampled_from(["strict", "bounded"]))
def test_only_the_last_rounds_of_each_origin_wait_where_everyone_has_come_as_far(bundles, window):
    _, waiting, _ = stock(bundles, window=window, steps=1000)
    for origin in (A, B, C):
        steps = [bundle.step for bundle in bundles if bundle.origin == origin.id]
        late = [bundle.step for bundle in waiting if bundle.origin == origin.id]
        if window != "strict":
            assert late == [step for step in steps if step > steps[-1] - WAITING_ROUNDS]


def test_in_strict_windows_nothing_of_an_open_round_is_applied_before_it_closes():
    bundles = [A.bundle(step) for step in range(40)] + [B.bundle(step) for step in range(90)]
    settled, waiting, _ = stock(bundles, window="strict", steps=1000)
    assert joined(settled.values()).last(B.id) < 39 - WAITING_ROUNDS
    assert len(waiting) < 40 + 90


@pytest.mark.parametrize("window", ["strict", "bounded"])
def test_of_ten_thousand_rounds_some_wait(window):
    bundles = [origin.bundle(step) for step in range(10_000) for origin in (A, B)]
    _, waiting, _ = stock(bundles, window=window, steps=STEP_MAX)
    assert len(waiting) <= 2 * 2 * WAITING_ROUNDS


def test_sums_whose_digests_are_known_are_not_unpacked_at_the_start():
    rules = make_rules(clients=3, refresh_period=PERIOD, steps=1000)
    sums = [epoch(number, A.held(0, (PERIOD * number, PERIOD * number + 6)), total=number) for number in range(3)]
    known = [replace(one, coefficients=b"", sum_digest=digest_of(one, EPOCH_BYTES).sum_digest) for one in sums]
    whole, light = (A.node(rules, members=MEMBERS, patience=PATIENCE, closed=given) for given in (sums, known))
    assert light.frontier == whole.frontier
    certified = [node.seedflood.holdings.certificates._certified for node in (light, whole)]
    assert certified[0] == certified[1] != {}
