"""A stand-in for a model: a few exact fractions, with the arithmetic of local steps and outer steps.

Whether the mean is preserved can be checked exactly here. A local step adds the same to each replica, so the mean of
all replicas follows from the number of steps in them. Offers and checkpoints of a replica are bytes.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from seedflood.protocol.gasloc.rules import GaslocRules
from seedflood.protocol.gasloc.transfer import Content
from seedflood.protocol.origin import OriginId

Values = tuple[Fraction, ...]
Pair = tuple[int, OriginId]
"""(round, partner)"""

DENOMINATOR_MAX = 10**6
"""For settings and weights, which come as floats and become fractions."""

NUMBER_MAX = 2**100
"""No replica of an honest host comes near it."""

WIDE = 4
"""In closing rounds replicas may be so many times our reach apart, and so may the one with which we end."""


class Bytes(Content):
    """A content: bytes in memory, named by their hash."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._digest = digest_of(data)

    @property
    def digest(self) -> bytes:
        return self._digest

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, count: int) -> memoryview:
        return memoryview(self.data)[offset : offset + count]


def digest_of(data: bytes | bytearray) -> bytes:
    return hashlib.sha256(data).digest()


def spell(values: Values, padding: int = 0) -> bytes:
    """Numbers as bytes. padding: how many spaces follow, to make a content larger."""
    return " ".join(map(str, values)).encode() + b" " * padding


def read(data: bytes | bytearray, count: int) -> Values:
    """Undoes `spell`. Raises ValueError if these are not `count` numbers, or none that a host can have."""
    values = tuple(Fraction(word) for word in bytes(data).decode("ascii").split())
    if len(values) != count:
        raise ValueError(f"{len(values)} numbers in place of {count}")
    check_size(values)
    return values


def check_size(values: Values) -> None:
    """Raises ValueError for numbers that no host of a run has (`norm_max` of a real trainer)."""
    if any(abs(one) > NUMBER_MAX for one in values):
        raise ValueError("numbers that nobody can have learned")


def minus(one: Values, other: Values) -> Values:
    return tuple(a - b for a, b in zip(one, other, strict=True))


def plus(one: Values, other: Values) -> Values:
    return tuple(a + b for a, b in zip(one, other, strict=True))


class Own(NamedTuple):
    """A replica that was replaced at the end of the run. steps: how many local steps are in it."""

    values: Values
    steps: int


def square(values: Values) -> Fraction:
    return sum((one * one for one in values), Fraction(0))


@dataclass
class Replica:
    """drift: what a local step adds. reach: how far a partner's numbers may be from ours; further apart are no two
    honest hosts. steps: how many local steps are in it. offered: the parameters of the round, while they are exchanged.
    previous: those of the round before, for momentum. mixed: what each pair has added to it. before_closing: what it
    was then. own: what it was before it took the one with which all end."""

    rules: GaslocRules
    values: Values
    drift: Values
    reach: int
    steps: int = 0
    offered: Values | None = None
    previous: Values | None = None
    mixed: dict[Pair, Values] = field(default_factory=dict)
    before_closing: Values | None = None
    own: Own | None = None

    def take_steps(self, count: int) -> None:
        self.values = tuple(one + count * more for one, more in zip(self.values, self.drift, strict=True))
        self.steps += count

    def propose(self) -> Values:
        """Offers the present parameters for the round, and returns them."""
        assert self.offered is None, "an offer is open"
        self.offered = self.values
        return self.offered

    @property
    def is_bounded(self) -> bool:
        """Does our reach bound anything? Momentum pulls honest replicas further apart."""
        return not self.rules.gamma

    def is_near(self, values: Values) -> bool:
        """Do we vouch for these?"""
        return not self.is_bounded or max(map(abs, minus(self.values, values))) <= WIDE * self.reach

    def pull(self, pair: Pair, weight: float, theirs: Values, width: int) -> None:
        """Adds the part of one pair. width: how many times our reach the partner's numbers may be away. Raises
        ValueError if it is in the replica already."""
        assert self.offered is not None, "nothing was offered"
        if pair in self.mixed:
            raise ValueError(f"mixed round {pair[0]} twice with one partner")
        difference, limit = minus(self.offered, theirs), Fraction(width * self.reach)
        if self.is_bounded:
            difference = tuple(min(max(one, -limit), limit) for one in difference)
        scale = -_exact(weight)
        part = self.mixed[pair] = tuple(scale * one for one in difference)
        self.values = plus(self.values, part)

    def finish(self, *, has_momentum: bool = True) -> None:
        """Ends a round of pairs, whose parts were pulled: adds momentum."""
        assert self.offered is not None, "nothing was offered"
        momentum = minus(self.offered, self.previous or self.offered)
        gamma = _exact(self.rules.gamma) if has_momentum else 0
        self.values = tuple(one + gamma * more for one, more in zip(self.values, momentum, strict=True))
        self.previous, self.offered = self.offered, None

    # The end

    def begin_closing(self) -> None:
        """Notes what it was before the closing rounds, for the checks."""
        self.before_closing = self.before_closing or self.values

    def take(self, values: Values) -> None:
        """Ends with these in place of its own."""
        self.own = self.own or Own(self.values, self.steps)
        self.values, self.offered = values, None

    @property
    def last(self) -> Own:
        """What it was at the end, before it took another's."""
        return self.own or Own(self.values, self.steps)

    # Checkpoints

    def save(self, padding: int = 0) -> bytes:
        """All of it as bytes, except `mixed`, which a real replica does not have."""
        assert self.offered is None, "a checkpoint holds whole rounds"
        facts = {"steps": self.steps, "values": _words(self.values), "previous": _words(self.previous)}
        return json.dumps(facts).encode() + b" " * padding

    def restore(self, data: bytes) -> None:
        """Resumes from a checkpoint of any host. Raises ValueError, KeyError or TypeError, and changes nothing, if it
        is not a replica."""
        facts = json.loads(data)
        values, previous = (_numbers(facts[name]) for name in ("values", "previous"))
        steps = int(facts["steps"])
        if values is None or any(one is not None and len(one) != len(self.values) for one in (values, previous)):
            raise ValueError("a replica of another size")
        for one in filter(None, (values, previous)):
            check_size(one)
        self.values, self.offered, self.previous, self.steps = values, None, previous, steps
        self.mixed = {}
        self.before_closing = self.own = None


def _exact(number: float) -> Fraction:
    return Fraction(number).limit_denominator(DENOMINATOR_MAX)


def _words(values: Values | None) -> list[str] | None:
    return None if values is None else [str(one) for one in values]


def _numbers(words: Sequence[str] | None) -> Values | None:
    return None if words is None else tuple(Fraction(word) for word in words)
