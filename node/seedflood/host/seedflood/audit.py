"""Audits: does an origin tell what follows from its rows? Judged by sequences of residuals, never by a single one.

An update is a function of run seed, origin, step, rows and applied updates. In strict windows every host measures a
step with the same updates applied. So an auditor that has the rows measures a step of another origin again, when it
measures that step itself, and needs neither old weights nor a replay. What then differs is rounding: little between
hosts with float32 weights, half of a slope and more if the other computes in half precision. Of coefficients it turns
the signs of those that are nearly zero, and the size of a group that is halfway between two powers of two.

A *residual* is the difference to what was told, in units of what is usual here (`Audits.note`). A host could claim any
precision, so nobody is asked. Of slopes, an origin's own residuals show whether it is exact. If it is not, its error
counts as what honest hosts in half precision reach (benchmarks/RESULTS.md). So whoever hides below that does as much
harm as an honest host in half precision, and no more. Of coefficients it always counts as that: what rounding may
explain hides half precision for many steps, until an honest host would look like one that was exact and begins to lie.

In a round of several steps the origin measures the later ones as if the earlier ones were applied as it has told them;
the auditor applies what it measured itself, and is as far off as half precision is.

Each residual counts for or against four stories, as a logarithm of likelihoods:

    invented   what is told has nothing to do with what was measured, mostly: noise, copies, no work
    sometimes  the same, in one update of twenty: flipped signs
    biased     what is told is off by a constant (slopes alone)
    losses     what is told of the loss has nothing to do with what was measured

Losses decide whether a run goes back (`control`), so they are judged, too. What rounding may explain is a sixteenth of
the loss: lies below that are not found.

Every story is a sum that never falls below zero (CUSUM). One residual adds EVIDENCE_MAX at most, and a sum must reach
THRESHOLD, so one update names nobody. If a story is false, the mean time until its sum gets there is e^THRESHOLD audits
or longer, which is 3 million.
"""

import math
import struct
from collections import deque
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

import numpy

from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.messages import LOSS_UNIT_BITS, Told, loss_of
from seedflood.protocol.seedflood.payload import Coefficients, Pairs, Telling
from seedflood.training.seedflood.optimiser import Integers
from seedflood.training.seedflood.telling import decode_coefficients

THRESHOLD = 15.0
EVIDENCE_MAX, INEXACT_EVIDENCE_MAX = 8.0, 4.0
"""Two gross residuals name an origin that is exact otherwise, if fewer than twenty good ones lie between them. Of
others it takes four: half precision errs grossly once in some hundreds of updates."""

MOSTLY, SOMETIMES = 0.9, 0.05
"""The share of updates that are invented, in the first two stories."""

BIAS = 2.0
"""A bias is looked for that is so many errors large."""
BIAS_REACH = 3.0
"""A residual counts as so many errors at most, for a bias: else a rare flip would look like one."""

STORIES = {
    "invented": "tells what does not follow from its rows",
    "sometimes": "sometimes tells what does not follow from its rows",
    "biased": "tells slopes that are all too large, or all too small",
    "losses": "tells losses that do not follow from its rows",
}

TAIL = 12
"""Degrees of freedom of Student's t: honest residuals have somewhat heavier tails than a normal distribution."""

NORMAL = 1.4826
"""From a median of absolute values to a standard deviation."""
CAUTION = 1.25
FLOOR = 0.01
SLOPE_CEILING, PAYLOAD_CEILING = 0.7, 0.25
"""Errors, in units of what is usual. Measured between float32 and bfloat16: 0.63 of slopes in a run's first 60 steps,
0.3 to 1.8 by run, and large ones come in a row; of gradients 0.11 to 0.2 in the median, and 0.6 once in a hundred."""

LOSS_PART = 1 / 16
LOSS_ERROR_MIN = 2.0 ** (LOSS_UNIT_BITS - 6)
"""The error of a loss that counts as honest: a part of what was measured, and at least 1/64."""
LOSS_REACH = 8.0
"""A made-up loss is off by so many errors."""

CALIBRATING = 8
"""With fewer residuals of slopes an origin's error counts as the ceiling."""
RESIDUALS_MAX = 256
"""Per origin, the last ones. An auditor of one update in thirty needs 7,000 steps for them."""
USUAL_MAX = 64
ORIGINS_MAX = 4096


