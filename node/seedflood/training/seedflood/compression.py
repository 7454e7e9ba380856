"""Sign compression: from a gradient to the payload of an update, and from payloads back to integers.

Only the origin makes a payload, with any arithmetic. Every host reads it, with integers alone, so that the same payload
is the same integers everywhere. It has the sign of each coefficient, and the mean size of each group of slots as a
power of two; what is left out of one step is not sent with the next one. Why signs alone: docs/explanation/learning.md.

Shapes: F coefficients, K groups or pairs (subspace.py), Y rows and X columns of a sparse slot, T rows of it that are
sent.
"""

import math
from collections.abc import Sequence
from operator import mul
from typing import Any, TypeVar

import numpy
import torch
from torch import Tensor

from seedflood.config import SeedfloodSettings
from seedflood.protocol.seedflood.bundles import LOSS_BYTES, LOSS_MAX, SCALAR_MAX, SCALAR_UNIT_BITS, Update, UpdateValue
from seedflood.protocol.seedflood.payload import (
    COEFFICIENT_MAX,
    NO_ROW,
    Coefficients,
    Compression,
    Pairs,
    Sparse,
    encode_loss,
)
from seedflood.protocol.seedflood.seeds import probe_seed
from seedflood.training.seedflood.estimate import Measurement, to_loss_units
from seedflood.training.seedflood.gradient import Gradient
from seedflood.training.seedflood.optimiser import Floats, Integers
from seedflood.training.seedflood.reputation import HOSTS_MIN, Reputations, Signs
from seedflood.training.seedflood.schedule import FACTOR_BITS, ONE
from seedflood.training.seedflood.subspace import Subspace

COEFFICIENT_UNIT_BITS = 22
"""Coefficients of a gradient are integers in units of 2^-22 (2.4e-7), at most 2^32 in size, so that 2^31 updates add up
in 64 bits.

On tiny-opt the largest coefficient of a slot is 0.02 to 34 at the beginning, and falls with the loss. What is zero but
for rounding (biases of keys, 1e-8) stays zero. That matters to Adam, which would go as far with noise as with a slope.
"""

Whole = TypeVar("Whole", int, Integers)


def compression_of(settings: SeedfloodSettings, subspace: Subspace) -> Compression:
    """The encoding of a run, as its settings and its subspace have it."""
    if settings.estimate != "gradient":
        return Pairs(limit=_limit(settings, SCALAR_UNIT_BITS, SCALAR_MAX))
    limit = _limit(settings, COEFFICIENT_UNIT_BITS, COEFFICIENT_MAX)
    return Coefficients(subspace.groups, COEFFICIENT_UNIT_BITS, limit, subspace.sparse)


def _limit(settings: SeedfloodSettings, unit_bits: int, most: int) -> int:
    """The `clip` of a run in units, at most `most`: an integer, and the same on every host."""
    if isinstance(settings.clip, str):
        return most
    return min(most, math.floor(settings.clip * 2.0**unit_bits))


def compress(compression: Coefficients, slopes: Gradient) -> Measurement:
    """What an origin publishes of a step: zeros and the largest loss, if the gradient is not finite."""
    wanted_F = slopes.slope_F.to(torch.float64).numpy()
    if math.isfinite(slopes.loss) and bool(numpy.isfinite(wanted_F).all()):
        payload, is_clipped = quantise(compression, wanted_F, slopes.loss)
        return Measurement(payload, slopes.loss, True, is_clipped, slopes.figures, slopes.words)
    nothing, _ = quantise(compression, numpy.zeros_like(wanted_F))
    value = nothing[:-LOSS_BYTES] + encode_loss(LOSS_MAX)
    return Measurement(value, slopes.loss, False, False, slopes.figures, slopes.words)


