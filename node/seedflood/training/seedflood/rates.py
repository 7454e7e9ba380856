"""The learning rate of a run that names none: one rule for each kind of step, whatever the model's size. The runs that
it comes from are in benchmarks/RESULTS.md, by their days.

**Slopes along seeded directions**: 0.37 / sqrt(number of parameters), and 1,000 / number of parameters of models with
more than 7 million. Of models that compute the same in more units, a rate like 1 / parameters falls too fast with the
size (21 November), but of a real one the curvature grows, too: at the first rate Gemma 3 270M had learned SST-2 after
12 steps, and lost 8.7 after 80, until control went back. At a third of it what was learned of SST-2 stayed, but TREC,
whose slopes are two to four times as large, was unlearned from step 50 on; at a sixth it was learned (27 November). To
divide slopes by their own level was tried: slopes that fall as sentences are learned do not bear a higher rate (27
November, night). No schedule begins above that rate, for it is near the largest that holds. A step of K origins lowers
the expected loss only while the rate is below 2 K |g|^2 / (tr H |g_b|^2), with the gradient g of all rows, that of a
batch g_b, and the curvature H. A rate that is too high drives the weights to where the curvature is larger, which makes
the limit smaller: this rate, kept for 250 steps, began to spoil the embedded model (23 November). So the rate has to
fall early, in a run of any length: with the root of time (`schedule`).

**Adam**: 4 / sqrt(matrices rank^3), divided in each matrix by sqrt(rows x columns), the Frobenius norm of what a
coordinate moves (`Subspace.lengths`). Adam moves every coordinate by one rate, whatever its slope, so a step goes as
far in a matrix of any shape. All coordinates move at once, so the rate falls with the root of the number of matrices.
It falls with the power of 1.5 of the rank: on tiny-opt with 20,000 sentences and 160 steps, a quarter of rank 8's rate
was too high at rank 31 or 32, and an eighth was not. One rate for matrices of any shape, tuned on tiny-opt (3e-4 at
rank 8), is 20 times that of Gemma 3 270M. A cosine is better in a run of 48 steps. But a rate that stays high for long
makes the weights walk at random where nothing is left to learn, because moments begin anew with every epoch
(23 November). What comes late was measured at other weights. Where updates of half of the hosts are up to 8 rounds
late, half of the rate is better; where all keep pace, it teaches less by reward (29 November).

**Reward**: an eighth. With a sixteenth less is learned, with a fifth no more (25 November, later that night). Too high
a rate teaches texts of which none is worth anything, and then nothing is left to learn from: with a quarter a model
that was pre-trained with large batches, and so bears less noise, fell from 0.284 to 0.134 within 10 steps.
"""

import math
from collections.abc import Sequence

from seedflood.config import SeedfloodSettings

DIRECTION_RATES = 1000.0, 0.372
"""The rates of steps along seeded directions: times the number of parameters, and in small models times the root of it.
Such steps move all weights."""

ADAM_RATE = 4.0
"""The rate of Adam, times the root of (matrices x rank^3)."""

REWARD_PART = 1 / 8
"""Of the rate for rows that tell what is right."""


def default_learning_rate(
    settings: SeedfloodSettings, shapes: Sequence[tuple[int, ...]], task: str | None = None
) -> float:
    """The largest learning rate of a run, by estimate, rank, the shapes of all parameters, and whether the task is
    "reward"."""
    if task == "reward":
        return default_learning_rate(settings, shapes) * REWARD_PART
    parameters_count = sum(map(math.prod, shapes))
    if settings.estimate == "gradient":
        matrices = sum(len(shape) == 2 for shape in shapes)
        return ADAM_RATE / math.sqrt(max(1, matrices) * settings.rank**3)  # exact: a root is rounded correctly
    by_number, by_root = DIRECTION_RATES
    return min(by_number / parameters_count, by_root / math.sqrt(parameters_count))
