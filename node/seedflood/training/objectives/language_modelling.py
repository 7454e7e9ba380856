"""Language modelling: every next token of a text, or those of the answers in it.

Shapes: B rows, T tokens, D width, V vocabulary, P variants, N tokens that are predicted, of one variant.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from seedflood.training.causal import CausalModel
from seedflood.training.devices import to_float64
from seedflood.training.objectives.batches import Batch, MarkedBatch, TextBatch, pad
from seedflood.training.objectives.example import Example
from seedflood.training.objectives.objective import Objective, Score

LOGIT_ELEMENTS_MAX = 1 << 24
"""Logits made at once: 64 MiB in float32. If these are all, they are kept for the way back."""

PERPLEXITY_LOG_MAX = 700.0
"""The largest log of a perplexity: beyond it the perplexity would be infinite, which JSON cannot spell."""


class LanguageModelling(Objective):
    """Cross-entropy of every next token over the vocabulary, or of those that are learned, as the answers in a chat.
    Logits are made of the tokens that are predicted alone, a piece of them after the other."""

    names: tuple[str, ...] = ("perplexity", "loss", "accuracy")

    def collate(self, examples: Sequence[Example], pad_token: int) -> TextBatch:
        tokens_BT, lengths_B = pad([example.tokens for example in examples], pad_token)
        if all(example.source.spans is None for example in examples):
            return TextBatch(tokens_BT, lengths_B)
        is_trained_BT, _ = pad([example.is_trained for example in examples], False)
        return MarkedBatch(tokens_BT, lengths_B, is_trained_BT.to(torch.bool))

    def measure(self, model: CausalModel, batch: Batch, variants: int = 1) -> Score:
        """Accuracy and loss (mean cross-entropy in nats) over tokens."""
        assert isinstance(batch, TextBatch), "language modelling needs texts"
        loss_PN, correct_PN = measure_tokens(model, batch, variants)
        sums = {"accuracy": correct_PN.sum(dim=1), "loss": to_float64(loss_PN).sum(dim=1)}
        return Score(sums, torch.full_like(sums["loss"], loss_PN.shape[1], dtype=torch.int64), "loss")

    def count(self, batch: Batch) -> int:
        """How many tokens are predicted."""
        assert isinstance(batch, TextBatch), "language modelling needs texts"
        return int(batch.is_target_BT().sum())

    def figures(self, score: Score) -> dict[str, float]:
        """The means, and the perplexity: among how many equally likely tokens a choice would be as hard."""
        means = score.means()
        perplexity = math.exp(min(means["loss"], PERPLEXITY_LOG_MAX))
        return {"perplexity": perplexity, "loss": means["loss"], "accuracy": means["accuracy"]}


def measure_tokens(
    model: CausalModel, batch: TextBatch, variants: int = 1, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """The loss of every token that is predicted, row after row, and whether the model predicts it: (P, N) each."""
    hidden_BTD = model.hidden_states(batch.tokens_BT)
    is_target_BT = batch.is_target_BT()
    hidden_PND = hidden_BTD[:, :-1][is_target_BT].view(variants, -1, hidden_BTD.shape[-1])
    target_PN = batch.tokens_BT[:, 1:][is_target_BT].view(variants, -1)
    count = target_PN.shape[1]
    piece = max(1, LOGIT_ELEMENTS_MAX // (variants * model.vocabulary_size))
    is_recomputed = hidden_PND.requires_grad and piece < count
    losses, correct = [], []
    for start in range(0, max(1, count), piece):
        part = slice(start, start + piece)
        arguments = (model, hidden_PND[:, part], target_PN[:, part], temperature)
        if is_recomputed:  # no logits are kept for the way back: they are computed again, by pieces
            loss_PN, correct_PN = checkpoint(_score_piece, *arguments, use_reentrant=False, preserve_rng_state=False)
        else:
            loss_PN, correct_PN = _score_piece(*arguments)
        losses.append(loss_PN)
        correct.append(correct_PN)
    return torch.cat(losses, dim=1), torch.cat(correct, dim=1)


def _score_piece(
    model: CausalModel, hidden_PND: Tensor, target_PN: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """The loss of every token, and whether the model predicts it: (P, N) each."""
    logits_PNV = model.logits(hidden_PND).to(torch.float32)
    if temperature != 1.0:
        logits_PNV = logits_PNV / temperature
    # Flat, for a token's logits shall lie side by side: twice as fast on a CPU as with the vocabulary in the middle.
    loss_N = functional.cross_entropy(logits_PNV.flatten(0, 1), target_PN.flatten(), reduction="none")
    return loss_N.view_as(target_PN), logits_PNV.detach().argmax(dim=-1) == target_PN
