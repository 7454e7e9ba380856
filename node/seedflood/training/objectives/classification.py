"""Prompted classification: the model answers a prompt with one of the label words.

Logits of the whole sequence are never made, only those of the label words at the position of the answer.

Shapes: B rows, T tokens, D width, L labels, P variants.
"""

from collections.abc import Sequence

import torch
from torch.nn import functional

from seedflood.training.causal import CausalModel
from seedflood.training.devices import to_float64
from seedflood.training.objectives.batches import Batch, LabelledBatch, pad
from seedflood.training.objectives.example import Example
from seedflood.training.objectives.objective import Objective, Score


class Classification(Objective):
    """Cross-entropy over the label words at the position of the answer. That over the whole vocabulary also trains how
    likely any label word is, which decides nothing, and was worse (accuracy 0.576 in place of 0.646 on SST-2)."""

    names: tuple[str, ...] = ("accuracy", "loss")

    def __init__(self, words: Sequence[int]) -> None:
        """words: the first token of every label word, in the order of the labels."""
        self.words = tuple(words)
        self._word_L = torch.tensor(self.words, dtype=torch.int64)

    def collate(self, examples: Sequence[Example], pad_token: int) -> LabelledBatch:
        tokens_BT, lengths_B = pad([example.tokens for example in examples], pad_token)
        label_B = torch.tensor([example.source.label for example in examples], dtype=torch.int64)
        return LabelledBatch(tokens_BT, lengths_B, label_B)

    def measure(self, model: CausalModel, batch: Batch, variants: int = 1) -> Score:
        """Accuracy and loss (mean cross-entropy in nats) over rows."""
        assert isinstance(batch, LabelledBatch), "classification needs labels"
        hidden_BTD = model.hidden_states(batch.tokens_BT)
        row_B = torch.arange(len(hidden_BTD), device=hidden_BTD.device)
        answer_BD = hidden_BTD[row_B, batch.lengths_B - 1]
        logits_BL = model.word_logits(answer_BD, self._word_L.to(answer_BD.device)).to(torch.float32)
        loss_B = functional.cross_entropy(logits_BL, batch.label_B, reduction="none")
        correct_B = logits_BL.argmax(dim=-1) == batch.label_B
        sums = {
            "accuracy": correct_B.view(variants, -1).sum(dim=1),
            "loss": to_float64(loss_B.view(variants, -1)).sum(dim=1),
        }
        return Score(sums, torch.full_like(sums["loss"], len(row_B) // variants, dtype=torch.int64), "loss")
