"""Spans name exactly the updates they were made of."""

from hypothesis import given
from hypothesis import strategies as st

from seedflood.operations.seedflood.spans import bundle_spans, frame_spans, frontier_spans, update_spans
from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import fingerprint
from seedflood.protocol.seedflood.bundles import Update, make_bundle

NAMES = {fingerprint(origin): origin for origin in range(1, 4)}
STEPS = st.sets(st.tuples(st.sampled_from(sorted(NAMES.values())), st.integers(0, 30)))


def covered(spans):
    """(origin, step) of all spans, each as often as it is named."""
    return sorted((NAMES[name], step) for name, first, last, *_ in spans for step in range(first, last + 1))


@given(STEPS)
def test_spans_of_a_window_name_each_of_its_updates_once(steps):
    assert covered(update_spans(Update(origin, step, (0, 0)) for origin, step in sorted(steps))) == sorted(steps)


@given(STEPS)
def test_spans_of_a_frame_name_each_of_its_bundles_once_in_any_order(steps):
    assert covered(bundle_spans(make_bundle(origin, step, ((0, 0),)) for origin, step in steps)) == sorted(steps)


def test_consecutive_steps_are_one_span():
    bundles = [make_bundle(1, step, ((0, 0), (0, 0))) for step in (4, 6, 8)]
    assert bundle_spans(bundles) == [[fingerprint(1), 4, 9]]
    assert update_spans(Update(1, step, (0, 0)) for step in (5, 6, 7)) == [[fingerprint(1), 5, 7]]


def test_skipped_steps_are_told_and_are_no_part_of_a_span():
    bundles = [make_bundle(1, 1, ((0, 0),)), make_bundle(1, 5, ((0, 0),), skipped=3), make_bundle(1, 6, ((0, 0),))]
    assert bundle_spans(bundles) == [[fingerprint(1), 1, 1], [fingerprint(1), 5, 6, 3]]


def test_spans_of_a_frontier_reach_below_its_mark_and_above_its_holes():
    frontier = [Held(1, 4, ((6, 7),)), Held(2, 0, ((3, 3),))]
    spans = [[fingerprint(1), 0, 3], [fingerprint(1), 6, 7], [fingerprint(2), 3, 3]]
    assert frontier_spans(frontier) == spans


def test_nothing_is_an_empty_list():
    assert bundle_spans([]) == update_spans([]) == frontier_spans([]) == []


def test_a_frame_that_goes_on_to_several_neighbours_is_told_by_the_same_spans():
    bundles = [make_bundle(origin, 3, ((0, 0),)) for origin in (1, 2)]
    assert frame_spans(tuple(bundles)) is frame_spans(tuple(bundles))
    assert frame_spans(tuple(bundles[:1])) == bundle_spans(bundles[:1])
