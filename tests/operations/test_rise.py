import math

import pytest

from seedflood.operations.rise import Best, Rise, find_rise


@pytest.mark.parametrize(
    ("best", "loss", "is_risen"),
    [
        (0.020, 0.97, True),  # a finished model that is unlearned
        (0.020, 0.06, False),  # three times as much, and still good
        (0.038, 0.041, False),  # as it wanders in a run that goes well
        (0.69, 0.78, False),
        (0.69, 0.80, True),
        (3.20, 3.45, False),  # of a text
        (3.20, 3.60, True),
        (3.20, math.nan, True),
        (3.20, math.inf, True),
    ],
)
def test_a_loss_that_lies_clearly_above_the_best_one_has_risen(best, loss, is_risen):
    assert (find_rise(9, loss, Best(4, best)) is not None) == is_risen


def test_the_first_evaluation_has_not_risen_unless_it_is_no_number():
    assert find_rise(0, 1e9, None) is None
    assert find_rise(0, math.nan, None) == Rise(0, None, None)


@pytest.mark.parametrize(
    ("texts", "by_chance", "clearly"), [(2, 0.85, 0.95), (32, 0.62, 0.72), (100, 0.54, 0.56), (10_000, 0.49, 0.51)]
)
def test_few_texts_that_were_drawn_must_lose_more_before_it_is_no_chance(texts, by_chance, clearly):
    best = Best(4, 0.4)
    assert find_rise(9, by_chance, best, texts) is None
    assert find_rise(9, clearly, best, texts) is not None
