"""From a batch of tokens to losses: hidden states first, then the head where an answer stands and nowhere else.

Rows are padded on the right and no attention mask is passed: attention is causal, so what follows the answer cannot
reach it, and the plain causal kernel is the fastest. Logits of the whole sequence are never made for classification.

Shapes: B rows, T tokens, D width, L labels, V vocabulary, P variants of the parameters that the batch stands for (1, or
more during a probe: then the batch stands once per variant, one copy below the other).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from seedflood.training.seedflood.layers import LiveLinear

LOGIT_ELEMENTS_MAX = 1 << 24
"""Logits made at once for language modelling: 64 MiB in float32."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of tokens, padded on the right.

    tokens_BT, lengths_B: int64. Classification has label_B (index of the right label) and word_L (first token of every
    label word), and its answer follows the last token of a row; language modelling has neither.
    """

    tokens_BT: Tensor
    lengths_B: Tensor
    label_B: Tensor | None = None
    word_L: Tensor | None = None

    def to(self, device: torch.device | str) -> "Batch":
        moved = [part if part is None else part.to(device) for part in (self.label_B, self.word_L)]
        return Batch(self.tokens_BT.to(device), self.lengths_B.to(device), *moved)

    def rows(self, index_N: Tensor) -> "Batch":
        """Some of the rows, without the padding that they do not need."""
        lengths_N = self.lengths_B[index_N]
        label_N = None if self.label_B is None else self.label_B[index_N]
        return Batch(self.tokens_BT[index_N, : int(lengths_N.max())], lengths_N, label_N, self.word_L)

    def split(self, call_tokens: int) -> "list[Batch]":
        """The batch in pieces of like length, so that calls cost least: rows x longest + call_tokens each.

        call_tokens: what a call costs beyond its tokens, in tokens; 0 would give a piece per length.
        """
        lengths, order = torch.sort(self.lengths_B, stable=True)
        longest = lengths.tolist()
        costs, cuts = [0], [0]
        for end in range(1, len(longest) + 1):
            cost, cut = min((costs[start] + (end - start) * longest[end - 1], start) for start in range(end))
            costs.append(cost + call_tokens)
            cuts.append(cut)
        pieces: list[Batch] = []
        end = len(longest)
        while end > 0:
            pieces.append(self.rows(order[cuts[end] : end]))
            end = cuts[end]
        return pieces

    def repeated(self, count: int) -> "Batch":
        """The batch so many times, one copy below the other."""
        label_B = None if self.label_B is None else self.label_B.repeat(count)
        return Batch(self.tokens_BT.repeat(count, 1), self.lengths_B.repeat(count), label_B, self.word_L)

    def answer_positions(self) -> Tensor | None:
        """Where classification reads the model, as positions in the flattened (B, T); None for language modelling."""
        if self.label_B is None:
            return None
        rows, length = self.tokens_BT.shape
        return torch.arange(rows, device=self.lengths_B.device) * length + self.lengths_B - 1


@dataclass(frozen=True, slots=True)
class Score:
    """Sums over a batch, (P,) each: loss_sum_P float64, correct_P and count_P int64 (rows, or tokens of `lm`)."""

    loss_sum_P: Tensor
    correct_P: Tensor
    count_P: Tensor

    def __add__(self, other: "Score") -> "Score":
        return Score(self.loss_sum_P + other.loss_sum_P, self.correct_P + other.correct_P, self.count_P + other.count_P)

    def mean_losses(self) -> list[float]:
        return [float(total / count) for total, count in zip(self.loss_sum_P, self.count_P, strict=True)]


def pad(rows: Sequence[Sequence[int]], pad_token: int) -> tuple[Tensor, Tensor]:
    """tokens_BT and lengths_B of rows of tokens."""
    lengths = [len(row) for row in rows]
    width = max(lengths)
    filled = [list(row) + [pad_token] * (width - len(row)) for row in rows]
    return torch.tensor(filled, dtype=torch.int64), torch.tensor(lengths, dtype=torch.int64)


def hidden_states(model: Any, tokens_BT: Tensor) -> Tensor:
    """What the head of a causal language model reads, (B, T, D)."""
    output = getattr(model, model.base_model_prefix)(input_ids=tokens_BT, use_cache=False)
    hidden_BTD: Tensor = output.last_hidden_state
    return hidden_BTD


def score(model: Any, batch: Batch, variants: int = 1) -> Score:
    """Loss and right answers of each variant, of a batch on the model's device; losses in float32 or better."""
    hidden_BTD = hidden_states(model, batch.tokens_BT)
    head = model.get_output_embeddings()
    if batch.label_B is None:
        return _score_tokens(head, hidden_BTD, batch, variants)
    return _score_labels(head, hidden_BTD, batch, variants)


