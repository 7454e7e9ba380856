"""Loss and perplexity of a model on packed rows that nobody trains on."""

import torch

from seedflood.errors import DataError
from seedflood.training.causal import CausalModel
from seedflood.training.evaluation import TOKENS_PER_BATCH_MAX, Evaluation
from seedflood.training.gasloc.packing import PackedTask
from seedflood.training.objectives.score import Score


@torch.inference_mode()
def evaluate_packed(model: CausalModel, task: PackedTask, *, tokens_at_once: int = TOKENS_PER_BATCH_MAX) -> Evaluation:
    """Evaluates a model on all validation rows. Raises DataError if there are none."""
    total: Score | None = None
    for batch in task.validation(max(1, tokens_at_once // task.validation_ST.shape[1])):
        score = task.objective.measure(model, batch.to(model.device))
        total = score if total is None else total + score
    if total is None:
        raise DataError("There are no validation rows to evaluate on: add some to the data.")
    return Evaluation(task.objective.figures(total), total.minimised, len(task.validation_ST))
