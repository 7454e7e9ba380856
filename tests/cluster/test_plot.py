"""Pictures of curves: they are well-formed, and every point lies where its numbers say."""

import xml.etree.ElementTree as ElementTree

import pytest

from seedflood.cluster.plot import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Panel, draw, ticks

SVG = "{http://www.w3.org/2000/svg}"


def corners(picture: str) -> list[list[tuple[float, float]]]:
    """Of each curve."""
    found = ElementTree.fromstring(picture).iter(f"{SVG}polyline")
    return [[tuple(map(float, point.split(","))) for point in line.attrib["points"].split()] for line in found]


def test_points_lie_between_the_axes_and_in_their_order():
    (curve,) = corners(draw([Panel("t", "steps", {"accuracy": [(0, 0.5), (50, 0.75), (100, 1.0)]})]))
    assert curve == [
        (LEFT, HEIGHT - BOTTOM),
        ((LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2),
        (WIDTH - RIGHT, TOP),
    ]


def test_on_a_logarithmic_axis_equal_factors_are_equal_distances():
    (curve,) = corners(draw([Panel("t", "x", {"perplexity": [(0, 1000), (1, 100), (2, 10)]}, is_logarithmic=True)]))
    first, second, third = (y for _, y in curve)
    assert second - first == pytest.approx(third - second)


def test_words_cannot_become_markup():
    picture = draw([Panel("a < b & c", "<x>", {"<y>": [(0, 1), (1, 2)]})])
    texts = [one.text for one in ElementTree.fromstring(picture).iter(f"{SVG}text")]
    assert {"a < b & c", "<x>", "<y>"} <= set(texts)


def test_a_curve_that_does_not_move_is_drawn():
    ((first, second),) = corners(draw([Panel("t", "x", {"y": [(0, 3.0), (1, 3.0)]})]))
    assert first[1] == second[1]


@pytest.mark.parametrize(("least", "most"), [(0, 1), (0.437, 0.998), (0, 4_915_200), (-3, 12)])
def test_ticks_are_few_round_numbers_within(least: float, most: float):
    found = ticks(least, most)
    assert 2 <= len(found) <= 7
    assert all(least - 1e-9 <= one <= most + 1e-9 for one in found)
