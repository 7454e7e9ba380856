import pytest

from seedflood.config import SeedfloodSettings
from seedflood.training.seedflood.rates import default_learning_rate

PARAMETERS = 2_600_000


@pytest.mark.parametrize(("rank", "rate"), [(2, 3e-4 * 4), (8, 3e-4), (32, 3e-4 / 8), (128, 3e-4 / 64)])
def test_adam_takes_an_eighth_of_the_rate_at_four_times_the_rank_and_four_times_it_at_a_quarter(
    rank: int, rate: float
) -> None:
    settings = SeedfloodSettings(estimate="gradient", rank=rank)
    assert default_learning_rate(settings, PARAMETERS) == rate
    assert default_learning_rate(settings, 10 * PARAMETERS) == rate, "whatever the size of the model"
