"""The learning rate of a run that names none: one rule for each kind of step, whatever the model's size.

**Slopes along seeded directions**: 0.37 / sqrt(number of parameters). For 2.6 M parameters that is 2.3e-4 (tiny-opt
and SST-2, 4 origins x batch 16, 400 steps at a constant rate, three run seeds: accuracy 0.646 to 0.654, loss 0.622 to
0.630; with twice the number below 0.630 to 0.654, with three quarters 0.633 to 0.667). A rate like 1 / parameters falls
too fast with the size. On the embedded model (117 k) 800 / parameters, 6.8e-3, diverged. On tiny-opt with every unit
three times (18.5 M, the same function) the loss of 0.91 fell in 25 steps to 0.87, 0.79 and 0.69 with 4.8e-5, 1.6e-4 and
4.8e-4; that of tiny-opt itself fell to 0.72 with 2.3e-4.

No schedule begins above that rate, for it is near the largest that holds. A step of K origins lowers the expected loss
only while the rate is below 2 K |g|^2 / (tr H |g_b|^2), with the gradient g of all rows, that of a batch g_b, and the
curvature H. A rate that is too high drives the weights to where the curvature is larger, which makes the limit smaller.
On the embedded model (3 origins, run seed 1) with 2.2e-3 tr H rose from 71 to 577 between the steps 300 and 700, and
the limit fell from 8.1e-3 to 1.3e-3; after 800 steps accuracy was that of chance. With 1.1e-3 tr H is 22 to 34 there,
and the limit 1.9e-2 and more. With run seed 3 even 1.1e-3 is too much after 250 steps (accuracy 0.969, then 0.936). So
the rate has to fall early, in a run of any length: with the root of time (`schedule`).

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
gradients, 1.6e-3 was worse, too. A schedule that knows the end is better in so short a run: with mixed bases a cosine
ends at 0.722 / 0.555, 0.716 / 0.551, 0.705 / 0.568, the root at 0.689 / 0.571, 0.719 / 0.556, 0.680 / 0.583. But a
rate that stays high for long makes the weights walk at random, because the first steps of every epoch, when the
moments begin anew, are as long where nothing is left to learn (embedded model, 30,000 steps, cosine: the weights had
gone 0.32, 0.53, 0.86 of their length after 100, 1,000 and 4,000 steps, with the root 0.31, 0.42, 0.46).

**Gradients with the plain sum**: 200 / number of parameters (7.7e-5 for 2.6 M; with a cosine and 48 steps, one run
seed, 6e-5 gave 0.659 / 0.622, 1.2e-4 0.657 / 0.623, 2e-5 0.635 / 0.632). K slopes are K directions at once: 600 /
number of parameters, divided by the root of K. Momentum adds up ten steps, so it has a tenth.
"""

import math

from seedflood.config import SeedfloodSettings
from seedflood.training.seedflood.optimiser import MOMENTUM

DIRECTION_WEIGHT_CHANGE = 0.372
"""The rate of steps along seeded directions, times the root of the number of parameters: such steps move all
weights."""

LEARNING_RATE_PARAMETERS = 600.0

GRADIENT_RATE_PARAMETERS = 200.0
ADAM_RATE, ADAM_RATE_RANK = 3e-4, 8
"""The rate that was measured, and at which rank. At higher ranks it falls with the power of 1.5, at lower ones it grows
with the inverse of the rank."""


def default_learning_rate(settings: SeedfloodSettings, parameters_count: int) -> float:
    """The largest learning rate of a run, by estimate, optimizer, rank and number of parameters."""
    if settings.optimizer == "adam":
        to_rank = ADAM_RATE_RANK / settings.rank
        return ADAM_RATE * to_rank * min(1.0, math.sqrt(to_rank))  # no power: its last bit differs between libraries
    if settings.estimate != "gradient":
        return DIRECTION_WEIGHT_CHANGE / math.sqrt(parameters_count)
    rate = GRADIENT_RATE_PARAMETERS
    if settings.tell == "slopes":
        rate = LEARNING_RATE_PARAMETERS / math.sqrt(settings.slopes)
    if settings.optimizer == "momentum":
        rate *= 1 - MOMENTUM
    return rate / parameters_count
