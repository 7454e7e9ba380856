"""Countdown."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.training.rewards.countdown import countdown

NUMBERS = st.lists(st.integers(0, 30), min_size=1, max_size=5)


@st.composite
def sums(draw):
    """A sum of some numbers, with brackets around every part, and its value."""
    numbers = draw(NUMBERS)
    parts = [(str(number), Fraction(number)) for number in numbers]
    while len(parts) > 1:
        (left, a), (right, b) = parts.pop(draw(st.integers(0, len(parts) - 1))), parts.pop()
        sign = draw(st.sampled_from("+-*" if b == 0 else "+-*/"))
        parts.append((f"({left} {sign} {right})", {"+": a + b, "-": a - b, "*": a * b, "/": a / (b or 1)}[sign]))
    return numbers, *parts[0]


@given(sums(), st.randoms(use_true_random=False))
def test_a_sum_that_makes_the_target_of_all_numbers_is_right(drawn, chance):
    numbers, text, value = drawn
    given_numbers = chance.sample(numbers, len(numbers))
    row = {"numbers": given_numbers, "target": value}
    assert countdown("", f" {text}\n", row) == 1
    assert countdown("", text, {**row, "target": value + 1}) == 0
    assert countdown("", text, {**row, "numbers": [*given_numbers, 1]}) == 0
    assert countdown("", text, {**row, "numbers": given_numbers[1:]}) == 0


@given(st.text(max_size=30) | st.text("0123456789+-*/()_. eE", max_size=300))
def test_any_text_has_a_score(text):
    assert countdown("", text, {"numbers": [1, 2], "target": 3}) in (0, 1)


@pytest.mark.parametrize(
    "text",
    ["4**2", "4//2", "-4", "4_2", "42", "2(4)", "4/0", "04", "max(4,2)", "4", "4+2 if 1 else 0", "(" * 100, "2+" * 150],
)
def test_only_four_signs_make_a_sum(text):
    assert countdown("", text, {"numbers": [4, 2], "target": 4}) == 0
