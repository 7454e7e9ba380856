"""Control: a run that unlearns goes back to where it was best in its epoch, and halves its learning rate.

Every origin publishes its loss with its gradient. So every host decides the same, bit for bit: a decision is a pure
function of what all origins published of the steps of an epoch, in the order of the steps, in integers, fractions, and
roots that are rounded correctly. Anyone can make up losses, so no origin decides alone.

What is compared with what, and why: docs/explanation/learning.md.

Shapes: F coefficients, L numbers that an epoch leaves to the next one (subspace.py).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain
from statistics import median, median_low
from typing import NamedTuple

from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import LOSS_UNIT_BITS
from seedflood.training.seedflood.optimiser import Integers

BLOCKS = 16
"""How many an epoch has, or a run that is shorter. The first is one step, measured before anything was learned."""

BLOCK_MIN = 4
"""The fewest steps of a block but the first. Shorter epochs have fewer blocks."""

BLOCK_PART = 4
"""A block has at most this part of the steps before it: a rate that is far too high spoils a model within a few."""

PATIENCE = 3
"""So many blocks in a row must be worse."""

SIGNIFICANT = 2
SIGNIFICANT_ALONE = 4
"""Where one block, or one epoch, is judged alone: it is compared with the best of many, which was lucky, too."""

RISE_MIN = 1 << LOSS_UNIT_BITS - 6
"""1/64."""

PROMISE_MAX = 2 / 3
"""The first step may change the loss by at most this part of it, to first order. If it would change it more, the rate
is halved first."""

REWARD_PROMISE_MAX = 0.2
"""The same where the loss is what is missing of a reward. A block has few texts there, so by chance blocks differ much,
and a falling reward is noticed late. At ten times the default rate of that time this limit halved it three times, and
reward rose; with 2/3 it was halved once, and reward fell from 0.342 to 0.156 in 20 steps. Default rates promise 0.12 to
0.14 (benchmarks/notes, 25 November)."""

RISE_MAX = 2.0 * SIGNIFICANT_ALONE
"""The vote of one origin, in standard errors, at most: anyone can make up losses."""

HALVINGS_MAX = 12

VOTERS_MIN = 3
"""So many origins decide at least, or all clients of a run that has fewer."""


class Lost(NamedTuple):
    """What an origin lost in a block: how many steps it published, the sum of their losses, and of their squares."""

    steps: int = 0
    loss: int = 0
    square: int = 0

    def plus(self, loss: int) -> "Lost":
        return Lost(self.steps + 1, self.loss + loss, self.square + loss * loss)

    @property
    def mean(self) -> Fraction:
        return Fraction(self.loss, self.steps)

    @property
    def spread(self) -> Fraction:
        """The variance of one loss; 0 if there is but one."""
        return (Fraction(self.square) - self.steps * self.mean**2) / max(1, self.steps - 1)

    def rise_from(self, before: "Lost") -> float:
        """How many standard errors more is lost than before, within bounds; a rise that does not
        matter is none."""
        rise = self.mean - before.mean
        if 0 <= rise <= RISE_MIN:
            return 0.0
        variance = max(self.spread, before.spread) * (Fraction(1, self.steps) + Fraction(1, before.steps))
        if not variance:
            return math.copysign(RISE_MAX, rise)
        return max(-RISE_MAX, min(RISE_MAX, float(rise) / math.sqrt(variance)))


Block = Mapping[OriginId, Lost]


@dataclass(frozen=True, slots=True)
class Control:
    """After some steps of an epoch. best_F: the increments to go back to. halvings: of the rate, since the run began.
    begin_F: the increments with which the block began that goes on. taken: how many steps were before this block.
    worse: how many blocks in a row were worse than the best. whole: all steps. voters: how many origins decide at
    least. promised: how often each origin wants the rate halved before its first step.

    Do not write to its arrays.
    """

    best_F: Integers
    halvings: int = 0
    best: Block = field(default_factory=dict)
    block: Block = field(default_factory=dict)
    steps: int = 0
    begin_F: Integers | None = None
    taken: int = 0
    worse: int = 0
    whole: Block = field(default_factory=dict)
    voters: int = 1
    promised: Mapping[OriginId, int] = field(default_factory=dict)

    def observe(self, losses: Mapping[OriginId, int], increment_F: Integers) -> "Control":
        """The next step: what each origin lost, measured with these increments."""
        block, whole = (
            {**known, **{origin: known.get(origin, Lost()).plus(loss) for origin, loss in losses.items()}}
            for known in (self.block, self.whole)
        )
        begin_F = self.begin_F if self.steps else increment_F
        return replace(self, block=block, whole=whole, steps=self.steps + 1, begin_F=begin_F)

    def promise(self, halvings: Mapping[OriginId, int]) -> "Control":
        """A step of the first turn: how often the rate has to be halved for each origin (`halvings_for`). Only the
        first step of each counts."""
        return replace(self, promised={**halvings, **self.promised})

    def halvings_before(self, times: float) -> int:
        """At the end of the first turn: how often the rate is halved before it, by what most origins want. times: the
        default rate; it is never halved below that."""
        if len(self.promised) < self.voters:
            return 0
        wanted = min(median_low(self.promised.values()), HALVINGS_MAX - self.halvings)
        halvings = 0
        while halvings < wanted and times > 2.0 ** (self.halvings + halvings):
            halvings += 1
        return halvings

    def back(self, halvings: int) -> "Control":
        """Everything begins anew from the best increments, with a rate that was halved so many times more."""
        return Control(self.best_F, self.halvings + halvings, voters=self.voters)

    def judge(
        self, length: int, alone: int | None = None, least: int = BLOCK_MIN, *, is_turn_over: bool = True
    ) -> tuple["Control", Integers | None]:
        """After a step: (what follows, the increments to go back to, if it does). length: of a block at most. alone: if
        this block ends here, and no others follow, so many standard errors are enough. is_turn_over: else only such an
        end is one of a block."""
        is_last = alone is not None
        is_long = not self.taken or self.steps >= min(length, max(least, self.taken // BLOCK_PART))
        if not is_last and not (is_long and is_turn_over):
            return self, None
        after = replace(self, block={}, steps=0, begin_F=None, taken=self.taken + self.steps)
        rise = _rise(self.best, self.block, self.voters)
        if not self.best or (rise is not None and rise < 0):
            assert self.begin_F is not None
            # Early blocks may have been spoilt already: after them the run goes back to where the epoch began.
            best_F = self.best_F if self.taken < length else self.begin_F
            return replace(after, best=self.block, best_F=best_F, worse=0), None
        after = replace(after, best=_joined(self.best, self.block))
        sure = _sure_rise(self.best, self.block, self.voters)
        if sure is None:
            return after, None
        is_patience_over = self.worse + 1 >= PATIENCE
        errors = SIGNIFICANT if is_patience_over else alone or SIGNIFICANT
        if sure <= errors:
            return replace(after, worse=0), None
        if not (is_patience_over or is_last) or self.halvings >= HALVINGS_MAX:
            return replace(after, worse=self.worse + 1), None
        return self.back(1), self.best_F


@dataclass(frozen=True, slots=True)
class Past:
    """What an epoch leaves to the next one. best: the best epoch so far; -1: none is over. losses: what the origins
    lost in it. is_back: the run went back to its end at the end of this epoch. is_last: and ended."""

    halvings: int = 0
    best: int = -1
    losses: Block = field(default_factory=dict)
    is_back: bool = False
    is_last: bool = False

    def after(self, epoch: int, control: Control, stop_epochs: int | None = None) -> "Past":
        """At the end of the next epoch. control: after its last step. stop_epochs: see `stop_after`."""
        known = replace(self, halvings=control.halvings, is_back=False)
        here = replace(known, best=epoch, losses=control.whole)
        rise = _rise(self.losses, control.whole, control.voters)
        if self.best < 0 or rise is None or rise < 0:
            # Too few origins are in both epochs: they cannot be compared.
            return here if control.whole else known
        if stop_epochs is not None and epoch - self.best >= stop_epochs:
            return replace(known, is_back=True, is_last=True)
        sure = _sure_rise(self.losses, control.whole, control.voters)
        if sure is None or sure <= SIGNIFICANT_ALONE:
            return known
        if self.is_back or known.halvings >= HALVINGS_MAX:
            return here  # as bad again: the best epoch was not at its end what it was in the mean
        return replace(known, halvings=known.halvings + 1, is_back=True)

    def listed(self) -> list[int]:
        """L integers of 64 bits, or fewer; the others are zeros."""
        rows = [(_signed(origin), *sums) for origin, sums in sorted(self.losses.items())]
        return [self.halvings, self.best + 1, self.is_back + self.is_last, *chain(*rows)]

    @staticmethod
    def read(listed: Sequence[int]) -> "Past":
        """Undoes `listed`; of no integers nothing is left. A sum of others may say anything."""
        if not listed:
            return Past()
        halvings, best, back, *rows = listed
        columns = zip(*(iter(rows),) * 4, strict=True)
        losses = {origin % (1 << 64): Lost(*sums) for origin, *sums in columns if sums[0] > 0}
        return Past(min(max(0, halvings), HALVINGS_MAX), max(0, best) - 1, losses, back in (1, 2), back == 2)


def _signed(origin: OriginId) -> int:
    return origin - (origin >> 63 << 64)


def past_size(clients: int) -> int:
    """L: each origin has its id and three sums."""
    return 3 + 4 * clients


def block_length(refresh_period: int, steps: int) -> int:
    """The steps of a block at most, in epochs and in a run of so many steps."""
    return max(BLOCK_MIN, min(refresh_period, steps) // BLOCKS)


def voters_of(clients: int) -> int:
    """How many origins decide at least."""
    return min(clients, VOTERS_MIN)


def halvings_for(promise: float, loss: int, promise_max: float = PROMISE_MAX) -> int:
    """How often the rate has to be halved for a step not to be too long for an origin. promise: what the step promises.
    loss: in units of 2^-11. promise_max: of the loss. Who loses next to nothing is content."""
    if loss <= RISE_MIN:
        return 0
    most, halvings = promise_max * loss * 2.0**-LOSS_UNIT_BITS, 0
    while abs(promise) * 2.0**-halvings > most and halvings < HALVINGS_MAX:
        halvings += 1
    return halvings


def _rise(before: Block, after: Block, voters: int) -> float | None:
    """In standard errors of an origin: the median of those that are in both blocks, of two the lower one; None if they
    are too few."""
    both = before.keys() & after.keys()
    either = before.keys() | after.keys()
    if len(both) < voters or 2 * len(both) <= len(either):
        return None
    rises = [after[origin].rise_from(before[origin]) for origin in both]
    return median(rises) if len(rises) > 2 else min(rises)


def _sure_rise(before: Block, after: Block, voters: int) -> float | None:
    """The same, but who published one step alone is not asked: it may be chance."""
    return _rise(before, {origin: lost for origin, lost in after.items() if lost.steps > 1}, voters)


def _joined(best: Block, block: Block) -> Block:
    """The best block with those who are new in a later one.

    Each of them takes the place of one who is absent from the later block. Else hosts that have left for good would
    count for ever, and those who are here would never be more than half.
    """
    new = block.keys() - best.keys()
    absent = sorted(best.keys() - block.keys())
    joined = {**block, **best}
    for origin in absent[: len(new)]:
        del joined[origin]
    return joined
