"""The subspace of an epoch: what an update moves, and the integers that all updates add up to.

Every distinct parameter is a *slot*, with one basis per epoch. A set of updates is a sum of integers per slot, the
coefficients: exact, and the same in any order of arrival. Why coordinates have signs, and the embeddings of tokens a
slot by rows: docs/explanation/learning.md.

Shapes: S slots, M rows and N columns of a slot's parameter as it is stored, R rank, K updates, F all coefficients of an
epoch in one flat tensor (R * R per matrix, Y * R of a slot by rows, R per vector, slots by kind and layer). E numbers
stand for an epoch: these F, and L that it leaves to the next one (`control.Past`).
"""

import hashlib
import math
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor
from torch.nn import functional

from seedflood.protocol import packing
from seedflood.protocol.seedflood.payload import NO_ROW, NOTHING, Sparse
from seedflood.training import randomness
from seedflood.training.devices import exact_device

GROUP_RANKS = 12
"""The ranks of the slots that share a scale: six slots at rank 2, where scales of their own would be most of a payload.
Above rank 6 each slot has its own, for they are little there."""

ROWS_PER_RANK, TOLD_PER_RANK, FEW_PER_RANK = 128, 4, 16
"""The rows of A in a slot by rows, those that an update has at most, and how many tokens drawn columns do reach, for
each rank."""

ACCUMULATE_ELEMENTS_MAX = 1 << 18
"""How many updates x slots are drawn at once: some 20 MB, however many updates a catch-up brings."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One distinct parameter: its name (if tied, the least of its names) and its shape, (M, N) or (M,). has_tokens: has
    it the embeddings of tokens?"""

    name: str
    shape: tuple[int, ...]
    has_tokens: bool = False

    @property
    def is_matrix(self) -> bool:
        return len(self.shape) == 2

    @property
    def kind(self) -> str:
        """What it is in every layer: its name without numbers."""
        return re.sub("[0-9]", "", self.name)


@dataclass(frozen=True, slots=True)
class SlotBasis:
    """u_MR: basis of the rows, v_NR: of the columns (None for vectors), both float32. row_M: of a slot by rows, whose
    u_MR is empty: the row of A that each row of the parameter goes by, int64."""

    u_MR: Tensor
    v_NR: Tensor | None
    row_M: Tensor | None = None

    def left(self, a: Tensor, index: Tensor | slice = slice(None)) -> Tensor:
        """Rows of `U A`: (X, R) of a matrix, (X,) of a vector."""
        return self.u_MR[index] @ a if self.row_M is None else functional.embedding(self.row_M[index], a)

    def to(self, device: torch.device | str) -> "SlotBasis":
        u_MR, v_NR, row_M = (None if one is None else one.to(device) for one in (self.u_MR, self.v_NR, self.row_M))
        assert u_MR is not None
        return SlotBasis(u_MR, v_NR, row_M)


class Moves(NamedTuple):
    """What K updates move. place_KS: which of the F coefficients of each slot. sign_KS: which way, 1 or -1. Both
    int64."""

    place_KS: Tensor
    sign_KS: Tensor

    def to(self, device: torch.device | str) -> "Moves":
        return Moves(self.place_KS.to(device), self.sign_KS.to(device))


def in_order(slots: Iterable[Slot]) -> tuple[Slot, ...]:
    """By kind, and by layer within it: what shares a scale stands together (`compression`). Embeddings of tokens come
    last."""

    def place(slot: Slot) -> tuple[bool, str, list[int], str]:
        return slot.has_tokens, slot.kind, [*map(int, re.findall("[0-9]+", slot.name))], slot.name

    return tuple(sorted(slots, key=place))


