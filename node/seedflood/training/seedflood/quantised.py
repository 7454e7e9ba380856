"""Base weights in 8 or 4 bits, and what epochs have changed of them, kept beside.

A host chooses for itself whether it has the memory for the base model. A matrix is stored as integers and is never
written again: what is learned stays exact, for it is integers elsewhere, and an epoch that was folded is a product of
two thin matrices, `L R`, that is computed along. A product takes the stored rows a few at a time, makes them float32,
and lets go of them; the backward pass does it again instead of keeping them.

int8 has one scale for each row, as torchao has it for weights alone; these are a few lines of torch, while torchao,
once it is installed, is imported with transformers wherever that is. nf4 is that of QLoRA (arXiv 2305.14314), with one
scale for 64 numbers, by bitsandbytes.

Only the losses that this host measures are a little others. Hosts that hold the same updates have equal digests.

Shapes: M rows and N columns of a stored weight, X some of its rows, Y codes or scales of a row, B positions, K columns
of what was folded.
"""

import importlib.util
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from seedflood.errors import ModelError
from seedflood.training.seedflood.stored import StoredMatrix, give_back_memory
from seedflood.training.seedflood.subspace import SlotBasis

Quantisation = Literal["int8", "nf4"]

CHUNK_ELEMENTS = 1 << 20
"""How many numbers are float32 at once: 16 MB."""

NF4_BLOCK = 64
"""How many numbers share a scale."""


def check_quantisation(kind: Quantisation | None) -> None:
    """Raises ModelError if the package that it needs is not there."""
    if kind == "nf4" and importlib.util.find_spec("bitsandbytes") is None:
        raise ModelError('dtype = "nf4" needs the package bitsandbytes: install seedflood[nf4], or take "int8".')


