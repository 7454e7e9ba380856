"""A matrix of which each rank of a host has some rows (`training/ranks`).

A product gathers all rows, and lets go of them; the backward pass gathers them again instead of keeping them. Large
matrices, as embeddings, are gathered a part at a time. A matrix that is one part is multiplied as one process does it,
so the outcome is the same bit for bit; in parts, up to rounding.

Each part is dealt out by itself: rank 0 has its first rows, and so on, as many each, the last ones filled up.

Shapes: M rows and K columns of the matrix, S rows that one rank has of a part, H rows that it has in all, N some rows,
X and Y outputs and inputs of a product, B positions.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seedflood.training.ranks import Ranks
from seedflood.training.seedflood.stored import StoredMatrix
from seedflood.training.seedflood.subspace import SlotBasis

PART_ELEMENTS_MAX = 1 << 24
"""How many numbers are gathered at once: 64 MiB in float32, and torch may have them twice for a moment. The matrices of
a layer of a model of 1 B parameters are one part each."""

AWAY = -1
"""The place of a row that another rank has."""


class _Part(NamedTuple):
    """Rows of the matrix, and where ours of them are among those that we have."""

    rows: slice
    own: slice


class ShardedMatrix(StoredMatrix):
    """Takes the rows of this rank out of a matrix, which is not used any more."""

    def __init__(self, weight_MK: Tensor, master_MK: Tensor | None, ranks: Ranks, number: int) -> None:
        """weight_MK: in host memory. master_MK: float32, if the weight is of half precision. number: of the matrix, the
        same on all ranks."""
        super().__init__(weight_MK.shape, ranks.device, weight_MK.dtype)
        self._ranks, self._number = ranks, number
        self._parts: list[_Part] = []
        row_H = self._deal(weight_MK.shape[0])
        self._row_H = row_H.clamp(max=weight_MK.shape[0] - 1)
        place_M = torch.full((len(weight_MK),), AWAY)
        is_real_H = row_H < len(weight_MK)
        place_M[row_H[is_real_H]] = is_real_H.nonzero().squeeze(1)
        self._place_M = place_M.to(ranks.device)
        self._own_HK = weight_MK.detach()[self._row_H].to(ranks.device)
        self._master_HK = self._own_HK if master_MK is None else master_MK[self._row_H]
        ranks.hold(number, self)

    def _deal(self, rows: int) -> Tensor:
        """Makes the parts. Returns which rows we have, (H,); those that fill up are beyond the matrix."""
        size = max(1, PART_ELEMENTS_MAX // self.shape[1])
        dealt, held = [], 0
        for start in range(0, rows, size):
            stop = min(start + size, rows)
            share = -(-(stop - start) // self._ranks.count)
            first = start + self._ranks.number * share
            row_S = torch.arange(first, first + share)
            dealt.append(torch.where(row_S < stop, row_S, rows))
            self._parts.append(_Part(slice(start, stop), slice(held, held + share)))
            held += share
        return torch.cat(dealt)

    # What other ranks take of it (`ranks.HeldRows`)

    def block(self, part: int, *, is_master: bool) -> Tensor:
        return (self._master_HK if is_master else self._own_HK)[self._parts[part].own]

    def found(self, index_N: Tensor) -> Tensor:
        place_N = self._place_M[index_N]
        return self._own_HK[place_N.clamp(min=0)].masked_fill_((place_N == AWAY).unsqueeze(1), 0)

    # What a model computes with

    def lookup(self, index_N: Tensor) -> Tensor:
        return self._ranks.lookup(self._number, index_N)

    def add_product(self, y_BX: Tensor, x_BY: Tensor, index: Tensor | slice, *, is_transposed: bool) -> Tensor:
        if isinstance(index, Tensor):
            return torch.addmm(y_BX, x_BY, self.lookup(index).T)
        total_BX: Tensor = _Sum.apply(y_BX, x_BY, self, is_transposed)  # type: ignore[no-untyped-call]
        return total_BX

    def add_parts(self, y_BX: Tensor, x_BY: Tensor, *, is_transposed: bool) -> Tensor:
        """`y + x W^T`, or `y + x W`, without a gradient, part after part. y is written to."""
        for rows, weight_XK in self._gathered():
            if is_transposed:
                y_BX[:, rows].addmm_(x_BY, weight_XK.T)
            else:
                y_BX.addmm_(x_BY[:, rows], weight_XK)
        return y_BX

    def whole(self) -> Tensor:
        """All rows, float32 in host memory: the masters, if there are any."""
        return torch.cat([part_XK.to("cpu", torch.float32) for _, part_XK in self._gathered(is_master=True)])

    def _gathered(self, *, is_master: bool = False) -> Iterator[tuple[slice, Tensor]]:
        for part, (rows, _) in enumerate(self._parts):
            whole_XK = self._ranks.gather(self._number, part, is_master=is_master)
            yield rows, whole_XK[: rows.stop - rows.start]

    # What is learned

    def fold(self, epoch: int, basis: SlotBasis, a: Tensor) -> None:
        """Into our rows alone: all ranks fold."""
        master_HK = self._master_HK
        on_master = basis.to(master_HK.device)
        assert on_master.v_NR is not None
        left_MR = on_master.left(a.to(master_HK.device))
        master_HK.addmm_(left_MR[self._row_H.to(master_HK.device)], on_master.v_NR.T)
        if master_HK is not self._own_HK:
            self._own_HK.copy_(master_HK)


class _Sum(torch.autograd.Function):
    """`y + x W^T` or `y + x W`: the gradient of x is the other product."""

    @staticmethod
    def forward(ctx: Any, y_BX: Tensor, x_BY: Tensor, matrix: ShardedMatrix, is_transposed: bool) -> Tensor:
        ctx.matrix, ctx.is_transposed, ctx.width = matrix, is_transposed, x_BY.shape[1]
        return matrix.add_parts(y_BX.clone(), x_BY, is_transposed=is_transposed)

    @staticmethod
    def backward(ctx: Any, slope_BX: Tensor) -> tuple[Tensor, Tensor, None, None]:
        slope_BY = slope_BX.new_zeros(len(slope_BX), ctx.width)
        return slope_BX, ctx.matrix.add_parts(slope_BY, slope_BX, is_transposed=not ctx.is_transposed), None, None
