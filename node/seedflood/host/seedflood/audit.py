"""Audits: does what an origin publishes follow from its rows? One audit says yes or no, and a liar is named by a count.

In strict windows every host measures a step with the same updates applied, so an auditor that has the rows measures a
round again. What then differs is rounding. One audit never names anybody: a host is named if an honest one would differ
so often with a probability below CHANCE_MAX. Rounding hides lies, so who lies in one step of twenty is found late by
gradients, and never by slopes.

More: docs/explanation/learning.md.
"""

import math
import struct
from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy

from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import LOSS_UNIT_BITS, UpdateValue, loss_of
from seedflood.protocol.seedflood.payload import Compression, Pairs
from seedflood.training.seedflood.compression import decode_coefficients
from seedflood.training.seedflood.optimiser import Floats, Integers

DISTANCE_MAX = 0.9
"""Of slopes: to the size of what was measured, or to what is usual if that is larger. Zeros have a distance of 1."""

COSINE_MIN = 0.75
"""Of the signs of a gradient with those that were measured: in half precision .87 to .99, of copies at most .66."""

SIZES_MAX = 3.0
"""So many times larger or smaller than measured a gradient may be in all: sizes are powers of two."""

SLOPES_SHARE, GRADIENT_SHARE = 0.25, 0.005
"""Of the audits of an honest host in half precision, at most so many differ (benchmarks/notes)."""

CHANCE_MAX = 1e-6

LOSS_PART = 1 / 4
LOSS_DISTANCE_MIN = 2.0 ** (LOSS_UNIT_BITS - 4)
"""A loss may be off by a part of what was measured, and by 1/16."""

AUDITS_MAX = 256
"""Per origin, the last ones count."""
USUAL_MAX = 64
ORIGINS_MAX = 4096

SHOWN_MAX = 8
"""So many steps of a finding are shown; its file has all."""


class Finding(NamedTuple):
    """Whose audits differ too often, to be signed by the finder. steps: the first ones of the rounds that differ."""

    origin: OriginId
    steps: tuple[int, ...]
    audits: int

    def describe(self) -> str:
        """For people."""
        shown = ", ".join(str(step) for step in self.steps[:SHOWN_MAX])
        more = ", ..." if len(self.steps) > SHOWN_MAX else ""
        return f"differs in {len(self.steps)} of {self.audits} audited steps ({shown}{more})"

    def signed_bytes(self, run_id: bytes, public_key: bytes) -> bytes:
        """What the signature covers. run_id, public_key of the finder: 32 bytes each."""
        packed = struct.pack(f">QII{len(self.steps)}Q", self.origin, self.audits, len(self.steps), *self.steps)
        return b"seedflood finding 2\0" + run_id + public_key + packed


class _Audit(NamedTuple):
    step: int
    differs: bool


class Audits:
    """What one auditor has seen of all others. count: audited rounds. named: the origins with a finding."""

    def __init__(self, compression: Compression) -> None:
        self.count = 0
        self.named: dict[OriginId, Finding] = {}
        self._compression = compression
        self._share = SLOPES_SHARE if isinstance(compression, Pairs) else GRADIENT_SHARE
        self._sizes: deque[float] = deque(maxlen=USUAL_MAX)
        """Of slopes as they were measured here: one can be small by chance, and rounding is not smaller then."""
        self._seen: dict[OriginId, deque[_Audit]] = {}

    def compare(
        self,
        origin: OriginId,
        step: int,
        published: Sequence[UpdateValue],
        again: Sequence[UpdateValue],
        *,
        is_loss_judged: bool = True,
    ) -> Finding | None:
        """Takes what an origin published of a round, and what we measured in its place. Returns a finding that is new.
        Later steps of a round are as far off as half precision is, so a round is one audit."""
        if origin not in self._seen and len(self._seen) >= ORIGINS_MAX:
            return None
        self.count += 1
        theirs, ours = _values(self._compression, published), _values(self._compression, again)
        differs = self._are_far(theirs, ours) if isinstance(self._compression, Pairs) else _are_unlike(theirs, ours)
        if is_loss_judged and _have_other_losses(published, again):
            differs = True
        seen = self._seen.setdefault(origin, deque(maxlen=AUDITS_MAX))
        seen.append(_Audit(step, differs))
        steps = tuple(audit.step for audit in seen if audit.differs)
        if origin in self.named or chance(len(steps), len(seen), self._share) > CHANCE_MAX:
            return None
        self.named[origin] = Finding(origin, steps, len(seen))
        return self.named[origin]

    def _are_far(self, theirs: Floats, ours: Floats) -> bool:
        """Of slopes."""
        self._sizes.append(_norm(ours))
        return _norm(theirs - ours) > DISTANCE_MAX * max(1.0, _norm(ours), median(self._sizes))

    @property
    def is_self_doubted(self) -> bool:
        """Are most of three or more audited origins named? Then our own replica is wrong, rather than theirs."""
        return len(self._seen) >= 3 and 2 * len(self.named) > len(self._seen)


def _are_unlike(theirs: Floats, ours: Floats) -> bool:
    """Of gradients."""
    size, measured = _norm(theirs), _norm(ours)
    if max(size, measured) > SIZES_MAX * min(size, measured):
        return True
    signs, expected = numpy.sign(theirs), numpy.sign(ours)
    return float(signs @ expected) < COSINE_MIN * _norm(signs) * _norm(expected)


def chance(differing: int, audits: int, share: float) -> float:
    """That so many audits or more differ if each does with this probability: a binomial tail."""
    ways = (math.comb(audits, k) * share**k * (1 - share) ** (audits - k) for k in range(differing, audits + 1))
    return math.fsum(ways)


def _values(compression: Compression, values: Sequence[UpdateValue]) -> Floats:
    """All slopes or coefficients of a round, admitted by the run."""
    return numpy.concatenate([_integers(compression, one) for one in values]).astype(numpy.float64)


def _integers(compression: Compression, value: UpdateValue) -> Integers:
    if isinstance(compression, Pairs):
        assert isinstance(value, tuple)
        return numpy.array([value[1]], numpy.int64)
    assert isinstance(value, bytes)
    return decode_coefficients(compression, value)


def _norm(values: Floats) -> float:
    return float(numpy.linalg.norm(values))


def _have_other_losses(published: Sequence[UpdateValue], again: Sequence[UpdateValue]) -> bool:
    for theirs, ours in zip(published, again, strict=True):
        measured = loss_of(ours)
        if abs(loss_of(theirs) - measured) > max(LOSS_DISTANCE_MIN, LOSS_PART * measured):
            return True
    return False
