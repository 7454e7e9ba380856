"""The encodings of an update, one for all hosts of a run: pairs, or payloads.

A payload holds only integers. It has one size, every value is bounded, and no bytes of this size mean NaN or infinity.
So a relay sees by looking at it whether it may be used, without numpy or a model. `admits` is cheap, and is asked
before the signature is verified.

What stands where in a payload: docs/explanation/learning.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from seedflood.protocol.seedflood.bundles import LOSS_BYTES, SCALAR_MAX, SCALAR_UNIT_BITS, UpdateValue


@dataclass(frozen=True, slots=True)
class Pairs:
    """(loss, scalar): what was lost, and one slope along one direction that follows from origin and step. limit: the
    largest size of a scalar."""

    limit: int = SCALAR_MAX

    @property
    def size(self) -> int:
        """Bytes of a payload."""
        return 0

    @property
    def reach(self) -> int:
        """The most that one update can add to a coefficient."""
        return self.limit

    def admits(self, probes: Sequence[UpdateValue]) -> bool:
        """May these, all of one kind, be sent in this run?"""
        limit = self.limit
        for value in probes:  # asked of every bundle: `all` would take three times as long
            if not isinstance(value, tuple):
                return False
            if not -limit <= value[1] <= limit:
                return False
        return True


COEFFICIENT_MAX = 1 << 32
"""No coefficient of a payload is larger, in its units."""

NO_ROW = 0xFFFF
"""In the place of a row that is not kept. Its bits mean nothing, and are ignored like all such bits."""


@dataclass(frozen=True, slots=True)
class Sparse:
    """A slot of rows x columns coefficients, of which an update has `kept` rows at most. rows: below NO_ROW."""

    kept: int
    rows: int
    columns: int

    @property
    def values(self) -> int:
        return self.rows * self.columns

    @property
    def row_bytes(self) -> int:
        """Of the number of a row, and of its bits."""
        return 2 + (self.columns + 7) // 8


NOTHING = Sparse(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Coefficients:
    """A scale for each group of slots, and the sign of each value. groups: how many coefficients the slots of each
    group have together. unit_bits: integers count units of 2^-unit_bits. limit: no integer is larger; exponents are
    bounded so that none can be (`clip`). sparse: behind the groups."""

    groups: tuple[int, ...]
    unit_bits: int = SCALAR_UNIT_BITS
    limit: int = COEFFICIENT_MAX
    sparse: Sparse = NOTHING

    def __post_init__(self) -> None:
        assert self.limit >= 1, "something can be sent"
        assert min(self.groups, default=0) >= 1, "there are groups, and all have coefficients"

    @property
    def values(self) -> int:
        """F: how many coefficients there are."""
        return self.dense + self.sparse.values

    @property
    def dense(self) -> int:
        """How many coefficients the groups have."""
        return sum(self.groups)

    @property
    def exponents(self) -> int:
        """How many a payload has."""
        return len(self.groups) + (self.sparse.kept > 0)

    @property
    def rows_at(self) -> int:
        """Where the rows of the sparse slot begin in a payload."""
        return self.exponents + (self.dense + 7) // 8

    @property
    def size(self) -> int:
        return self.rows_at + self.sparse.kept * self.sparse.row_bytes + LOSS_BYTES

    @property
    def exponent_max(self) -> int:
        """The largest exponent: 33 without a lower limit."""
        return self.limit.bit_length()

    @property
    def reach(self) -> int:
        return 1 << self.exponent_max - 1

    def admits(self, probes: Sequence[UpdateValue]) -> bool:
        size, count, most = self.size, self.exponents, self.exponent_max
        return all(
            isinstance(value, bytes) and len(value) == size and max(value[:count]) <= most and self._has_rows(value)
            for value in probes
        )

    def _has_rows(self, payload: bytes) -> bool:
        """Are they rows of the sparse slot, each of them once?"""
        if not self.sparse.kept:
            return True
        starts = range(self.rows_at, self.size - LOSS_BYTES, self.sparse.row_bytes)
        rows = [int.from_bytes(payload[at : at + 2], "little") for at in starts]
        kept = [row for row in rows if row < self.sparse.rows]
        is_rest_empty = rows[len(kept) :].count(NO_ROW) == len(rows) - len(kept)
        return is_rest_empty and all(one < other for one, other in pairwise(kept))


Compression = Pairs | Coefficients
PAIRS = Pairs()


def encode_loss(loss: int) -> bytes:
    """The end of a payload. loss: in units of 2^-11."""
    return loss.to_bytes(LOSS_BYTES, "little")
