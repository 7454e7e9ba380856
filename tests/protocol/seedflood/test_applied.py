"""What an origin had applied: stated in few bytes, and found again by whoever knows the same origins."""

from hypothesis import given
from hypothesis import strategies as st
from nodes import linked, publish
from origins import A, B, C

from seedflood.protocol.frontier import Frontier, Held, spans
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.applied import (
    APPLIED_BYTES_MAX,
    DIGEST_BYTES,
    compare_applied,
    pack_applied,
    unpack_applied,
)

FIRST, END = 40, 60


@st.composite
def frontiers(draw, origins=(A.id, B.id, C.id)):
    """Of these origins something is held, mostly without gaps."""
    frontier = Frontier()
    for origin in origins:
        frontier.add(origin, 0, draw(st.integers(0, 70)))
        for first in draw(st.lists(st.integers(0, 80), max_size=3)):
            frontier.add(origin, first, first + draw(st.integers(0, 5)))
    return frontier


def steps_of(found):
    return {(origin, step) for origin, first, last in found for step in range(first, last + 1)}


@given(frontiers(), frontiers(), st.integers(0, 90))
def test_what_is_stated_is_found_again(applied, known, step):
    assert unpack_applied(pack_applied(applied, step), step, known, before=0) == applied


@given(st.binary(max_size=APPLIED_BYTES_MAX), frontiers(), st.integers(0, STEP_MAX))
def test_what_a_liar_states_is_a_frontier_or_nothing(stated, known, step):
    found = unpack_applied(stated, step, known, before=step)
    assert found is None or found.digest().startswith(stated[:DIGEST_BYTES])


def test_who_knows_other_origins_finds_nothing():
    applied, known = Frontier([A.held(5), B.held(6)]), Frontier([A.held(9), B.held(9), C.held(9)])
    assert unpack_applied(pack_applied(applied, 6), 6, known, before=6) is None


def test_eight_hosts_take_twenty_bytes():
    assert len(pack_applied(Frontier(Held(k, 990 + k) for k in range(8)), 1000)) == 20


def test_a_frontier_that_does_not_fit_is_found_if_nothing_was_late():
    many = Frontier(Held(k, 50) for k in range(200))
    stated = pack_applied(many, 50)
    assert len(stated) == DIGEST_BYTES
    known = Frontier(Held(k, 60 + k) for k in range(200))
    assert unpack_applied(stated, 50, known, before=50) == many
    assert unpack_applied(stated, 50, known, before=49) is None
    gaps = Frontier([A.held(1, *((k, k) for k in range(3, 303, 3)))])
    assert len(pack_applied(gaps, 50)) == 4 + 2 + 200


@given(frontiers(), frontiers())
def test_the_difference_of_an_epoch_turns_one_into_the_other(theirs, ours):
    here = [{one for one in steps_of(spans(frontier.held())) if one[1] < END} for frontier in (theirs, ours)]
    they, we = here
    found = compare_applied(theirs, ours, FIRST, END)
    if {one for one in they ^ we if one[1] < FIRST}:
        assert found is None
    else:
        added, removed = map(steps_of, found)
        assert (we - removed) | added == they
        assert added == they - we
        assert removed == we - they


def test_a_bundle_states_what_was_applied_when_its_round_was_begun():
    node = linked(B, clients=1, window="none", is_auditable=True)
    for step in range(3):
        (bundle,) = publish(node).bundles
        known = Frontier([A.held(9)])
        assert unpack_applied(bundle.applied, step, known, before=0) == Frontier([A.held(step)] if step else [])
