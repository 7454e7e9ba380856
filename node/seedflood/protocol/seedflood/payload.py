"""What a run tells of a step, in a form that all its hosts know: pairs, or payloads.

    Pairs         (loss, scalar): what was lost, and one slope along one direction that follows from origin and step
    Coefficients  the gradient in the subspace: a power-of-two scale per group of slots and all F values in 8 bits

A payload holds only integers, in units of 2^-unit_bits. It has one size, every value is bounded, and no bytes of this
size mean NaN or infinity. So a relay can tell whether a payload may be used by looking at it, without numpy or a model.
`admits` is cheap, and is asked before the signature is verified.

Coefficients: a scale exponent of one byte for each group, then F values. A value q under its group's exponent e means
the integer q << e. Values are in two's complement, and -128 is not used. 0 <= e <= exponent_max, so that |q| << e is at
most SCALAR_MAX for every q. The last two bytes are what the origin lost on its batch, in units of 2^-11.

A run may have a lower limit than SCALAR_MAX (`clip`). It bounds what a single update can do, whoever sends it: what is
larger is refused, and honest hosts cut off what they measured before they tell it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from seedflood.protocol.seedflood.messages import LOSS_BYTES, SCALAR_MAX, SCALAR_UNIT_BITS, Told

VALUE_MAX = 127
"""The largest value q."""

_VALUES = bytes(value for value in range(256) if value != 0x80)


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
        assert self.limit >= VALUE_MAX, "the largest value fits, at least without an exponent"
        assert min(self.groups, default=0) >= 1, "there are groups, and all have coefficients"

    @property
    def values(self) -> int:
        """F: how many coefficients there are."""
        return sum(self.groups)

    @property
    def size(self) -> int:
        return len(self.groups) + self.values + LOSS_BYTES

    @property
    def exponent_max(self) -> int:
        """The largest exponent: 25 without a lower limit."""
        return (self.limit // VALUE_MAX).bit_length() - 1

    @property
    def reach(self) -> int:
        """The most that one update can add to a coefficient."""
        return VALUE_MAX << self.exponent_max

    def admits(self, probes: Sequence[Told]) -> bool:
        size = self.size
        return all(isinstance(told, bytes) and len(told) == size and self._is_in_range(told) for told in probes)

    def _is_in_range(self, payload: bytes) -> bool:
        scales, values = payload[: len(self.groups)], payload[len(self.groups) : -LOSS_BYTES]
        return max(scales) <= self.exponent_max and not values.translate(None, _VALUES)


Telling = Pairs | Coefficients
PAIRS = Pairs()


def decode_coefficients(telling: Coefficients, payload: bytes) -> list[int]:
    """All F integers of an admitted payload, by the simplest code: faster decoders must give the same."""
    signed = iter([value - 256 if value > VALUE_MAX else value for value in payload[len(telling.groups) : -LOSS_BYTES]])
    scales = zip(payload[: len(telling.groups)], telling.groups, strict=True)
    return [next(signed) << exponent for exponent, count in scales for _ in range(count)]


def encode_coefficients(telling: Coefficients, exponents: Sequence[int], values: Sequence[int], loss: int = 0) -> bytes:
    """The payload of quantised values: exponents by group, values q in turn. loss: in units of 2^-11."""
    assert (len(exponents), len(values)) == (len(telling.groups), telling.values)
    return bytes(exponents) + bytes(value & 255 for value in values) + encode_loss(loss)


def encode_loss(loss: int) -> bytes:
    """The end of a payload. loss: in units of 2^-11."""
    return loss.to_bytes(LOSS_BYTES, "little")
