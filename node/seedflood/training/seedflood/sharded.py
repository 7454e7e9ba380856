"""A matrix of which each rank of a host has some rows (`training/ranks`).

Each part (`fetched`) is dealt out by itself: rank 0 has its first rows, and so on, as many each, the last ones filled
up.

Shapes: M rows and K columns of the matrix, S rows that one rank has of a part, H rows that it has in all, N some rows,
X rows of a part, Y
numbers or bytes of a row as it is sent.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from seedflood.training.ranks import Ranks
from seedflood.training.seedflood.fetched import FetchedMatrix
from seedflood.training.seedflood.quantised import Quantisation, QuantisedMatrix, quantise
from seedflood.training.seedflood.subspace import SlotBasis

AWAY = -1
"""The place of a row that another rank has."""


class _Part(NamedTuple):
    """Rows of the matrix, and where ours of them are among those that we have."""

    rows: slice
    own: slice


class _OwnRows(Protocol):
    """What a rank has of a matrix, H rows."""

    def block(self, rows: slice, *, is_master: bool) -> Tensor:
        """Some of them, as they are sent, one below the other."""

    def opened(self, block_XY: Tensor) -> Tensor:
        """What any rank has sent, as rows to compute with, (X, K)."""

    def lookup(self, index_N: Tensor) -> Tensor:
        """Some of them, to compute with, (N, K)."""

    def fold(self, epoch: int, left_HR: Tensor, right_RK: Tensor) -> None:
        """Adds what an epoch changes."""


class _WholeRows:
    """As they were loaded. master_HK: float32 in host memory, if the rows are of half precision."""

    def __init__(self, own_HK: Tensor, master_HK: Tensor | None) -> None:
        self.own_HK = own_HK
        self._master_HK = own_HK if master_HK is None else master_HK

    def block(self, rows: slice, *, is_master: bool) -> Tensor:
        return (self._master_HK if is_master else self.own_HK)[rows]

    def opened(self, block_XY: Tensor) -> Tensor:
        return block_XY

    def lookup(self, index_N: Tensor) -> Tensor:
        return self.own_HK[index_N]

    def fold(self, epoch: int, left_HR: Tensor, right_RK: Tensor) -> None:
        there = self._master_HK.device
        self._master_HK.addmm_(left_HR.to(there), right_RK.to(there))
        if self._master_HK is not self.own_HK:
            self.own_HK.copy_(self._master_HK)


class _FewBits:
    """Quantised: they are sent so, too, with what epochs have changed of them."""

    def __init__(self, rows: QuantisedMatrix, dtype: torch.dtype) -> None:
        self._rows, self._dtype = rows, dtype
        self.fold = rows.add

    def block(self, rows: slice, *, is_master: bool) -> Tensor:
        return self._rows.packed(rows)

    def opened(self, block_XY: Tensor) -> Tensor:
        return self._rows.unpacked(block_XY).to(self._dtype)

    def lookup(self, index_N: Tensor) -> Tensor:
        return self._rows.lookup(index_N).to(self._dtype)


class ShardedMatrix(FetchedMatrix):
    """Takes the rows of this rank out of a matrix, which is not used any more."""

    def __init__(
        self, weight_MK: Tensor, master_MK: Tensor | None, ranks: Ranks, number: int, kind: Quantisation | None = None
    ) -> None:
        """weight_MK: in host memory. master_MK: float32, if the weight is of half precision. number: of the matrix, the
        same on all ranks. kind: the rows have few bits."""
        super().__init__(weight_MK.shape, ranks.device, weight_MK.dtype)
        self._ranks, self._number = ranks, number
        self._dealt: list[_Part] = []
        row_H = self._deal()
        self._row_H = row_H.clamp(max=weight_MK.shape[0] - 1)
        place_M = torch.full((len(weight_MK),), AWAY)
        is_real_H = row_H < len(weight_MK)
        place_M[row_H[is_real_H]] = is_real_H.nonzero().squeeze(1)
        self._place_M = place_M.to(ranks.device)
        weight_HK = weight_MK.detach()[self._row_H]
        master_HK = None if master_MK is None else master_MK[self._row_H]
        self.own: _OwnRows = (
            _WholeRows(weight_HK.to(ranks.device), master_HK)
            if kind is None
            else _FewBits(quantise(kind, weight_HK if master_HK is None else master_HK, ranks.device), self.dtype)
        )
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
        return self.own.block(self._dealt[part].own, is_master=is_master)

    def found(self, index_N: Tensor) -> Tensor:
        place_N = self._place_M[index_N]
        return self.own.lookup(place_N.clamp(min=0)).masked_fill_((place_N == AWAY).unsqueeze(1), 0)

    # What a model computes with

    def lookup(self, index_N: Tensor) -> Tensor:
        return self._ranks.lookup(self._number, index_N)

    def fetched(self, *, is_master: bool = False) -> Iterator[tuple[slice, Tensor]]:
        for part, (rows, _) in enumerate(self._dealt):
            block_XY = self._ranks.gather(self._number, part, is_master=is_master)
            yield rows, self.own.opened(block_XY[: rows.stop - rows.start])

    # What is learned

    def fold(self, epoch: int, basis: SlotBasis, a: Tensor) -> None:
        """Into our rows alone: all ranks fold."""
        assert basis.v_NR is not None
        left_MR = basis.left(a.to(basis.v_NR.device))
        self.own.fold(epoch, left_MR[self._row_H.to(left_MR.device)], basis.v_NR.T)
