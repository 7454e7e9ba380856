"""Spans name exactly the updates they were made of."""

from hypothesis import given
from hypothesis import strategies as st

from seedflood.operations.spans import spans_of_bundles, spans_of_frontier, spans_of_updates
from seedflood.protocol.messages import Bundle, Held, Update, fingerprint

NAMES = {fingerprint(origin): origin for origin in range(1, 4)}
STEPS = st.sets(st.tuples(st.sampled_from(sorted(NAMES.values())), st.integers(0, 30)))


def covered(spans):
    """(origin, step) of all spans, each as often as it is named."""
    return sorted((NAMES[name], step) for name, first, last, *_ in spans for step in range(first, last + 1))


@given(STEPS)
def test_spans_of_a_window_name_each_of_its_updates_once(steps):
    assert covered(spans_of_updates(Update(origin, step, 0, 0) for origin, step in steps)) == sorted(steps)


@given(STEPS)
def test_spans_of_a_frame_name_each_of_its_bundles_once_in_any_order(steps):
    assert covered(spans_of_bundles(Bundle(origin, step, ((0, 0),)) for origin, step in steps)) == sorted(steps)


def test_consecutive_steps_are_one_span():
    assert spans_of_bundles(Bundle(1, step, ((0, 0), (0, 0))) for step in (4, 6, 8)) == [[fingerprint(1), 4, 9]]
    assert spans_of_updates(Update(1, step, 0, 0) for step in (7, 5, 6)) == [[fingerprint(1), 5, 7]]


def test_skipped_steps_are_told_and_are_no_part_of_the_span():
    assert spans_of_bundles([Bundle(1, 5, ((0, 0),), skipped=3)]) == [[fingerprint(1), 5, 5, 3]]


def test_spans_of_a_frontier_reach_below_its_mark_and_above_its_holes():
    frontier = [Held(1, 4, ((6, 7),)), Held(2, 0, ((3, 3),))]
    assert spans_of_frontier(frontier) == [[fingerprint(1), 0, 3], [fingerprint(1), 6, 7], [fingerprint(2), 3, 3]]
