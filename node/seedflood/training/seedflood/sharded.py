"""A matrix of which each rank of a host has some rows (`training/ranks`).

Each part (`fetched`) is dealt out by itself: rank 0 has its first rows, and so on, as many each, the last ones filled
up.

Shapes: M rows and K columns of the matrix, S rows that one rank has of a part, H rows that it has in all, N some rows,
X rows of a part.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from seedflood.training.ranks import Ranks
from seedflood.training.seedflood.fetched import FetchedMatrix
from seedflood.training.seedflood.subspace import SlotBasis

AWAY = -1
"""The place of a row that another rank has."""


class _Part(NamedTuple):
    """Rows of the matrix, and where ours of them are among those that we have."""

    rows: slice
    own: slice


class ShardedMatrix(FetchedMatrix):
    """Takes the rows of this rank out of a matrix, which is not used any more."""

    def __init__(self, weight_MK: Tensor, master_MK: Tensor | None, ranks: Ranks, number: int) -> None:
        """weight_MK: in host memory. master_MK: float32, if the weight is of half precision. number: of the matrix, the
        same on all ranks."""
        super().__init__(weight_MK.shape, ranks.device, weight_MK.dtype)
        self._ranks, self._number = ranks, number
        self._dealt: list[_Part] = []
        row_H = self._deal()
        self._row_H = row_H.clamp(max=weight_MK.shape[0] - 1)
        place_M = torch.full((len(weight_MK),), AWAY)
        is_real_H = row_H < len(weight_MK)
        place_M[row_H[is_real_H]] = is_real_H.nonzero().squeeze(1)
        self._place_M = place_M.to(ranks.device)
        self._own_HK = weight_MK.detach()[self._row_H].to(ranks.device)
        self._master_HK = self._own_HK if master_MK is None else master_MK[self._row_H]
        ranks.hold(number, self)

    def _deal(self) -> Tensor:
        """Deals out the parts. Returns which rows we have, (H,); those that fill up are beyond the matrix."""
        dealt, held = [], 0
        for rows in self.parts():
            share = -(-(rows.stop - rows.start) // self._ranks.count)
            first = rows.start + self._ranks.number * share
            row_S = torch.arange(first, first + share)
            dealt.append(torch.where(row_S < rows.stop, row_S, self.shape[0]))
            self._dealt.append(_Part(rows, slice(held, held + share)))
            held += share
        return torch.cat(dealt)

    # What other ranks take of it (`ranks.HeldRows`)

    def block(self, part: int, *, is_master: bool) -> Tensor:
        return (self._master_HK if is_master else self._own_HK)[self._dealt[part].own]

    def found(self, index_N: Tensor) -> Tensor:
        place_N = self._place_M[index_N]
        return self._own_HK[place_N.clamp(min=0)].masked_fill_((place_N == AWAY).unsqueeze(1), 0)

    # What a model computes with

    def lookup(self, index_N: Tensor) -> Tensor:
        return self._ranks.lookup(self._number, index_N)

    def fetched(self, *, is_master: bool = False) -> Iterator[tuple[slice, Tensor]]:
        for part, (rows, _) in enumerate(self._dealt):
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