def quantise(compression: Coefficients, wanted_F: Floats, loss: float = 0.0) -> tuple[bytes, bool]:
    """(signs, with the mean size of each group to the nearest power of two; whether one is cut off at the largest that
    can be sent). loss: finite."""
    counts, sparse = numpy.asarray(compression.groups), compression.sparse
    starts = numpy.concatenate(([0], numpy.cumsum(counts)[:-1]))
    dense_F, sparse_F = numpy.split(wanted_F, [counts.sum()])
    mean_K, rows = numpy.add.reduceat(numpy.abs(dense_F), starts) / counts, b""
    if sparse.kept:
        wanted_YX = sparse_F.reshape(sparse.rows, sparse.columns)
        row_T = _largest(wanted_YX, sparse.kept)
        mean_K = numpy.append(mean_K, numpy.abs(wanted_YX[row_T]).mean() if len(row_T) else 0.0)
        rows = _pack_rows(sparse, row_T, wanted_YX[row_T])
    _, exponent_K = numpy.frexp(mean_K * math.sqrt(2) * 2.0**compression.unit_bits)
    is_clipped = bool((exponent_K > compression.exponent_max).any())
    exponent_K = numpy.clip(exponent_K, 0, compression.exponent_max).astype(numpy.uint8)
    bits = numpy.packbits(dense_F > 0, bitorder="little")
    return exponent_K.tobytes() + bits.tobytes() + rows + encode_loss(to_loss_units(loss)), is_clipped


def _largest(wanted_YX: Floats, most: int) -> Integers:
    """The numbers of the rows with the largest coefficients, in ascending order; none that is zero."""
    size_Y = numpy.abs(wanted_YX).sum(axis=1)
    count = min(most, int(numpy.count_nonzero(size_Y)))
    return numpy.sort(numpy.argsort(-size_Y, kind="stable")[:count])


def _pack_rows(sparse: Sparse, row_T: Integers, wanted_TX: Floats) -> bytes:
    """Rows of a sparse slot as they stand in a payload."""
    entry_T = numpy.zeros(sparse.kept, _entry(sparse))
    entry_T["row"] = NO_ROW
    entry_T["row"][: len(row_T)] = row_T
    entry_T["bits"][: len(row_T)] = numpy.packbits(wanted_TX > 0, axis=1, bitorder="little")
    return entry_T.tobytes()


def _entry(sparse: Sparse) -> numpy.dtype[Any]:
    """The number and the bits of a row."""
    return numpy.dtype([("row", "<u2"), ("bits", numpy.uint8, (sparse.row_bytes - 2,))])


def decode_exponents(compression: Coefficients, payload: bytes) -> Integers:
    """(K,): the exponents of an admitted payload."""
    return numpy.frombuffer(payload, numpy.uint8, compression.exponents).astype(numpy.int64)


def decode_signs(compression: Coefficients, payload: bytes) -> Signs:
    """(F,): 1 or -1 of all coefficients, whatever their size; 0 in rows that were not sent."""
    sign_F = numpy.zeros(compression.values, numpy.int8)
    dense_F, rows_F = numpy.split(sign_F, [compression.dense])  # views
    dense_F[:] = _signs(
        numpy.frombuffer(payload[compression.exponents : compression.rows_at], numpy.uint8), compression.dense
    )
    sparse = compression.sparse
    if sparse.kept:
        entry_T = numpy.frombuffer(payload, _entry(sparse), sparse.kept, compression.rows_at)
        entry_T = entry_T[entry_T["row"] != NO_ROW]
        rows_F.reshape(sparse.rows, -1)[entry_T["row"]] = _signs(entry_T["bits"], sparse.columns)
    return sign_F


def sizes_of(compression: Coefficients, exponent_K: Integers) -> Integers:
    """(F,): the size of each coefficient."""
    size_K = numpy.left_shift(1, exponent_K) >> 1
    counts = [*compression.groups, compression.sparse.values][: len(size_K)]
    return numpy.repeat(size_K, counts)


def decode_coefficients(compression: Coefficients, payload: bytes) -> Integers:
    """All F integers of an admitted payload."""
    return decode_signs(compression, payload) * sizes_of(compression, decode_exponents(compression, payload))


