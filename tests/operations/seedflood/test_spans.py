"""Spans name exactly the updates they were made of."""

import json

from hypothesis import given
from hypothesis import strategies as st

from seedflood.operations.seedflood.spans import BundleSpans, spell_bundles, spell_frontier, spell_updates
from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import fingerprint
from seedflood.protocol.seedflood.messages import Bundle, Update

NAMES = {fingerprint(origin): origin for origin in range(1, 4)}
STEPS = st.sets(st.tuples(st.sampled_from(sorted(NAMES.values())), st.integers(0, 30)))


def covered(spelled):
    """(origin, step) of all spans, each as often as it is named."""
    return sorted(
        (NAMES[name], step) for name, first, last, *_ in json.loads(spelled) for step in range(first, last + 1)
    )


@given(STEPS)
def test_spans_of_a_window_name_each_of_its_updates_once(steps):
    assert covered(spell_updates(Update(origin, step, (0, 0)) for origin, step in sorted(steps))) == sorted(steps)


@given(STEPS)
def test_spans_of_a_frame_name_each_of_its_bundles_once_in_any_order(steps):
    assert covered(spell_bundles(Bundle(origin, step, ((0, 0),)) for origin, step in steps)) == sorted(steps)


def test_consecutive_steps_are_one_span():
    bundles = [Bundle(1, step, ((0, 0), (0, 0))) for step in (4, 6, 8)]
    assert json.loads(spell_bundles(bundles)) == [[fingerprint(1), 4, 9]]
    assert json.loads(spell_updates(Update(1, step, (0, 0)) for step in (5, 6, 7))) == [[fingerprint(1), 5, 7]]


def test_skipped_steps_are_told_and_are_no_part_of_a_span():
    bundles = [Bundle(1, 1, ((0, 0),)), Bundle(1, 5, ((0, 0),), skipped=3), Bundle(1, 6, ((0, 0),))]
    assert json.loads(spell_bundles(bundles)) == [[fingerprint(1), 1, 1], [fingerprint(1), 5, 6, 3]]


def test_spans_of_a_frontier_reach_below_its_mark_and_above_its_holes():
    frontier = [Held(1, 4, ((6, 7),)), Held(2, 0, ((3, 3),))]
    spans = [[fingerprint(1), 0, 3], [fingerprint(1), 6, 7], [fingerprint(2), 3, 3]]
    assert json.loads(spell_frontier(frontier)) == spans


def test_nothing_is_an_empty_list():
    assert spell_bundles([]) == spell_updates([]) == spell_frontier([]) == "[]"


def test_a_frame_that_goes_on_to_several_neighbours_is_spelled_once():
    spell = BundleSpans()
    bundles = [Bundle(origin, 3, ((0, 0),)) for origin in (1, 2)]
    assert spell(bundles) is spell(tuple(bundles))
    assert spell(bundles[:1]) == spell_bundles(bundles[:1])
