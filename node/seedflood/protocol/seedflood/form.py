"""What a relay has to know of a run to check it, and cannot read from `[run]`, for it follows from the model.

A relay has no model. It takes this, with the digest of the base model, from the hello of the first neighbour that
belongs to the run (`host/seedflood/relay`), and keeps it. Should that neighbour lie, the relay and the honest hosts
refuse each other, and nothing that they hold is touched: so a closed run is safe from strangers here, and in an open
one the relay's operator deletes the file and starts again.
"""

import struct
from typing import NamedTuple

from seedflood.errors import PeerError
from seedflood.protocol.seedflood.bundles import SCALAR_MAX
from seedflood.protocol.seedflood.payload import (
    COEFFICIENT_MAX,
    NO_ROW,
    NOTHING,
    Coefficients,
    Compression,
    Pairs,
    Sparse,
)

_HEAD = struct.Struct(">QQQQHHHHH")
"""Bytes of an epoch, those among them that are no coefficients, reach of a step (0: none), limit, unit bits, groups
(none: pairs); rows that are sent of a sparse slot (none: there is no such slot), its rows and columns."""

_EPOCH_BYTES_MAX = 1 << 40


class Form(NamedTuple):
    """What `Rules` say under these names."""

    epoch_bytes: int
    left_bytes: int
    compression: Compression
    step_reach: int | None

    def pack(self) -> bytes:
        compression = self.compression
        groups: tuple[int, ...] = ()
        bits, sparse = 0, NOTHING
        if isinstance(compression, Coefficients):
            groups, bits, sparse = compression.groups, compression.unit_bits, compression.sparse
        sizes = self.epoch_bytes, self.left_bytes, self.step_reach or 0, compression.limit, bits, len(groups)
        head = _HEAD.pack(*sizes, sparse.kept, sparse.rows, sparse.columns)
        return head + struct.pack(f">{len(groups)}I", *groups)


def unpack_form(data: bytes) -> Form:
    """Undoes `Form.pack`. Raises PeerError for bytes that no honest host says."""
    try:
        epoch_bytes, left_bytes, reach, limit, bits, count, *rows = _HEAD.unpack_from(data)
        groups = struct.unpack(f">{count}I", data[_HEAD.size :])
    except struct.error:
        raise PeerError("the form of a run has another size than what it describes", reason="limit") from None
    sparse = Sparse(*rows)
    are_rows = sparse == NOTHING or (bool(groups) and 1 <= sparse.kept <= sparse.rows < NO_ROW and sparse.columns > 0)
    limit_max = COEFFICIENT_MAX if groups else SCALAR_MAX
    if not left_bytes <= epoch_bytes <= _EPOCH_BYTES_MAX or not 1 <= limit <= limit_max or 0 in groups or not are_rows:
        raise PeerError("the form of a run has sizes that do not exist", reason="limit")
    compression = Coefficients(groups, bits, limit, sparse) if groups else Pairs(limit)
    return Form(epoch_bytes, left_bytes, compression, reach or None)
