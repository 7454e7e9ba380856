"""A matrix that is not on the device as a whole: other ranks of the host have some of it (`sharded`), or it lies in
another memory (`offloaded`).

A product fetches all rows, and lets go of them; the backward pass fetches them again instead of keeping them. Large
matrices, as embeddings, are fetched a part at a time. A matrix that is one part is multiplied as one that is there as a
whole, so the outcome is the same bit for bit; in parts, up to rounding.

Shapes: M rows and K columns of the matrix, N some rows, X and Y outputs and inputs of a product, B positions.
"""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from seedflood.training.seedflood.stored import StoredMatrix

PART_ELEMENTS_MAX = 1 << 24
"""How many numbers are fetched at once: 64 MiB in float32, and torch may have them twice for a moment. The matrices of
a layer of a model of 1 B parameters are one part each."""


def parts_of(shape: torch.Size) -> list[slice]:
    """The rows of each part of a matrix."""
    rows, size = shape[0], max(1, PART_ELEMENTS_MAX // shape[1])
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


class FetchedMatrix(StoredMatrix):
    """Fetches what a product needs."""

    @abstractmethod
    def fetched(self, *, is_master: bool = False) -> Iterator[tuple[slice, Tensor]]:
        """Part after part, on the device. is_master: the float32 masters instead, if there are any, on whichever device
        they lie."""

    def base_rows(self) -> Iterator[tuple[slice, Tensor]]:
        return self.fetched()

    def whole(self) -> Tensor:
        """All rows, float32 in host memory: the masters, if there are any."""
        return torch.cat([part_XK.to("cpu", torch.float32) for _, part_XK in self.fetched(is_master=True)])

    def add_product(self, y_BX: Tensor, x_BY: Tensor, index: Tensor | slice, *, is_transposed: bool) -> Tensor:
        if isinstance(index, Tensor):
            return torch.addmm(y_BX, x_BY, self.lookup(index).T)
        total_BX: Tensor = _Sum.apply(y_BX, x_BY, self, is_transposed)  # type: ignore[no-untyped-call]
        return total_BX

    def add_parts(self, y_BX: Tensor, x_BY: Tensor, *, is_transposed: bool) -> Tensor:
        """`y + x W^T`, or `y + x W`, without a gradient, part after part. y may be written to."""
        if is_transposed:
            for rows, weight_XK in self.fetched():
                y_BX[:, rows].addmm_(x_BY, weight_XK.T)
            return y_BX
        if len(parts_of(self.shape)) == 1:
            (_, weight_YX) = next(self.fetched())
            return y_BX.addmm_(x_BY, weight_YX)
        total_BX = y_BX.to(torch.float32)  # half precision would round the sum once for each part
        for rows, weight_XK in self.fetched():
            total_BX += x_BY[:, rows] @ weight_XK
        return total_BX.to(y_BX.dtype)


class _Sum(torch.autograd.Function):
    """`y + x W^T` or `y + x W`: the gradient of x is the other product."""

    @staticmethod
    def forward(ctx: Any, y_BX: Tensor, x_BY: Tensor, matrix: FetchedMatrix, is_transposed: bool) -> Tensor:
        ctx.matrix, ctx.is_transposed, ctx.width = matrix, is_transposed, x_BY.shape[1]
        return matrix.add_parts(y_BX.clone(), x_BY, is_transposed=is_transposed)

    @staticmethod
    def backward(ctx: Any, slope_BX: Tensor) -> tuple[Tensor, Tensor, None, None]:
        slope_BY = slope_BX.new_zeros(len(slope_BX), ctx.width)
        return slope_BX, ctx.matrix.add_parts(slope_BY, slope_BX, is_transposed=not ctx.is_transposed), None, None
