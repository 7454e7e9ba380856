"""The objective's figures over the validation rows, of a replica as it stands or of any causal language model."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch

from seedflood.errors import DataError
from seedflood.training.causal import CausalModel
from seedflood.training.objectives.objective import Batches, Score
from seedflood.training.objectives.reward import Reward

TOKENS_PER_BATCH_MAX = 4096


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What the validation rows say of a model. figures: by name, as the objective gives them. minimised: the name of
    the figure that training brings down. rows: how many were scored. texts: how many were drawn after them; 0: none."""

    figures: Mapping[str, float]
    minimised: str
    rows: int
    texts: int = 0

    def counts(self) -> dict[str, int]:
        """What the figures are of."""
        return {"rows": self.rows, **({"texts": self.texts} if self.texts else {})}

    @property
    def loss(self) -> float:
        """The figure that training brings down, whatever its name."""
        return self.figures[self.minimised]

    def rounded(self) -> dict[str, float | None]:
        """The figures in six decimals. None stands for what is not a finite number, which JSON cannot spell."""
        return {name: round(value, 6) if math.isfinite(value) else None for name, value in self.figures.items()}


@torch.inference_mode()
def evaluate(model: CausalModel, task: Batches, *, tokens_per_batch_max: int = TOKENS_PER_BATCH_MAX) -> Evaluation:
    """Scores all validation rows.

    model: `Replica.causal`, which computes the open epoch live, or `BaseModel.causal`, which is the base model alone.
    Raises DataError if there are no rows.
    """
    total: Score | None = None
    rows, draws, objective = 0, 0, task.objective
    measure = objective.measure
    if isinstance(objective, Reward):
        draws = objective.draws(sum(len(batch.lengths_B) for batch in task.validation(tokens_per_batch_max)))
        measure = partial(objective.measure_prompts, draws=draws)
    for batch in task.validation(tokens_per_batch_max):
        score = measure(model, batch.to(model.device))
        total = score if total is None else total + score
        rows += len(batch.lengths_B)
    if total is None:
        raise DataError("There are no validation rows to evaluate on: add some to the data.")
    return Evaluation(objective.figures(total), total.minimised, rows, rows * draws)