class Subspace:
    """Bases, coordinates and coefficients of all slots: pure functions of (run seed, epoch, parameter names).

    Only fixed columns are not: they follow from the base model (`singular`).
    """

    def __init__(
        self, slots: Iterable[Slot], *, run_seed: int, rank: int, left: int = 3, by_rows: bool = False
    ) -> None:
        """left: L. by_rows: are embeddings of tokens a slot by rows?"""
        self.slots: tuple[Slot, ...] = in_order(slots)
        self.run_seed = run_seed
        self.rank = rank
        self.sparse = self._sparse() if by_rows else NOTHING
        sizes = [self.sparse.values if self.is_by_rows(slot) else rank ** len(slot.shape) for slot in self.slots]
        self.sizes: tuple[int, ...] = tuple(sizes)
        self.size = sum(sizes)
        self._left = left
        dense = [one for one in zip(self.slots, sizes, strict=True) if not self.is_by_rows(one[0])]
        kinds = [[*kind] for _, kind in groupby(dense, lambda one: one[0].kind)]
        length = max(1, GROUP_RANKS // rank)
        groups = [kind[at : at + length] for kind in kinds for at in range(0, len(kind), length)]
        self.groups: tuple[int, ...] = tuple(sum(size for _, size in group) for group in groups)
        """How many coefficients slots have together that share a scale: of one kind, in neighbouring layers."""
        self.offsets: tuple[int, ...] = tuple(sum(sizes[:index]) for index in range(len(sizes)))
        self._offset_S = torch.tensor(self.offsets, dtype=torch.int64)
        self._is_matrix_S = torch.tensor([slot.is_matrix for slot in self.slots])
        self._keys = lru_cache(maxsize=4)(self._derive_keys)
        self.fixed: dict[int, tuple[Tensor, Tensor]] = {}
        """The first columns of U and V of a matrix in every epoch, by the number of its slot; the others are drawn."""

    def _sparse(self) -> Sparse:
        words = self.slots[-1]  # `in_order`
        if not words.has_tokens or words.shape[0] <= FEW_PER_RANK * self.rank:
            return NOTHING
        rows = min(words.shape[0], ROWS_PER_RANK * self.rank, NO_ROW - 1)
        return Sparse(min(rows, TOLD_PER_RANK * self.rank), rows, self.rank)

    def is_by_rows(self, slot: Slot) -> bool:
        return slot.has_tokens and self.sparse != NOTHING

    def basis(self, epoch: int, index: int, device: torch.device | str = "cpu") -> SlotBasis:
        """The basis of slot number `index` in an epoch, on a device."""
        return self._draw(epoch, index, exact_device(device)).to(device)

    def _draw(self, epoch: int, index: int, device: torch.device) -> SlotBasis:
        slot = self.slots[index]
        if self.is_by_rows(slot):
            # Tokenizers number frequent tokens first, so few of these share a row.
            row_M = torch.arange(slot.shape[0], device=device) % self.sparse.rows
            v_NR = self._draw_side("v", epoch, slot, slot.shape[1], device)
            return SlotBasis(v_NR.new_zeros(0, self.rank), v_NR, row_M)
        sides = [self._draw_side(side, epoch, slot, rows, device) for side, rows in zip("uv", slot.shape, strict=False)]
        for side_XR, columns_XH in zip(sides, self.fixed.get(index, ()), strict=False):
            side_XR[:, : columns_XH.shape[1]] = columns_XH
        return SlotBasis(sides[0], sides[1] if slot.is_matrix else None)

    def coordinates(self, epoch: int, seed_K: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Which coordinate (i, j) each update moves in each slot, and its sign: (K, S) int64 each; j = 0 for vectors.

        seed_K: int64, the seeds of the updates. A seed is the counter of a stream whose key is the parameter's name.
        Without a sign of its own, a slot would have the slopes of all others added on average.
        """
        counter = seed_K.unsqueeze(1)
        zero = torch.zeros_like(counter)
        word_i, word_j, word_s, _ = randomness.philox((counter, zero, zero, zero), self._keys(epoch))
        i_KS = randomness.bounded(word_i, self.rank)
        j_KS = randomness.bounded(word_j, self.rank) * self._is_matrix_S
        return i_KS, j_KS, 1 - 2 * (word_s & 1)

    def moves(self, epoch: int, seed_K: Tensor) -> Moves:
        """What each update moves: one of the F coefficients per slot, up or down."""
        i_KS, j_KS, sign_KS = self.coordinates(epoch, seed_K)
        return Moves(self._offset_S + i_KS * torch.where(self._is_matrix_S, self.rank, 1) + j_KS, sign_KS)

    def lengths(self) -> numpy.ndarray[Any, numpy.dtype[numpy.float64]]:
        """(F,): how far an increment of 1 moves its parameter: sqrt(M N) of a matrix, the Frobenius norm of
        u v^T. A vector counts as a diagonal matrix, M. In a slot by rows it is 8 N / R, so a row moves as far at any
        rank (`rates`), and at rank 16 half as far as one of a matrix N x N: words are soon learned by heart where there
        are few texts."""
        lengths = [math.sqrt(slot.shape[0] * slot.shape[-1]) for slot in self.slots]
        if self.sparse != NOTHING:
            lengths[-1] = 8 * self.slots[-1].shape[1] / self.rank
        return numpy.repeat(lengths, self.sizes)

    @property
    def numbers(self) -> int:
        """E: how many integers stand for an epoch."""
        return self.size + self._left

    def zeros(self) -> Tensor:
        """An epoch without updates, (E,) int64."""
        return torch.zeros(self.numbers, dtype=torch.int64)

    def accumulate(
        self, sum_E: Tensor, epoch: int, seeds: Sequence[int] | Tensor, scalars: Sequence[int] | Tensor
    ) -> None:
        """Adds updates of one epoch to its coefficients, in place: `C[i, j] += s scalar` in every slot.

        Exact and order-free. scalars: units of 2^-20, |scalar| <= 2^32, so 2^31 updates fit int64.
        """
        seed_K = torch.as_tensor(seeds, dtype=torch.int64)
        scalar_K = torch.as_tensor(scalars, dtype=torch.int64)
        size = max(1, ACCUMULATE_ELEMENTS_MAX // max(1, len(self.slots)))
        for seed_part, scalar_part in zip(torch.split(seed_K, size), torch.split(scalar_K, size), strict=True):
            place_KS, sign_KS = self.moves(epoch, seed_part)
            sum_E.index_add_(0, place_KS.flatten(), (sign_KS * scalar_part.unsqueeze(1)).flatten())

    @staticmethod
    def increments(coefficients: Tensor, unit: float) -> Tensor:
        """A as float32: coefficients of any slots times what one of them is worth (`Aggregation.unit`)."""
        return (coefficients.to(torch.float64) * unit).to(torch.float32)

    def places_of(self, index: int) -> slice:
        """Where slot number `index` stands in a flat tensor."""
        start = self.offsets[index]
        return slice(start, start + self.sizes[index])

    def part(self, flat_F: Tensor, index: int) -> Tensor:
        """The view of slot number `index` in a flat tensor: (R, R) of a matrix, (Y, R) by rows, (R,) of a vector."""
        part = flat_F[self.places_of(index)]
        return part.view(-1, self.rank) if self.slots[index].is_matrix else part

    def pack(self, sum_E: Tensor) -> bytes:
        """Little-endian int64 in the order of the slots, packed."""
        return packing.pack(sum_E.numpy().astype("<i8", copy=False).tobytes())

    def unpack(self, packed: bytes) -> Tensor:
        """Undoes `pack`: (E,) int64. Raises ValueError for bytes that `pack` has not made, or of another size."""
        data = packing.unpack(packed, 8 * self.numbers)
        return torch.from_numpy(numpy.frombuffer(data, "<i8").astype(numpy.int64))

    def digest(self, sum_E: Tensor) -> bytes:
        """32 bytes over names, shapes and numbers of an epoch; equal for equal sets of updates."""
        hasher = hashlib.sha256(b"seedflood epoch 3\0" + struct.pack("<II", len(self.slots), self.rank))
        hasher.update(sum_E[self.size :].numpy().astype("<i8").tobytes())
        for index, slot in enumerate(self.slots):
            name = slot.name.encode()
            hasher.update(struct.pack(f"<II{len(slot.shape)}Q", len(name), len(slot.shape), *slot.shape) + name)
            hasher.update(self.part(sum_E, index).numpy().astype("<i8").tobytes())
        return hasher.digest()

    def _draw_side(self, side: str, epoch: int, slot: Slot, rows: int, device: torch.device) -> Tensor:
        key = randomness.derive_key(f"basis {side}", self.run_seed, epoch, slot.name)
        return randomness.normal(key, rows * self.rank, device=device).view(rows, self.rank)

    def _derive_keys(self, epoch: int) -> tuple[Tensor, Tensor]:
        """Low and high words of the slots' keys for coordinates, two (S,) int64."""
        keys = [randomness.derive_key("coordinates", self.run_seed, epoch, slot.name) for slot in self.slots]
        low = torch.tensor([key & randomness.MASK_32 for key in keys], dtype=torch.int64)
        return low, torch.tensor([key >> 32 for key in keys], dtype=torch.int64)