class Residual(NamedTuple):
    """One audited update. error: told minus measured; size: what was measured; both in units of what is usual. Of a
    payload the error is a distance, never negative, and the unit is at least the size of what was measured.
    loss_error: of the told loss, in units of what rounding explains.
    """

    step: int
    error: float
    size: float
    is_distance: bool
    loss_error: float = 0.0


class Verdict(NamedTuple):
    """A sequence that no honest host would give. story: see above. steps: those that count against it. statistic: its
    sum, beyond THRESHOLD."""

    story: str
    steps: tuple[int, ...]
    statistic: float

    def describe(self) -> str:
        """For people."""
        count, first, last = len(self.steps), self.steps[0], self.steps[-1]
        return f"{STORIES[self.story]} ({count} audited steps of {first}..{last}, {self.statistic:.1f})"


class Finding(NamedTuple):
    """What was found of whom, to be signed by the finder."""

    origin: OriginId
    verdict: Verdict
    audits: int

    def signed_bytes(self, run_id: bytes, public_key: bytes) -> bytes:
        """What the signature covers. run_id, public_key of the finder: 32 bytes each."""
        verdict, story = self.verdict, self.verdict.story.encode()
        packed = struct.pack(
            f">QIdII{len(story)}s", self.origin, self.audits, verdict.statistic, len(verdict.steps), len(story), story
        )
        steps = struct.pack(f">{len(verdict.steps)}Q", *verdict.steps)
        return b"seedflood finding 1\0" + run_id + public_key + packed + steps


class Audits:
    """What one auditor has seen of all others. count: audited updates. named: the origins with a finding."""

    def __init__(self, telling: Telling) -> None:
        self.count = 0
        self.named: dict[OriginId, Verdict] = {}
        self._telling = telling
        self._sizes: deque[float] = deque(maxlen=USUAL_MAX)
        """Of slopes, or of whole payloads, as they were measured here."""
        self._residuals: dict[OriginId, deque[Residual]] = {}

    def note(self, told: Iterable[Told]) -> None:
        """We measured this, on our own rows or on those of others. Of slopes it tells what is usual."""
        self._sizes.extend(abs(one[1]) for one in told if isinstance(one, tuple))

    def compare(
        self, origin: OriginId, step: int, told: Told, again: Told, *, is_loss_judged: bool = True
    ) -> Verdict | None:
        """Takes what an origin told of a step, and what we measured in its place. Returns a verdict that is new."""
        if origin not in self._residuals and len(self._residuals) >= ORIGINS_MAX:
            return None
        self.count += 1
        if isinstance(self._telling, Coefficients):
            assert isinstance(again, bytes)
            self._sizes.append(_norm(decode_coefficients(self._telling, again)))
        seen = self._residuals.setdefault(origin, deque(maxlen=RESIDUALS_MAX))
        one = residual(self._telling, step, told, again, self._usual())
        seen.append(one if is_loss_judged else one._replace(loss_error=0.0))
        verdict = judge(seen)
        if verdict is None or origin in self.named:
            return None
        self.named[origin] = verdict
        return verdict

    def seen(self, origin: OriginId) -> tuple[Residual, ...]:
        """The last residuals of an origin."""
        return tuple(self._residuals.get(origin, ()))

    @property
    def is_self_doubted(self) -> bool:
        """Are most of three or more audited origins named? Then our own replica is wrong, rather than theirs."""
        return len(self._residuals) >= 3 and 2 * len(self.named) > len(self._residuals)

    def _usual(self) -> float:
        middle = median(self._sizes) if self._sizes else 0.0
        return NORMAL * middle if isinstance(self._telling, Pairs) else middle


def residual(telling: Telling, step: int, told: Told, again: Told, usual: float) -> Residual:
    """told, again: both admitted by the run. usual: size of a slope, or of a payload, in its units."""
    loss_error = _loss_error(loss_of(told), loss_of(again))
    if isinstance(telling, Pairs):
        assert isinstance(told, tuple)
        assert isinstance(again, tuple)
        unit = max(usual, 1.0)
        return Residual(step, (told[1] - again[1]) / unit, again[1] / unit, False, loss_error)
    assert isinstance(told, bytes)
    assert isinstance(again, bytes)
    theirs, ours = decode_coefficients(telling, told), decode_coefficients(telling, again)
    unit = max(1.0, usual, _norm(ours))  # half precision errs by as much if a gradient is small
    return Residual(step, _norm(theirs - ours) / unit, 1.0, True, loss_error)