def _signs(bits: numpy.ndarray[Any, numpy.dtype[numpy.uint8]], count: int) -> Signs:
    """1 or -1, `count` in the last dimension."""
    return numpy.unpackbits(bits, axis=-1, count=count, bitorder="little").astype(numpy.int8) * 2 - 1


class UpdateDecoder:
    """Adds up updates, as integers: exact, and the same in any order."""

    def __init__(self, compression: Compression, subspace: Subspace, *, outvote: bool = True) -> None:
        """outvote: are sizes bounded by those of the others (`clip`)?"""
        self.subspace = subspace
        self._compression = compression
        self._outvote = outvote

    def add(self, sum_E: Tensor, epoch: int, updates: Sequence[Update], factors: Sequence[int] | None = None) -> None:
        """Adds updates of one epoch to sum_E, in place. factors: of each update, in units of 2^-16 (default: 1)."""
        counting = list(zip(updates, factors or [ONE] * len(updates), strict=True))
        if isinstance(self._compression, Coefficients):
            for update, factor in counting:
                value_F = decode_coefficients(self._compression, _payload(update.value))
                sum_E[: len(value_F)] += torch.from_numpy(scaled(value_F, factor))
            return
        seeds: list[int] = []
        scalars: list[int] = []
        for (origin, step, value), factor in counting:
            assert isinstance(value, tuple), "this run sends pairs"
            seeds.append(probe_seed(self.subspace.run_seed, origin, step))
            scalars.append(scaled(value[1], factor))
        self.subspace.accumulate(sum_E, epoch, seeds, scalars)

    def add_step(
        self, sum_E: Tensor, epoch: int, updates: Sequence[Update], reputations: Reputations, factor: int = ONE
    ) -> Reputations:
        """Adds all updates of one step to sum_E, in place, as `reputations` has them count. Returns those for the next
        step. factor: of the step, in units of 2^-16."""
        compression = self._compression
        if isinstance(compression, Pairs) or not self._outvote or len(updates) < HOSTS_MIN:
            self.add(sum_E, epoch, updates, [factor] * len(updates))
            return reputations
        origins = [update.origin for update in updates]
        signs = {update.origin: decode_signs(compression, _payload(update.value)) for update in updates}
        exponents = {update.origin: decode_exponents(compression, _payload(update.value)) for update in updates}
        counting = reputations.counting(origins)
        bounded_IK = reputations.bounds(counting, numpy.stack([exponents[origin] for origin in counting]))
        for origin, exponent_K in zip(counting, bounded_IK, strict=True):
            value_F = scaled(signs[origin] * sizes_of(compression, exponent_K), factor)
            sum_E[: len(value_F)] += torch.from_numpy(value_F)
        # Bits of a group whose size is zero mean nothing.
        sent = [signs[origin] * (sizes_of(compression, exponents[origin]) > 0) for origin in origins]
        return reputations.after(origins, numpy.stack([one_F[: compression.dense] for one_F in sent]))

    def promise(self, update: Update, step_F: Integers) -> float:
        """What a step takes from the loss of an origin, to first order, by the gradient that it sent: computed
        exactly, and rounded once. step_F: in units of an increment, so is the result. 0 if the run sends no
        gradients."""
        if isinstance(self._compression, Pairs):
            return 0.0
        value_F = decode_coefficients(self._compression, _payload(update.value))
        promised: int = -sum(map(mul, value_F.tolist(), step_F.tolist()))
        return promised * 2.0**-self._compression.unit_bits


def scaled(value: Whole, factor: int) -> Whole:
    """round(value factor 2^-16), halves up, of each integer by itself: before anything is added up."""
    return (value * factor + (ONE >> 1)) >> FACTOR_BITS


def _payload(value: UpdateValue) -> bytes:
    assert isinstance(value, bytes), "this run sends payloads"
    return value
