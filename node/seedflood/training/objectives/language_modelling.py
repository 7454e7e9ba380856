"""Language modelling: every next token of a text.

Shapes: B rows, T tokens, D width, V vocabulary, P variants.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from seedflood.training.causal import CausalModel
from seedflood.training.objectives.batches import Batch, TextBatch, pad
from seedflood.training.objectives.objective import Example
from seedflood.training.objectives.score import Score

LOGIT_ELEMENTS_MAX = 1 << 24
"""Logits made at once: 64 MiB in float32. If these are all, they are kept for the way back."""

PERPLEXITY_LOG_MAX = 700.0
"""The largest log of a perplexity: beyond it the perplexity would be infinite, which JSON cannot spell."""


class LanguageModelling:
    """Cross-entropy of every next token over the vocabulary, computed in pieces along the sequence."""

    names: tuple[str, ...] = ("perplexity", "loss", "accuracy")

    def collate(self, examples: Sequence[Example], pad_token: int) -> TextBatch:
        return TextBatch(*pad([example.tokens for example in examples], pad_token))

    def measure(self, model: CausalModel, batch: Batch, variants: int = 1) -> Score:
        """Accuracy and loss (mean cross-entropy in nats) over tokens."""
        hidden_BTD = model.hidden_states(batch.tokens_BT)
        rows, length, _ = hidden_BTD.shape
        piece = max(1, LOGIT_ELEMENTS_MAX // (rows * model.vocabulary_size))
        is_recomputed = hidden_BTD.requires_grad and piece < length - 1
        losses, correct = [], []
        for start in range(0, length - 1, piece):
            end = min(start + piece, length - 1)
            arguments = (model, hidden_BTD[:, start:end], batch.tokens_BT[:, start + 1 : end + 1])
            if is_recomputed:  # no logits are kept for the way back: they are computed again, by pieces
                loss_BT, correct_BT = checkpoint(
                    _score_piece, *arguments, use_reentrant=False, preserve_rng_state=False
                )
            else:
                loss_BT, correct_BT = _score_piece(*arguments)
            losses.append(loss_BT)
            correct.append(correct_BT)
        is_token_BT = torch.arange(1, length, device=hidden_BTD.device) < batch.lengths_B.unsqueeze(1)
        loss_BT = torch.cat(losses, dim=1).where(is_token_BT, 0)
        correct_BT = torch.cat(correct, dim=1) & is_token_BT
        sums = {
            "accuracy": correct_BT.view(variants, -1).sum(dim=1),
            "loss": loss_BT.view(variants, -1).to(torch.float64).sum(dim=1),
        }
        return Score(sums, is_token_BT.reshape(variants, -1).sum(dim=1), "loss")

    def count(self, batch: Batch) -> int:
        """How many tokens are predicted."""
        return int((batch.lengths_B - 1).sum())

    def figures(self, score: Score) -> dict[str, float]:
        """The means, and the perplexity: among how many equally likely tokens a choice would be as hard."""
        means = score.means()
        perplexity = math.exp(min(means["loss"], PERPLEXITY_LOG_MAX))
        return {"perplexity": perplexity, "loss": means["loss"], "accuracy": means["accuracy"]}


def _score_piece(model: CausalModel, hidden_BTD: Tensor, target_BT: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of every token, and whether the model predicts it: (B, T) each."""
    logits_BTV = model.logits(hidden_BTD).to(torch.float32)
    # Flat, for a token's logits shall lie side by side: twice as fast on a CPU as with the vocabulary in the middle.
    loss_N = functional.cross_entropy(logits_BTV.flatten(0, 1), target_BT.flatten(), reduction="none")
    return loss_N.view_as(target_BT), logits_BTV.detach().argmax(dim=-1) == target_BT
