"""The leading singular vectors of a base weight, equal bit for bit on every host: columns of an informed basis.

A library's SVD rounds differently from host to host. So this is orthogonal iteration on exact integers: weight and
vectors have so few bits that every sum of a product is exact in float64, in any order and on any processor. What is
between the products is done element by element, in single IEEE 754 operations.

Why half of the columns are drawn all the same: docs/explanation/learning.md.

Shapes: M rows and N columns of a weight, K columns that are iterated, H that are kept, X either side.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch import Tensor

from seedflood.training import randomness
from seedflood.training.seedflood.subspace import Subspace

Floats = numpy.ndarray[Any, numpy.dtype[numpy.float64]]

ROUNDS = 6
"""Rounds of two products each, after the product at the beginning: 13 products of a weight when a model is loaded."""

EXACT_BITS = 52
"""Integers up to 2^53 are exact in float64; one bit is spare, since rounding up may reach the next power of two."""

WEIGHT_BITS = 15
CHUNK_ELEMENTS = 1 << 18
"""How many elements of a weight are float64 at once: 2 MB, which stay in the cache, or rounding them would take most of
the time."""

PIVOT_LEAST = 2.0**-32
"""If less than this part of a column, squared, is new after the columns before it, it is no direction of its own."""


def fix_singular_columns(subspace: Subspace, count: int, weights: Sequence[Tensor]) -> None:
    """Makes the first columns of every matrix's bases singular vectors, in every epoch; not of a slot by rows,
    which learned less with them.

    weights: of the base model, float32, in the order of the slots.
    """
    with _one_thread():
        for index, (slot, weight) in enumerate(zip(subspace.slots, weights, strict=True)):
            if slot.is_matrix and count and not subspace.is_by_rows(slot):
                key = randomness.derive_key("singular vectors", slot.name)
                subspace.fixed[index] = singular_vectors(weight, count, key)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Parts of a weight are so small that several threads take longer, and much longer on a busy machine."""
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


def singular_vectors(weight_MN: Tensor, count: int, key: int) -> tuple[Tensor, Tensor]:
    """The left and right singular vectors of the largest singular values, (M, H) and (N, H) float32. Their length is
    that of drawn columns.

    H is `count`, or less if the weight has fewer directions. key: of the signs at the start.
    """
    matrix = _Integers(weight_MN)
    # Twice as many columns as are wanted, so that the wanted ones converge in few rounds.
    iterated = min(2 * count, *weight_MN.shape)
    start = randomness.rademacher(key, weight_MN.shape[1] * iterated).view(-1, iterated)
    right_NK = start.numpy().astype(numpy.float64)
    left_MK = _orthonormal(matrix.times(right_NK))
    for _ in range(ROUNDS):
        right_NK = _orthonormal(matrix.transposed_times(left_MK))
        left_MK = _orthonormal(matrix.times(right_NK))
    found = numpy.flatnonzero(left_MK.any(axis=0) & right_NK.any(axis=0))[:count]
    return _lengthened(left_MK[:, found]), _lengthened(right_NK[:, found])


def frobenius_norm(weight_MN: Tensor) -> float:
    """The root of the sum of squares, after the weight is rounded to 15 bits: the same float on every host."""
    return _Integers(weight_MN).norm()


class _Integers:
    """A weight as integers below 2^15. Their unit is left out where only directions matter."""

    def __init__(self, weight_MN: Tensor) -> None:
        self._weight_MN = weight_MN.cpu()
        least, most = map(float, self._weight_MN.aminmax()) if weight_MN.numel() else (0.0, 0.0)
        largest = max(-least, most)
        assert numpy.isfinite(largest), "weights are finite"
        self._scale = 2.0 ** (WEIGHT_BITS - int(numpy.frexp(largest)[1]))
        self._rows = max(1, CHUNK_ELEMENTS // weight_MN.shape[1])

    def norm(self) -> float:
        """The Frobenius norm, in the unit of the weight."""
        squares = sum(int(numpy.square(part_XN).sum()) for _, part_XN in self._parts())
        return math.sqrt(squares) / self._scale

    def times(self, right_NK: Floats) -> Floats:
        """W X, with X rounded so that the product is exact."""
        rounded_NK = _rounded(right_NK, EXACT_BITS - WEIGHT_BITS - len(right_NK).bit_length())
        return numpy.concatenate([_product(part_XN, rounded_NK) for _, part_XN in self._parts()])

    def transposed_times(self, left_MK: Floats) -> Floats:
        """W^T X, with X rounded so that the product is exact."""
        rounded_MK = _rounded(left_MK, EXACT_BITS - WEIGHT_BITS - len(left_MK).bit_length())
        total_NK = numpy.zeros((self._weight_MN.shape[1], left_MK.shape[1]))
        for rows, part_XN in self._parts():
            total_NK += _product(part_XN.T, rounded_MK[rows])
        return total_NK

    def _parts(self) -> Iterator[tuple[slice, Floats]]:
        """Some rows after the other."""
        for row in range(0, len(self._weight_MN), self._rows):
            rows = slice(row, row + self._rows)
            yield rows, self._weight_MN[rows].to(torch.float64, copy=True).mul_(self._scale).round_().numpy()


def _product(left_XY: Floats, right_YZ: Floats) -> Floats:
    """By PyTorch: NumPy has threads of its own, as many as there are cores, which spin while they wait for each other.

    Transposed, which is up to four times as fast for few columns.
    """
    product_ZX = torch.mm(torch.from_numpy(right_YZ).T, torch.from_numpy(left_XY).T)
    product_XZ: Floats = product_ZX.T.numpy()
    return product_XZ


def _orthonormal(columns_XK: Floats) -> Floats:
    """Orthonormal columns with the same span; zeros in place of columns that bring no direction of their own.

    By Cholesky's factor L of the Gram matrix: X = Y L^-T, column after column.
    """
    bits = (EXACT_BITS - len(columns_XK).bit_length()) // 2
    left_XK = _rounded(columns_XK, bits)
    gram_KK = _product(left_XK.T, left_XK)
    count = left_XK.shape[1]
    least_K = numpy.multiply(numpy.diagonal(gram_KK), PIVOT_LEAST)
    for k in range(count):
        pivot = gram_KK[k, k]
        if pivot <= least_K[k]:
            left_XK[:, k] = 0
            continue
        root = numpy.sqrt(pivot)
        left_XK[:, k] = numpy.divide(left_XK[:, k], root)
        factor = numpy.divide(gram_KK[k + 1 :, k], root)
        gram_KK[k + 1 :, k + 1 :] -= numpy.multiply.outer(factor, factor)
        left_XK[:, k + 1 :] -= numpy.multiply.outer(left_XK[:, k], factor)
    return left_XK


def _rounded(columns_XK: Floats, bits: int) -> Floats:
    """Every column as integers of at most 2^bits, each in units of its own power of two."""
    _, exponent_K = numpy.frexp(numpy.abs(columns_XK).max(axis=0))
    rounded_XK: Floats = numpy.rint(columns_XK * numpy.ldexp(1.0, bits - exponent_K))
    return rounded_XK


def _lengthened(columns_XH: Floats) -> Tensor:
    """Scales columns of length one to the mean length of drawn ones."""
    return torch.from_numpy(numpy.multiply(columns_XH, numpy.sqrt(float(len(columns_XH)))).astype(numpy.float32))
