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

**Adam**: 4 / sqrt(matrices rank^3), divided in each matrix by sqrt(rows x columns), the Frobenius norm of what a
coordinate moves (`Subspace.lengths`). Adam moves every coordinate by one rate, whatever its slope, so a step goes as
far in a matrix of any shape. All coordinates move at once, so the rate falls with the root of the number of matrices.
It falls with the power of 1.5 of the rank: on tiny-opt with 20,000 sentences and 160 steps, a quarter of rank 8's rate
was too high at rank 31 or 32, and an eighth was not. A rate that was the same for matrices of any shape (3e-4 at rank
8) had been tuned on tiny-opt, and is 20 times that of Gemma 3 270M. At rank 8, 24 steps of 32 sentences of SST-2 give
that model 0.88 / 0.32 now (benchmarks/RESULTS.md).

A schedule that knows the end is better in a run of 48 steps: with the rate that was the same for all matrices a cosine
ended at 0.722 / 0.555, 0.716 / 0.551, 0.705 / 0.568, the root at 0.689 / 0.571, 0.719 / 0.556, 0.680 / 0.583. But a
rate that stays high for long makes the weights walk at random, because the first steps of every epoch, when the
moments begin anew, are as long where nothing is left to learn (embedded model, 30,000 steps, cosine: the weights had
gone 0.32, 0.53, 0.86 of their length after 100, 1,000 and 4,000 steps, with the root 0.31, 0.42, 0.46).

**Reward**: an eighth. A Llama of 0.5 M parameters that adds two numbers (`tools/pretrain_arithmetic.py`; 500 held-out
prompts: 0.313 right when sampled; 4 origins x 4 prompts x 8 texts, 100 steps, rank 8, run seed 1) came to 0.468 with a
sixteenth, 0.503 with an eighth, 0.504 with a fifth; at rank 32 to 0.603 with an eighth. A model that was pre-trained
with batches of 128 in place of 16 bears less noise: 0.329 became 0.421 with a sixteenth. Too high a rate teaches texts
of which none is worth anything, and then nothing is left to learn from: with a quarter such a model fell from 0.284 to
0.134 within 10 steps.

**Gradients with the plain sum**: 200 / number of parameters (7.7e-5 for 2.6 M; with a cosine and 48 steps, one run
seed, 6e-5 gave 0.659 / 0.622, 1.2e-4 0.657 / 0.623, 2e-5 0.635 / 0.632). Gemma 3 270M learns at that, too. It is too
much for a model of 117 k, which was at chance on two of three run seeds and learned on all with 0.3, 0.1 and 0.03 of
it: below 2.6 M parameters it is 0.125 / sqrt(number of parameters).
"""

import math
from collections.abc import Sequence

from seedflood.config import SeedfloodSettings

DIRECTION_WEIGHT_CHANGE = 0.372
"""The rate of steps along seeded directions, times the root of the number of parameters: such steps move all
weights."""

GRADIENT_RATE_PARAMETERS, GRADIENT_RATE_ROOT = 200.0, 0.125
"""The rate of gradients with the plain sum, times the number of parameters; in small models, times the root of it."""

ADAM_RATE = 4.0
"""The rate of Adam, times the root of (matrices x rank^3)."""

REWARD_PART = 1 / 8
"""Of the rate for rows that tell what is right."""


def default_learning_rate(
    settings: SeedfloodSettings, shapes: Sequence[tuple[int, ...]], task: str | None = None
) -> float:
    """The largest learning rate of a run, by estimate, window, rank, the shapes of all parameters, and whether the
    task is "reward"."""
    if task == "reward":
        return default_learning_rate(settings, shapes) * REWARD_PART
    parameters_count = sum(map(math.prod, shapes))
    if settings.has_adam:
        matrices = sum(len(shape) == 2 for shape in shapes)
        return ADAM_RATE / math.sqrt(max(1, matrices) * settings.rank**3)  # exact: a root is rounded correctly
    if settings.estimate != "gradient":
        return DIRECTION_WEIGHT_CHANGE / math.sqrt(parameters_count)
    return min(GRADIENT_RATE_PARAMETERS / parameters_count, GRADIENT_RATE_ROOT / math.sqrt(parameters_count))