def stored_bytes(kind: Quantisation, shape: torch.Size) -> int:
    """Of a matrix of this shape."""
    rows, width = shape
    return rows * (width + 4) if kind == "int8" else rows * -(-width // NF4_BLOCK) * (NF4_BLOCK // 2 + 4)


def quantise(
    kind: Quantisation, weight_MN: Tensor, device: torch.device, place: torch.device | None = None
) -> "QuantisedMatrix":
    """A matrix in few bits. device: computes with it, and never holds more than some rows of it in float32. place:
    where it lies, if elsewhere; a product then copies one bunch of rows after the other to the device."""
    give_back_memory()
    make = Int8Matrix if kind == "int8" else Nf4Matrix
    return make(weight_MN, device, device if place is None else place)


class EpochsBeside(StoredMatrix):
    """A matrix that is not written any more: what epochs change is a product, `L R`, beside it."""

    def __init__(self, shape: torch.Size, device: torch.device) -> None:
        super().__init__(shape, device, torch.float32)
        self._epochs: list[int] = []
        """Those that were folded, in the order of their columns."""
        self._left_MK = torch.zeros(self.shape[0], 0, device=device)
        self._right_KN = torch.zeros(0, self.shape[1], device=device)

    @abstractmethod
    def rows(self, index_X: Tensor) -> Tensor:
        """Rows of the base weight, (X, N) float32."""

    def fold(self, epoch: int, basis: SlotBasis, a: Tensor) -> None:
        """Adds `L R` to what an epoch has changed; R is always the same in one epoch."""
        assert basis.v_NR is not None
        left_MR, right_RN = basis.left(a.to(self.device)), basis.v_NR.T
        rank = len(right_RN)
        if epoch not in self._epochs:
            self._epochs.append(epoch)
            self._left_MK = torch.cat([self._left_MK, torch.zeros_like(left_MR)], dim=1)
            self._right_KN = torch.cat([self._right_KN, right_RN])
        start = self._epochs.index(epoch) * rank
        self._left_MK[:, start : start + rank] += left_MR

    def lookup(self, index_X: Tensor) -> Tensor:
        """Some rows as they are after all folded epochs."""
        return (self.rows(index_X) + self._left_MK[index_X] @ self._right_KN).to(self.dtype)

    def add_product(self, y_BX: Tensor, x_BY: Tensor, index: Tensor | slice, *, is_transposed: bool) -> Tensor:
        return y_BX.add_(self.outputs(x_BY, index) if is_transposed else self.inputs(x_BY))

    def outputs(self, x_BN: Tensor, index: Tensor | slice) -> Tensor:
        """`x W^T`, or some columns of it."""
        if isinstance(index, Tensor):
            return x_BN @ self.lookup(index).T
        base_BM: Tensor = _Product.apply(x_BN, self, True)  # type: ignore[no-untyped-call]
        return base_BM + ((x_BN.to(torch.float32) @ self._right_KN.T) @ self._left_MK.T).to(x_BN.dtype)

    def inputs(self, x_BM: Tensor) -> Tensor:
        """`x W`."""
        base_BN: Tensor = _Product.apply(x_BM, self, False)  # type: ignore[no-untyped-call]
        return base_BN + ((x_BM.to(torch.float32) @ self._left_MK) @ self._right_KN).to(x_BM.dtype)

    def times(self, x_BX: Tensor, *, is_transposed: bool) -> Tensor:
        """`x W^T` or `x W` of the base weight, without a gradient."""
        y_BX = x_BX.new_zeros(len(x_BX), self.shape[0 if is_transposed else 1])
        for some, rows_XN in self.base_rows():
            rows_XN = rows_XN.to(x_BX.dtype)
            if is_transposed:
                torch.matmul(x_BX, rows_XN.T, out=y_BX[:, some])
            else:
                y_BX.addmm_(x_BX[:, some], rows_XN)
        return y_BX


class QuantisedMatrix(EpochsBeside):
    """Codes and scales of its rows."""

    def __init__(self, weight_MN: Tensor, device: torch.device, place: torch.device) -> None:
        super().__init__(weight_MN.shape, device)
        self.place = place
        parts = torch.split(weight_MN, self._rows_at_once)
        some = [[one.to(place) for one in self._encode(rows_XN.to(device, torch.float32))] for rows_XN in parts]
        self._code_MY, self._scale_MY = (torch.cat(part) for part in zip(*some, strict=True))

    @property
    def _rows_at_once(self) -> int:
        return max(1, CHUNK_ELEMENTS // self.shape[1])

    @abstractmethod
    def _encode(self, rows_XN: Tensor) -> tuple[Tensor, Tensor]:
        """Codes and scales of some rows, which are float32. Each row is encoded by itself."""

    @abstractmethod
    def _decode(self, code_XY: Tensor, scale_XY: Tensor) -> Tensor:
        """Undoes `_encode`, (X, N) float32."""

    def rows(self, index_X: Tensor) -> Tensor:
        return self._at(index_X.to(self.place))

    def base_rows(self) -> Iterator[tuple[slice, Tensor]]:
        for start in range(0, self.shape[0], self._rows_at_once):
            some = slice(start, start + self._rows_at_once)
            yield some, self._at(some)

    def _at(self, index: Tensor | slice) -> Tensor:
        return self._decode(self._code_MY[index].to(self.device), self._scale_MY[index].to(self.device))

    def packed(self, rows: slice) -> Tensor:
        """Codes and scales of some rows, (X, Y) bytes, for `unpacked`."""
        parts = self._code_MY[rows], self._scale_MY[rows]
        return torch.cat([part_XY.contiguous().view(torch.uint8) for part_XY in parts], dim=1)

    def unpacked(self, packed_XY: Tensor) -> Tensor:
        """The rows, also of another matrix of this width, (X, N) float32."""
        kinds = self._code_MY, self._scale_MY
        parts = packed_XY.split_with_sizes([kind.shape[1] * kind.itemsize for kind in kinds], dim=1)
        # Copied: the scales may begin at any byte.
        code_XY, scale_XY = (
            part.clone(memory_format=torch.contiguous_format).view(kind.dtype)
            for part, kind in zip(parts, kinds, strict=True)
        )
        return self._decode(code_XY, scale_XY)


class _Product(torch.autograd.Function):
    """The gradient of one of the two products is the other one."""

    @staticmethod
    def forward(ctx: Any, x_BX: Tensor, matrix: EpochsBeside, is_transposed: bool) -> Tensor:
        ctx.matrix, ctx.is_transposed = matrix, is_transposed
        return matrix.times(x_BX, is_transposed=is_transposed)

    @staticmethod
    def backward(ctx: Any, slope_BX: Tensor) -> tuple[Tensor, None, None]:
        return ctx.matrix.times(slope_BX, is_transposed=not ctx.is_transposed), None, None


class Int8Matrix(QuantisedMatrix):
    """Integers of 8 bits, and one scale for each row."""

    def _encode(self, rows_XN: Tensor) -> tuple[Tensor, Tensor]:
        scale_X1 = (rows_XN.abs().amax(dim=1, keepdim=True) / 127).clamp(min=torch.finfo(torch.float32).tiny)
        return torch.round(rows_XN / scale_X1).to(torch.int8), scale_X1

    def _decode(self, code_XY: Tensor, scale_XY: Tensor) -> Tensor:
        return code_XY * scale_XY


class Nf4Matrix(QuantisedMatrix):
    """Sixteen levels of a normal distribution, and one scale for 64 numbers of a row, which is filled up with zeros."""

    def _encode(self, rows_XN: Tensor) -> tuple[Tensor, Tensor]:
        from bitsandbytes.functional import quantize_4bit  # takes seconds, and is an extra

        padded_XN = functional.pad(rows_XN, (0, -self.shape[1] % NF4_BLOCK)).contiguous()
        packed, state = quantize_4bit(padded_XN, blocksize=NF4_BLOCK, quant_type="nf4")
        self._levels = state.code
        return packed.view(len(rows_XN), -1), state.absmax.view(len(rows_XN), -1)

    def _decode(self, code_XY: Tensor, scale_XY: Tensor) -> Tensor:
        from bitsandbytes.functional import QuantState, dequantize_4bit

        code_XY, scale_XY = code_XY.contiguous(), scale_XY.contiguous()
        state = QuantState(  # type: ignore[no-untyped-call]
            absmax=scale_XY.flatten(),
            shape=torch.Size((len(code_XY), code_XY.shape[1] * 2)),
            code=self._levels,
            blocksize=NF4_BLOCK,
            quant_type="nf4",
            dtype=torch.float32,
        )
        rows_XN: Tensor = dequantize_4bit(code_XY.view(-1, 1), state)
        return rows_XN[:, : self.shape[1]]
