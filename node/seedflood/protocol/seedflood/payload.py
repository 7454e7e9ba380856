"""What a run tells of a step, in a form that all its hosts know: pairs, or payloads.

    Pairs         (loss, scalar): what was lost, and one slope along one direction that follows from origin and step
    Coefficients  the gradient in the subspace: a power-of-two scale per group of slots, and the sign of all F values

A payload holds only integers, in units of 2^-unit_bits. It has one size, every value is bounded, and no bytes of this
size mean NaN or infinity. So a relay can tell whether a payload may be used by looking at it, without numpy or a model.
`admits` is cheap, and is asked before the signature is verified.

Coefficients: an exponent e of one byte for each group, then a bit for each of the F values, the first one lowest in its
byte. Under an exponent of its group of 1 or more a bit means the integer 2^(e - 1) if it is set and -2^(e - 1) if not;
under 0 it means 0. 0 <= e <= exponent_max, so that none is larger than SCALAR_MAX. Bits that mean nothing are ignored.
The last two bytes are what the origin lost on its batch, in units of 2^-11.

A run may have a lower limit than SCALAR_MAX (`clip`). It bounds what a single update can do, whoever sends it: what is
larger is refused, and honest hosts cut off what they measured before they tell it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from seedflood.protocol.seedflood.messages import LOSS_BYTES, SCALAR_MAX, SCALAR_UNIT_BITS, Told


@dataclass(frozen=True, slots=True)
class Pairs:
    """(loss, scalar), whose ranges the codec has checked. limit: the largest size of a scalar."""

    limit: int = SCALAR_MAX

    @property
    def size(self) -> int:
        """Bytes of a payload."""
        return 0

    @property
    def reach(self) -> int:
        """The most that one update can add to a coefficient."""
        return self.limit

    def admits(self, probes: Sequence[Told]) -> bool:
        """May these, all of one kind, be told in this run?"""
        if probes[0].__class__ is not tuple:
            return False
        limit = self.limit
        return limit >= SCALAR_MAX or all(-limit <= cast(tuple[int, int], told)[1] <= limit for told in probes)


@dataclass(frozen=True, slots=True)
class Coefficients:
    """groups: how many coefficients the slots of each group have together. unit_bits: integers count units of
    2^-unit_bits. limit: no integer is larger; exponents are bounded so that none can be."""

    groups: tuple[int, ...]
    unit_bits: int = SCALAR_UNIT_BITS
    limit: int = SCALAR_MAX

    def __post_init__(self) -> None:
        assert self.limit >= 1, "something can be told"
        assert min(self.groups, default=0) >= 1, "there are groups, and all have coefficients"

    @property
    def values(self) -> int:
        """F: how many coefficients there are."""
        return sum(self.groups)

    @property
    def size(self) -> int:
        return len(self.groups) + (self.values + 7) // 8 + LOSS_BYTES

    @property
    def exponent_max(self) -> int:
        """The largest exponent: 33 without a lower limit."""
        return self.limit.bit_length()

    @property
    def reach(self) -> int:
        """The most that one update can add to a coefficient."""
        return 1 << self.exponent_max - 1

    def admits(self, probes: Sequence[Told]) -> bool:
        size, groups, most = self.size, len(self.groups), self.exponent_max
        return all(isinstance(told, bytes) and len(told) == size and max(told[:groups]) <= most for told in probes)


Telling = Pairs | Coefficients
PAIRS = Pairs()


def encode_loss(loss: int) -> bytes:
    """The end of a payload. loss: in units of 2^-11."""
    return loss.to_bytes(LOSS_BYTES, "little")
