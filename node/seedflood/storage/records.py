"""Records: the last columns of a row, sealed with a CRC-32, because sqlite does not checksum its pages.

A seal may start from a *salt* made of the other columns. Then it reveals a flipped bit in those, too. Columns with an
index need none: sqlite's integrity check compares both.
"""

import struct
import zlib
from typing import NamedTuple

_IDENTITY = struct.Struct(">I32s32s")
_IDENTITY_SALT = zlib.crc32(b"identity")
_CRC = struct.Struct("<I")
SEAL_BYTES = _CRC.size
_RESIDUE = 0x2144DF1C
"""The CRC-32 of any data followed by its own CRC-32 (little-endian), from whatever salt it starts."""


class ChecksumError(ValueError):
    """The record differs from what was written."""


def is_whole(record: object, salt: int = 0) -> bool:
    """Is the record what was written? It may be any object: after a flipped bit sqlite may return a number or a
    text."""
    return isinstance(record, bytes) and len(record) >= SEAL_BYTES and zlib.crc32(record, salt) == _RESIDUE


def sealed(data: bytes, salt: int = 0) -> bytes:
    """The data with its CRC appended."""
    return data + _CRC.pack(zlib.crc32(data, salt))


def unsealed(record: bytes, salt: int = 0) -> bytes:
    """Undoes `sealed`. Raises ChecksumError."""
    if not is_whole(record, salt):
        raise ChecksumError
    return record[:-SEAL_BYTES]


class RunMark(NamedTuple):
    """To which run a journal belongs. format: version of the file format. run_id, base_digest: 32 bytes each."""

    format: int
    run_id: bytes
    base_digest: bytes

    def packed(self) -> bytes:
        """As a record that releases of any format can read."""
        return sealed(_IDENTITY.pack(*self), _IDENTITY_SALT)

    @classmethod
    def unpack(cls, record: bytes) -> "RunMark":
        """Raises ChecksumError."""
        return cls(*_IDENTITY.unpack(unsealed(record, _IDENTITY_SALT)))