def _score_labels(head: Any, hidden_BTD: Tensor, batch: Batch, variants: int) -> Score:
    """Cross-entropy over the label words at the answer's position.

    Over the label words only: on tiny-opt and SST-2 (4 origins, 1,024 rows, run seed 1, 400 steps) that reached
    accuracy 0.646, loss 0.627; training on the whole vocabulary's cross-entropy 0.576 and 0.679 (validation loss over
    the label words in both): it also trains how likely any label word is, which decides nothing.
    """
    assert batch.label_B is not None
    assert batch.word_L is not None
    row_B = torch.arange(len(hidden_BTD), device=hidden_BTD.device)
    answer_BD = hidden_BTD[row_B, batch.lengths_B - 1]
    logits_BL = _word_logits(head, answer_BD, batch.word_L).to(torch.float32)
    loss_B = functional.cross_entropy(logits_BL, batch.label_B, reduction="none")
    correct_B = logits_BL.argmax(dim=-1) == batch.label_B
    return _sum(loss_B.view(variants, -1), correct_B.view(variants, -1), torch.ones_like(correct_B).view(variants, -1))


def _word_logits(head: Any, answer_BD: Tensor, word_L: Tensor) -> Tensor:
    """Logits of the label words alone: OPT-125M's whole vocabulary would be 7 % of an estimate."""
    if isinstance(head, LiveLinear):
        return head.outputs(answer_BD, word_L)
    logits_BV: Tensor = head(answer_BD)
    return logits_BV[:, word_L]


def _score_tokens(head: Any, hidden_BTD: Tensor, batch: Batch, variants: int) -> Score:
    """Cross-entropy of every next token, over the vocabulary, in pieces along the sequence."""
    rows, length, _ = hidden_BTD.shape
    piece = max(1, LOGIT_ELEMENTS_MAX // (rows * head.weight.shape[0]))
    losses, correct = [], []
    for start in range(0, length - 1, piece):
        end = min(start + piece, length - 1)
        arguments = (head, hidden_BTD[:, start:end], batch.tokens_BT[:, start + 1 : end + 1])
        if hidden_BTD.requires_grad:  # no logits are kept for the way back: they are computed again, piece by piece
            loss_BT, correct_BT = checkpoint(_score_piece, *arguments, use_reentrant=False, preserve_rng_state=False)
        else:
            loss_BT, correct_BT = _score_piece(*arguments)
        losses.append(loss_BT)
        correct.append(correct_BT)
    is_token_BT = torch.arange(1, length, device=hidden_BTD.device) < batch.lengths_B.unsqueeze(1)
    loss_BT = torch.cat(losses, dim=1).where(is_token_BT, 0)
    correct_BT = torch.cat(correct, dim=1) & is_token_BT
    return _sum(loss_BT.view(variants, -1), correct_BT.view(variants, -1), is_token_BT.reshape(variants, -1))


def _score_piece(head: Any, hidden_BTD: Tensor, target_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Loss and whether it is right of every token, (B, T) each."""
    logits_BTV = head(hidden_BTD).to(torch.float32)
    loss_BT = functional.cross_entropy(logits_BTV.transpose(1, 2), target_BT, reduction="none")
    return loss_BT, logits_BTV.argmax(dim=-1) == target_BT


def _sum(loss_PN: Tensor, correct_PN: Tensor, counted_PN: Tensor) -> Score:
    return Score(loss_PN.to(torch.float64).sum(dim=1), correct_PN.sum(dim=1), counted_PN.sum(dim=1))
