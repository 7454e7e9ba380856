"""The learning rate of a run that names none: one rule for each kind of step, whatever the model's size.

**Slopes along seeded directions**: on average 0.37 / sqrt(number of parameters). A rate that goes down to zero begins
twice as high. For 2.6 M parameters that is 2.3e-4 (tiny-opt and SST-2, 4 origins x batch 16, 400 steps at a constant
rate, three run seeds: accuracy 0.646 to 0.654, loss 0.622 to 0.630; with twice the number below 0.630 to 0.654, with
three quarters 0.633 to 0.667). A rate like 1 / parameters falls too fast with the size. On the embedded model (117 k)
800 / parameters, 6.8e-3, diverged. On tiny-opt with every unit three times (18.5 M, the same function) the loss of 0.91
fell in 25 steps to 0.87, 0.79 and 0.69 with 4.8e-5, 1.6e-4 and 4.8e-4; that of tiny-opt itself fell to 0.72 with
2.3e-4.

**Adam**: 3e-4 at rank 8, for models of any size, because an increment moves by one learning rate at most. At lower
ranks it is 2.4e-3 / rank, so that each weight moves as far at any rank. At higher ranks it falls with the power of 1.5
of the rank. Between 8 and 31 and above 44 nothing was measured. With mixed bases at rank 31 or 32, 7.5e-5 was too high
(20,000 sentences, 160 steps, three run seeds: accuracy and loss 0.736 / 0.531, 0.735 / 0.529, 0.709 / 0.544; the third
with 4e-5 0.745 / 0.520, with 2.5e-5 0.740 / 0.517; with 1.5e-4 it learned nothing).

Measured for Adam at rank 8, with 1,024 sentences, 48 steps and drawn bases (accuracy / loss of three run seeds, rates
times the rank):

    2.4e-3, cosine                      0.686 / 0.592, 0.688 / 0.591, 0.682 / 0.599
    2e-3, constant                      0.692 / 0.596, 0.664 / 0.598, 0.674 / 0.595
    3.2e-3, 4 steps warm-up, linear     0.670 / 0.591, 0.680 / 0.585, 0.674 / 0.596
    4.8e-3, constant                    0.694 / 0.585, 0.681 / 0.579, 0.661 / 0.633

With random origin ids 2.4e-3 and a cosine gave 0.682 / 0.588 in the mean of six runs, at worst 0.672 / 0.592; 1.6e-3 to
4e-3 and other betas did not differ beyond the noise (benchmarks/RESULTS.md). With mixed bases, the default of
gradients, 1.6e-3 was worse, too.

**Gradients with the plain sum**: 200 / number of parameters (7.7e-5 for 2.6 M; with a cosine and 48 steps, one run
seed, 6e-5 gave 0.659 / 0.622, 1.2e-4 0.657 / 0.623, 2e-5 0.635 / 0.632). K slopes are K directions at once: 600 /
number of parameters, divided by the root of K. Momentum adds up ten steps, so it has a tenth.
"""

import math

from seedflood.config import SeedfloodSettings
from seedflood.training.seedflood.optimiser import MOMENTUM

DIRECTION_WEIGHT_CHANGE = 0.372
"""The mean rate of steps along seeded directions, times the root of the number of parameters: such steps move all
weights."""

LEARNING_RATE_PARAMETERS = 600.0

GRADIENT_RATE_PARAMETERS = 200.0
ADAM_RATE, ADAM_RATE_RANK = 3e-4, 8
"""The rate that was measured, and at which rank. At higher ranks it falls with the power of 1.5, at lower ones it grows
with the inverse of the rank."""


def default_learning_rate(settings: SeedfloodSettings, parameters_count: int) -> float:
    """The learning rate by estimate, optimizer, rank, schedule and number of parameters."""
    if settings.optimizer == "adam":
        to_rank = ADAM_RATE_RANK / settings.rank
        return ADAM_RATE * to_rank * min(1.0, math.sqrt(to_rank))  # no power: its last bit differs between libraries
    if settings.estimate != "gradient":
        mean: float = DIRECTION_WEIGHT_CHANGE / parameters_count**0.5
        return mean if settings.schedule == "constant" else 2 * mean
    rate = GRADIENT_RATE_PARAMETERS
    if settings.tell == "slopes":
        rate = LEARNING_RATE_PARAMETERS / math.sqrt(settings.slopes)
    if settings.optimizer == "momentum":
        rate *= 1 - MOMENTUM
    return rate / parameters_count
