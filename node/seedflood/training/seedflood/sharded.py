"""A matrix of which each rank of a host has some rows (`training/ranks`).

Each part (`fetched`) is dealt out by itself: rank 0 has its first rows, and so on, as many each, the last ones filled
up. With few bits (`quantised`) codes and scales are dealt out, and sent. What epochs change of such a matrix is beside
it on all ranks.

Shapes: M rows and K columns of the matrix, S rows that one rank has of a part, H rows that it has in all, N some rows,
X rows of a part.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from seedflood.training.ranks import Ranks
from seedflood.training.seedflood.fetched import FetchedMatrix, parts_of
from seedflood.training.seedflood.quantised import EpochsBeside, Quantisation, quantise
from seedflood.training.seedflood.subspace import SlotBasis

AWAY = -1
"""The place of a row that another rank has."""


class _Part(NamedTuple):
    """Rows of the matrix. own: where ours of them are among those that we have, with what fills them up. ours: where
    ours are among the rows of the part."""

    rows: slice
    own: slice
    ours: slice

    @property
    def size(self) -> int:
        return int(self.rows.stop - self.rows.start)


class _Deal:
    """How the rows of a matrix are dealt out. row_H: those that we have, filled up with others. place_M: where each row
    is among ours."""

    def __init__(self, shape: torch.Size, ranks: Ranks) -> None:
        self.parts: list[_Part] = []
        dealt, held = [], 0
        for rows in parts_of(shape):
            size = rows.stop - rows.start
            share = -(-size // ranks.count)
            first = ranks.number * share
            ours = slice(min(first, size), min(first + share, size))
            row_S = torch.arange(rows.start + first, rows.start + first + share)
            dealt.append(torch.where(row_S < rows.stop, row_S, shape[0]))
            self.parts.append(_Part(rows, slice(held, held + share), ours))
            held += share
        row_H = torch.cat(dealt)
        is_real_H = row_H < shape[0]
        self.row_H = row_H.clamp(max=shape[0] - 1)
        self.place_M = torch.full((shape[0],), AWAY)
        self.place_M[row_H[is_real_H]] = is_real_H.nonzero().squeeze(1)
        self.place_M = self.place_M.to(ranks.device)


class ShardedMatrix(FetchedMatrix):
    """Takes the rows of this rank out of a matrix, which is not used any more."""

    def __init__(self, weight_MK: Tensor, master_MK: Tensor | None, ranks: Ranks, number: int) -> None:
        """weight_MK: in host memory. master_MK: float32, if the weight is of half precision. number: of the matrix, the
        same on all ranks."""
        super().__init__(weight_MK.shape, ranks.device, weight_MK.dtype)
        self._ranks, self._number, self._deal = ranks, number, _Deal(weight_MK.shape, ranks)
        self._own_HK = weight_MK.detach()[self._deal.row_H].to(ranks.device)
        self._master_HK = self._own_HK if master_MK is None else master_MK[self._deal.row_H]
        ranks.hold(number, self)

    # What other ranks take of it (`ranks.HeldRows`)

    def block(self, part: int, *, is_master: bool) -> Tensor:
        return (self._master_HK if is_master else self._own_HK)[self._deal.parts[part].own]

    def found(self, index_N: Tensor) -> Tensor:
        place_N = self._deal.place_M[index_N]
        return self._own_HK[place_N.clamp(min=0)].masked_fill_((place_N == AWAY).unsqueeze(1), 0)

    # What a model computes with

    def lookup(self, index_N: Tensor) -> Tensor:
        return self._ranks.lookup(self._number, index_N)

    def fetched(self, *, is_master: bool = False) -> Iterator[tuple[slice, Tensor]]:
        for number, part in enumerate(self._deal.parts):
            whole_XK = self._ranks.gather(self._number, number, is_master=is_master)
            yield part.rows, whole_XK[: part.size]

    # What is learned

    def fold(self, epoch: int, basis: SlotBasis, a: Tensor) -> None:
        """Into our rows alone: all ranks fold."""
        master_HK = self._master_HK
        on_master = basis.to(master_HK.device)
        assert on_master.v_NR is not None
        left_MR = on_master.left(a.to(master_HK.device))
        for part in self._deal.parts:
            # A product of fewer rows may round otherwise. So its shape is that of the part, as in one process.
            whole_XK = master_HK.new_zeros(part.size, self.shape[1])
            held = slice(part.own.start, part.own.start + part.ours.stop - part.ours.start)
            whole_XK[part.ours] = master_HK[held]
            whole_XK.addmm_(left_MR[part.rows], on_master.v_NR.T)
            master_HK[held] = whole_XK[part.ours]
        if master_HK is not self._own_HK:
            self._own_HK.copy_(master_HK)


class ShardedCodes(EpochsBeside):
    """The same of a matrix in few bits."""

    def __init__(self, weight_MK: Tensor, ranks: Ranks, number: int, kind: Quantisation) -> None:
        super().__init__(weight_MK.shape, ranks.device)
        self._ranks, self._number, self._deal = ranks, number, _Deal(weight_MK.shape, ranks)
        self._own = quantise(kind, weight_MK.detach()[self._deal.row_H], ranks.device)
        ranks.hold(number, self)

    def block(self, part: int, *, is_master: bool) -> Tensor:
        return self._own.packed(self._deal.parts[part].own)

    def found(self, index_N: Tensor) -> Tensor:
        place_N = self._deal.place_M[index_N]
        return self._own.rows(place_N.clamp(min=0)).masked_fill_((place_N == AWAY).unsqueeze(1), 0)

    def rows(self, index_X: Tensor) -> Tensor:
        return self._ranks.lookup(self._number, index_X)

    def base_rows(self) -> Iterator[tuple[slice, Tensor]]:
        for number, part in enumerate(self._deal.parts):
            packed_XY = self._ranks.gather(self._number, number)
            yield part.rows, self._own.unpacked(packed_XY[: part.size])