def _loss_error(told: int, again: int) -> float:
    """Both in units of 2^-11."""
    return (told - again) / max(LOSS_ERROR_MIN, LOSS_PART * again)


def _norm(integers: Integers) -> float:
    return float(numpy.linalg.norm(integers.astype(numpy.float64)))


def judge(residuals: Sequence[Residual]) -> Verdict | None:
    """The strongest story that the residuals of one origin tell, if one is strong enough.

    If something is invented, what is told says nothing of what was measured, which is of its usual size: `ratios` tell
    how much likelier what was measured is then.
    """
    error = _error_of(residuals)
    most = EVIDENCE_MAX if error <= FLOOR else INEXACT_EVIDENCE_MAX
    ratios = [_density(one.size, 1.0) / _honest(one, error) for one in residuals]
    slopes = [one.error / error for one in residuals if not one.is_distance]
    stories = {
        "invented": [[math.log1p(MOSTLY * (ratio - 1)) for ratio in ratios]],
        "sometimes": [[math.log1p(SOMETIMES * (ratio - 1)) for ratio in ratios]],
        "biased": [[_biased(sign * slope) for slope in slopes] for sign in (1, -1)],
        "losses": [[_made_up(one.loss_error) for one in residuals]],
    }
    found = [_follow(story, residuals, sum_, most) for story, sums in stories.items() for sum_ in sums]
    strongest = max(found, key=lambda verdict: verdict.statistic)
    return strongest if strongest.statistic >= THRESHOLD else None


def _error_of(residuals: Sequence[Residual]) -> float:
    """The error of an origin: FLOOR if its own residuals show that it is exact, else the ceiling, because errors of
    half precision have heavy tails. A bias does not count as an error."""
    if residuals[0].is_distance:
        return PAYLOAD_CEILING
    if len(residuals) < CALIBRATING:
        return SLOPE_CEILING
    middle = median(one.error for one in residuals)
    spread = CAUTION * NORMAL * median(abs(one.error - middle) for one in residuals)
    return FLOOR if spread <= FLOOR else SLOPE_CEILING


def _follow(story: str, residuals: Sequence[Residual], evidence: Iterable[float], most: float) -> Verdict:
    """The largest value that the sum of a story ever has, and the steps that led to it. evidence: for it, by residual,
    of which `most` counts; none if it cannot be told of these."""
    best, total = Verdict(story, (), 0.0), 0.0
    against: list[int] = []
    for one, counts in zip(residuals, evidence, strict=False):
        total += min(counts, most)
        if total <= 0:
            total = 0.0
            against.clear()
        elif counts > 0:
            against.append(one.step)
        if total > best.statistic:
            best = Verdict(story, tuple(against), total)
    return best


def _biased(errors: float) -> float:
    """How much likelier it is to be off by so many errors if what is told is too large by BIAS errors."""
    return BIAS * (max(-BIAS_REACH, min(BIAS_REACH, errors)) - BIAS / 2)


def _made_up(errors: float) -> float:
    """How much likelier it is that a loss is off by so many errors if it is made up."""
    ratio = _density(errors, LOSS_REACH) / _density(errors, 1.0)
    return math.log1p(MOSTLY * (ratio - 1))


def _honest(one: Residual, error: float) -> float:
    """How likely what was measured is, given what an honest host of this error tells. The larger its error, the less of
    a slope that it tells is to be expected again (the mean of a normal distribution, given one noisy value)."""
    if one.is_distance:
        return _density(one.error, error)
    kept = 1 / (1 + error**2)
    return _density(one.size - kept * (one.size + one.error), error * math.sqrt(kept))


def _density(value: float, scale: float) -> float:
    """Student's t, but for a factor that is the same for all."""
    return float((1 + (value / scale) ** 2 / TAIL) ** (-(TAIL + 1) / 2) / scale)
