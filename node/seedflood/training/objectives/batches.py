"""Rows of tokens as tensors, padded on the right: what an objective measures on.

Shapes: B rows, T tokens, N some of the rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from seedflood.training.devices import exact_device


@dataclass(frozen=True, slots=True)
class Batch:
    """What all batches have in common. tokens_BT, lengths_B: int64. An objective that needs more has a class of its
    own, whose other fields are tensors with an entry per row, (B,), or per token, (B, T)."""

    tokens_BT: Tensor
    lengths_B: Tensor

    def answer_positions(self) -> Tensor | None:
        """The only positions at which the model is read, in the flattened (B, T); None: it is read everywhere."""
        return None

    def to(self, device: torch.device | str) -> Self:
        """On a device; what is of float64 on its `exact_device`."""
        exact = exact_device(device)
        moved = {
            name: tensor.to(exact if tensor.dtype == torch.float64 else device) for name, tensor in self._tensors()
        }
        return replace(self, **moved)

    def rows(self, index_N: Tensor) -> Self:
        """Some of the rows, with no more padding than these need."""
        length = int(self.lengths_B[index_N].max())
        picked = {name: tensor[index_N] for name, tensor in self._tensors()}
        return replace(self, **{name: one[:, :length] if one.dim() > 1 else one for name, one in picked.items()})

    def parts(self, rows_max: int | None) -> Iterator[Self]:
        """The batch, so many rows at a time; None: all."""
        rows = len(self.lengths_B)
        size = rows_max or rows
        for start in range(0, rows, size):
            yield self.rows(torch.arange(start, min(start + size, rows))) if size < rows else self

    def split(self, call_tokens: int) -> list[Self]:
        """Cuts the batch into pieces of similar length, so that the calls for them cost least: rows x longest +
        call_tokens each.

        call_tokens: what a call costs beyond its tokens, in tokens; 0 would give a piece per length.
        """
        lengths, order = torch.sort(self.lengths_B, stable=True)
        longest = lengths.tolist()
        costs, cuts = [0], [0]
        for end in range(1, len(longest) + 1):
            cost, cut = min((costs[start] + (end - start) * longest[end - 1], start) for start in range(end))
            costs.append(cost + call_tokens)
            cuts.append(cut)
        pieces: list[Self] = []
        end = len(longest)
        while end > 0:
            pieces.append(self.rows(order[cuts[end] : end]))
            end = cuts[end]
        return pieces

    def repeated(self, count: int) -> Self:
        """`count` copies of the batch, one below the other."""
        copies = {name: tensor.repeat(count, *[1] * (tensor.dim() - 1)) for name, tensor in self._tensors()}
        return replace(self, **copies)

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        return ((field.name, getattr(self, field.name)) for field in fields(self))


@dataclass(frozen=True, slots=True)
class LabelledBatch(Batch):
    """Classification: the answer follows the last token of a row. label_B: index of the right label, int64."""

    label_B: Tensor

    def answer_positions(self) -> Tensor:
        rows, length = self.tokens_BT.shape
        return torch.arange(rows, device=self.lengths_B.device) * length + self.lengths_B - 1


@dataclass(frozen=True, slots=True)
class TextBatch(Batch):
    """Language modelling: every token but the first of a row is predicted from those before it."""

    def is_target_BT(self) -> Tensor:  # noqa: N802
        """Which of the tokens behind the first are predicted, (B, T - 1), bool."""
        return torch.arange(1, self.tokens_BT.shape[1], device=self.lengths_B.device) < self.lengths_B.unsqueeze(1)


@dataclass(frozen=True, slots=True)
class MarkedBatch(TextBatch):
    """Language modelling of some tokens alone: the answers, not the questions. is_trained_BT: bool, nowhere true in
    padding."""

    is_trained_BT: Tensor

    def is_target_BT(self) -> Tensor:  # noqa: N802
        return self.is_trained_BT[:, 1:]

    def answer_positions(self) -> Tensor:
        """A token is predicted where the one before it is read."""
        return functional.pad(self.is_target_BT(), (0, 1)).flatten().nonzero().squeeze(1)


def pad(rows: Sequence[Sequence[int]], pad_token: int) -> tuple[Tensor, Tensor]:
    """tokens_BT and lengths_B of rows of tokens."""
    lengths = [len(row) for row in rows]
    width = max(lengths)
    filled = [list(row) + [pad_token] * (width - len(row)) for row in rows]
    return torch.tensor(filled, dtype=torch.int64), torch.tensor(lengths, dtype=torch.int64)
