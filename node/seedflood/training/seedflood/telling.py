"""From a gradient to what is told of it, and from what is told back to integers.

The form of a payload is the protocol's (`protocol.seedflood.payload`). Only the origin makes it, with any arithmetic.
Every host reads it, with integers alone, so that the same payload is the same integers everywhere.

Coefficients are told with a power-of-two scale per slot, for slots differ by three orders of magnitude, and a shift is
exact. At low ranks neighbouring layers share one: six matrices that make keys, say, at rank 2, where scales were a
quarter of what is sent of Gemma 3 270M (benchmarks/RESULTS.md). What 8 bits leave out is not lost: the origin keeps the
*residual* and adds it to the gradient of its next step (error feedback, arXiv 1901.09847). The residual belongs to the
origin's process and to a subspace. After `kill -9`, or in another epoch, it starts from zero. That costs a little
learning, but what was told stands, so replicas stay equal.

Shapes: F coefficients, K groups or pairs (subspace.py).
"""

import math
from collections.abc import Sequence
from operator import mul
from typing import Any

import numpy
import torch
from torch import Tensor

from seedflood.config import SeedfloodSettings
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.messages import LOSS_BYTES, LOSS_MAX, SCALAR_MAX, SCALAR_UNIT_BITS, Told, Update
from seedflood.protocol.seedflood.payload import VALUE_MAX, Coefficients, Pairs, Telling, encode_loss
from seedflood.protocol.seedflood.seeds import probe_seed
from seedflood.training.seedflood.estimate import Measurement, to_told_loss
from seedflood.training.seedflood.gradient import Gradient
from seedflood.training.seedflood.schedule import FACTOR_BITS, ONE
from seedflood.training.seedflood.subspace import Subspace

COEFFICIENT_UNIT_BITS = 22
"""Coefficients of a gradient are integers in units of 2^-22 (2.4e-7), at most 2^32 in size, so that 2^31 updates add up
in 64 bits.

On tiny-opt the largest coefficient of a slot is 0.02 to 34 at the beginning, and falls with the loss; 7 bits of a
hundredth of the least of these are ten units. What is zero but for rounding (biases of keys, 1e-8) stays zero. That
matters to Adam, which would go as far with noise as with a slope. The upper end is 1024, thirty times the largest that
was seen.
"""

Floats = numpy.ndarray[Any, numpy.dtype[numpy.float64]]
Integers = numpy.ndarray[Any, numpy.dtype[numpy.int64]]


def telling_of(settings: SeedfloodSettings, subspace: Subspace) -> Telling:
    """What a run tells of a step, as its settings and its subspace have it."""
    if settings.estimate != "gradient":
        return Pairs(limit=_limit(settings, SCALAR_UNIT_BITS))
    limit = _limit(settings, COEFFICIENT_UNIT_BITS)
    return Coefficients(subspace.groups, COEFFICIENT_UNIT_BITS, limit)


def _limit(settings: SeedfloodSettings, unit_bits: int) -> int:
    """The `clip` of a run in units: an integer, and the same on every host."""
    return SCALAR_MAX if settings.clip is None else min(SCALAR_MAX, math.floor(settings.clip * 2.0**unit_bits))


class Teller:
    """Makes payloads of gradients, and keeps for each origin in this process what was not told."""

    def __init__(self, telling: Coefficients) -> None:
        self._telling = telling
        self._residuals: dict[OriginId, tuple[int, Floats | None]] = {}

    def tell(self, origin: OriginId, epoch: int, slopes: Gradient) -> Measurement:
        """What an origin tells of its next step: zeros and the largest loss, if the gradient is not finite."""
        wanted_F = slopes.slope_F.to(torch.float64).numpy()
        is_finite = math.isfinite(slopes.loss) and bool(numpy.isfinite(wanted_F).all())
        payload, is_clipped = bytes(self._telling.size - LOSS_BYTES) + encode_loss(LOSS_MAX), False
        if is_finite:
            payload, is_clipped = self._tell_finite(origin, epoch, wanted_F, slopes.loss)
        return Measurement(payload, slopes.loss, is_finite, is_clipped)

    def _tell_finite(self, origin: OriginId, epoch: int, wanted_F: Floats, loss: float) -> tuple[bytes, bool]:
        """(the payload, whether something in it is cut off). What is cut off is dropped: kept, it would come back for
        ever."""
        before, residual_F = self._residuals.get(origin, (-1, None))
        if residual_F is not None and before == epoch:
            wanted_F = wanted_F + residual_F
        payload, is_clipped = quantise(self._telling, wanted_F, loss)
        told_F = decode_coefficients(self._telling, payload) * 2.0**-self._telling.unit_bits
        self._residuals[origin] = epoch, numpy.zeros_like(wanted_F) if is_clipped else wanted_F - told_F
        return payload, is_clipped


