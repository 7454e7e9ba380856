"""Curves stay small and keep their means; earlier lives are read back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.operations.history import EVENTS_MAX, Curve, History


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=500), st.integers(3, 20))
def test_a_curve_never_has_more_points_than_it_may_and_ends_at_the_last(values, points_max):
    curve = Curve(points_max)
    for x, value in enumerate(values):
        curve.add(x, value)
        assert len(curve.points()) <= points_max
    assert curve.points()[-1][0] == len(values) - 1


def test_a_full_curve_keeps_means_of_equal_shares():
    curve = Curve(5)
    for x in range(16):
        curve.add(x, float(x))
    assert curve.points() == [[3, 1.5], [7, 5.5], [11, 9.5], [15, 13.5]]


def test_a_short_curve_is_as_it_was_told():
    curve = Curve(4)
    curve.add(1, 2.0)
    assert curve.points() == [[1, 2.0]]


def told(event, level="info", **facts):
    whole = {"time": "t", "event": event, "level": level, "node": "a", "run": "r", **facts}
    return json.dumps(whole, separators=(",", ":")).encode() + b"\n"


def test_curves_and_events_of_an_earlier_life_are_read_back():
    history = History()
    events = history.recall(
        [
            told("members", "debug", names={}),
            told("ready", step=3),
            told("measured", "debug", step=4, count=1, loss=0.5, seconds=0.1),
            told("measured", "debug", step=5, count=1, loss=None, seconds=0.1),
            told("evaluated", step=4, accuracy=0.75, loss=0.6, rows=8),
            told("evaluated", step=6, accuracy=0.5, loss=None, rows=8),
            b'{"event":"cut',
            told("measured", "debug", step="x"),
        ]
    )
    assert history.loss.points() == [[4, 0.5]]
    assert {name: curve.points() for name, curve in history.figures.items()} == {
        "accuracy": [[4, 0.75], [6, 0.5]],
        "loss": [[4, 0.6]],
    }
    assert [event["event"] for event in events] == ["ready", "evaluated", "evaluated"]
    assert events[0] == {"time": "t", "event": "ready", "level": "info", "step": 3}


def test_only_the_last_events_are_read_back():
    events = History().recall(told("ready", step=step) for step in range(EVENTS_MAX + 7))
    assert [event["step"] for event in events] == list(range(7, EVENTS_MAX + 7))


@pytest.mark.parametrize("step", [4, 3])
def test_an_evaluation_that_is_repeated_after_a_restart_is_one_point(step):
    history = History()
    history.evaluated(4, {"perplexity": 8.0})
    history.evaluated(step, {"perplexity": 7.0})
    assert history.figures["perplexity"].points() == [[4, 8.0]]
