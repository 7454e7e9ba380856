"""Accuracy and loss over the validation rows, of a replica as it stands or of any causal language model."""

from dataclasses import dataclass
from typing import Any

import torch

from seedflood.training.scoring import score
from seedflood.training.tasks import Task

TOKENS_PER_BATCH_MAX = 4096


@dataclass(frozen=True, slots=True)
class Evaluation:
    """accuracy: of label words (0..1), or of next tokens for `lm`. loss: mean cross-entropy in nats. rows: how many."""

    accuracy: float
    loss: float
    rows: int


@torch.inference_mode()
def evaluate(model: Any, task: Task, *, tokens_per_batch_max: int = TOKENS_PER_BATCH_MAX) -> Evaluation:
    """Scores all validation rows, in batches of like length.

    model: `Replica.model`, whose open epoch is computed live, or a transformers model without any of that.
    """
    examples = sorted(task.validation_examples, key=lambda example: len(example.tokens))
    device = next(model.parameters()).device
    loss_sum, correct, count = 0.0, 0, 0
    start = 0
    while start < len(examples):
        end = start + 1
        while end < len(examples) and (end + 1 - start) * len(examples[end].tokens) <= tokens_per_batch_max:
            end += 1
        result = score(model, task.collate(examples[start:end]).to(device))
        loss_sum += float(result.loss_sum_P[0])
        correct += int(result.correct_P[0])
        count += int(result.count_P[0])
        start = end
    return Evaluation(correct / max(1, count), loss_sum / max(1, count), len(examples))