def quantise(telling: Coefficients, wanted_F: Floats, loss: float = 0.0) -> tuple[bytes, bool]:
    """(the nearest payload, whether it is cut off at the largest value that can be told). loss: finite."""
    units_F = wanted_F * 2.0**telling.unit_bits
    counts = numpy.asarray(telling.groups)
    starts = numpy.concatenate(([0], numpy.cumsum(counts)[:-1]))
    _, exponent_K = numpy.frexp(numpy.maximum.reduceat(numpy.abs(units_F), starts) / VALUE_MAX)
    is_clipped = bool((exponent_K > telling.exponent_max).any())
    exponent_K = numpy.clip(exponent_K, 0, telling.exponent_max)
    value_F = numpy.rint(numpy.ldexp(units_F, -numpy.repeat(exponent_K, counts)))
    value_F = numpy.clip(value_F, -VALUE_MAX, VALUE_MAX).astype(numpy.int8)
    return exponent_K.astype(numpy.uint8).tobytes() + value_F.tobytes() + encode_loss(to_told_loss(loss)), is_clipped


def decode_coefficients(telling: Coefficients, payload: bytes) -> Integers:
    """All F integers of an admitted payload: equal to `payload.decode_coefficients`, by numpy."""
    groups = len(telling.groups)
    exponent_K = numpy.frombuffer(payload, numpy.uint8, groups).astype(numpy.int64)
    value_F = numpy.frombuffer(payload[groups:-LOSS_BYTES], numpy.int8).astype(numpy.int64)
    return numpy.left_shift(value_F, numpy.repeat(exponent_K, telling.groups))


class Reader:
    """Adds up what updates tell, as integers: exact, and the same in any order."""

    def __init__(self, telling: Telling, subspace: Subspace) -> None:
        self._telling = telling
        self._subspace = subspace

    @property
    def size(self) -> int:
        """F."""
        return self._subspace.size

    def zeros(self) -> Tensor:
        """The sum of no updates, (E,) int64."""
        return self._subspace.zeros()

    def add(self, sum_E: Tensor, epoch: int, updates: Sequence[Update], factors: Sequence[int] | None = None) -> None:
        """Adds updates of one epoch to sum_E, in place. factors: of each update, in units of 2^-16 (default: 1)."""
        counting = list(zip(updates, factors or [ONE] * len(updates), strict=True))
        if isinstance(self._telling, Coefficients):
            for update, factor in counting:
                told_F = decode_coefficients(self._telling, _payload(update.told))
                sum_E[: len(told_F)] += torch.from_numpy(scaled(told_F, factor))
            return
        rows = [(self._seed(update), _scalar(update.told), factor) for update, factor in counting]
        seed_K, scalar_K, factor_K = numpy.array(rows, dtype=numpy.int64).reshape(-1, 3).T
        self._subspace.accumulate(
            sum_E, epoch, torch.from_numpy(seed_K.copy()), torch.from_numpy(scaled(scalar_K, factor_K))
        )

    def promise(self, update: Update, step_F: Integers) -> float:
        """What a step takes from the loss of an origin, to first order, by the gradient that it told: computed exactly,
        and rounded once. step_F: in units of an increment, so is the result. 0 if no gradient is told."""
        if isinstance(self._telling, Pairs):
            return 0.0
        told_F = decode_coefficients(self._telling, _payload(update.told))
        promised: int = -sum(map(mul, told_F.tolist(), step_F.tolist()))
        return promised * 2.0**-self._telling.unit_bits

    def _seed(self, update: Update) -> int:
        return probe_seed(self._subspace.run_seed, update.origin, update.step)


def scaled(told: Integers, factor: int | Integers) -> Integers:
    """round(told factor 2^-16), halves up, of each integer by itself: before anything is added up."""
    return (told * factor + (ONE >> 1)) >> FACTOR_BITS


def _scalar(told: Told) -> int:
    assert isinstance(told, tuple), "this run tells pairs"
    return told[1]


def _payload(told: Told) -> bytes:
    assert isinstance(told, bytes), "this run tells payloads"
    return told
