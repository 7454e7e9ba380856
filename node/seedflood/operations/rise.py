"""Does a run unlearn? It does if its loss on the validation rows lies clearly above the best one that it had.

All evaluations of a run use the same rows, so they do not differ by the luck of a draw, as the losses of training
batches do. What is left is how the model wanders while it learns: by some thousandths in the runs of
`benchmarks/notes` that went well.
"""

import math
from dataclasses import dataclass

RISE_MIN = 0.1
"""A loss above 1 rises clearly if it rises by this share. A smaller one rises clearly if it rises by this much: then
right answers are a tenth less likely than they were. Twice a loss near 0 is still a good one."""

CHANCE, CHANCE_MAX = 1.5, 0.5
"""Rewards of texts, in 0..1, also differ by the luck of what was drawn: two means of n independent texts by less than
this over the root of n, 19 times of 20, and never believed to be more than half. Without it 32 texts of which 0.59 and
later 0.38 were right made a host warn."""


@dataclass(frozen=True, slots=True)
class Best:
    """The best evaluation so far."""

    step: int
    loss: float


@dataclass(frozen=True, slots=True)
class Rise:
    """An evaluation that is clearly worse than the best one. loss: None if it is no finite number."""

    step: int
    loss: float | None
    best: Best | None


def find_rise(step: int, loss: float, best: Best | None, texts: int = 0) -> Rise | None:
    """Compares an evaluation with the best one before it. texts: how many were drawn for it; 0: nothing was."""
    if not math.isfinite(loss):
        return Rise(step, None, best)
    least = max(RISE_MIN, min(CHANCE_MAX, CHANCE / math.sqrt(texts))) if texts else RISE_MIN
    if best is None or loss <= best.loss + least * max(1.0, best.loss):
        return None
    return Rise(step, loss, best)
