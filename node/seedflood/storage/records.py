"""The format of records on the disk, for any algorithm: packed bytes with a CRC-32 at the end.

It does not depend on the wire format, so a later release can read a journal that is written today. sqlite does not
checksum its pages, so the CRC is what reveals a flipped bit. Each CRC starts from a *salt*: a number made of the kind
of record, the run and the base model. So a record that is found anywhere in a damaged file proves of which kind it is,
and that it belongs to this run.
"""

import struct
import zlib
from typing import NamedTuple

from seedflood.protocol.swarm.messages import Member

_MEMBER = struct.Struct(">32sQQQqIHHB")  # key, incarnation, version, first_step, last_step, hop_milliseconds,
#       neighbours, bytes of the algorithm's statement, bytes of the name; then these three, and the signature
_IDENTITY = struct.Struct(">I32s32s")
_NUMBER = struct.Struct(">Q")
_VALUE = struct.Struct(">QI")  # what the salt of a value is made of: number, bytes of the key; then the key
_CRC = struct.Struct("<I")
CRC_BYTES = _CRC.size
_RESIDUE = 0x2144DF1C
"""The CRC-32 of any data followed by its own CRC-32 (little-endian), from whatever salt it starts."""
_STILL_HERE = -2


class ChecksumError(ValueError):
    """The record differs from what was written."""


class Identity(NamedTuple):
    """To which run a journal belongs. format: version of the file format. run_id, base_digest: 32 bytes each."""

    format: int
    run_id: bytes
    base_digest: bytes

    def salt(self, kind: str) -> int:
        """The number from which the CRCs of this kind of records start, in this run."""
        return zlib.crc32(kind.encode() + self.run_id + self.base_digest)


_IDENTITY_SALT = zlib.crc32(b"identity")  # without the run: this record is what tells the run


def is_whole(record: object, salt: int) -> bool:
    """Is the record what was written? It may be any object: after a flipped bit sqlite may return a number or a
    text."""
    return isinstance(record, bytes) and zlib.crc32(record, salt) == _RESIDUE


def sealed(data: bytes, salt: int) -> bytes:
    """The data with its CRC appended."""
    return data + _CRC.pack(zlib.crc32(data, salt))


def unsealed(record: bytes, salt: int) -> bytes:
    """Undoes `sealed`. Raises ChecksumError."""
    if zlib.crc32(record, salt) != _RESIDUE or len(record) < CRC_BYTES:
        raise ChecksumError
    return record[:-CRC_BYTES]


def seal_of(record: bytes) -> int:
    """The CRC of a record. Whatever is sealed with this CRC as its salt belongs to this record and no other."""
    (crc,) = _CRC.unpack(record[-CRC_BYTES:])
    return int(crc)


def encode_member(member: Member, salt: int) -> bytes:
    name = member.name.encode()
    head = _MEMBER.pack(
        member.public_key,
        member.incarnation,
        member.version,
        member.first_step,
        _STILL_HERE if member.last_step is None else member.last_step,
        member.hop_milliseconds,
        len(member.neighbours),
        len(member.algorithm),
        len(name),
    )
    neighbours = struct.pack(f">{len(member.neighbours)}Q", *member.neighbours)
    return sealed(head + neighbours + member.algorithm + name + member.signature, salt)


def decode_member(record: bytes, salt: int) -> Member:
    """Raises ChecksumError."""
    data = unsealed(record, salt)
    key, incarnation, version, first, last, hop, neighbours, *sizes = _MEMBER.unpack_from(data)
    algorithm_bytes, name_bytes = sizes
    algorithm_at = _MEMBER.size + 8 * neighbours
    name_at = algorithm_at + algorithm_bytes
    return Member(
        key,
        data[name_at : name_at + name_bytes].decode(),
        incarnation,
        version,
        struct.unpack_from(f">{neighbours}Q", data, _MEMBER.size),
        first,
        None if last == _STILL_HERE else last,
        hop,
        data[algorithm_at:name_at],
        data[name_at + name_bytes :],
    )


def value_salt(key: bytes, number: int, salt: int) -> int:
    """A salt that binds a value to its key and its number. Numbers tell later values from earlier ones."""
    return zlib.crc32(_VALUE.pack(number % (1 << 64), len(key)) + key, salt)


def encode_number(number: int, salt: int) -> bytes:
    return sealed(_NUMBER.pack(number), salt)


def decode_number(record: bytes, salt: int) -> int:
    """Raises ChecksumError."""
    (number,) = _NUMBER.unpack(unsealed(record, salt))
    return int(number)


def encode_identity(identity: Identity) -> bytes:
    return sealed(_IDENTITY.pack(*identity), _IDENTITY_SALT)


def decode_identity(record: bytes) -> Identity:
    """Raises ChecksumError."""
    return Identity(*_IDENTITY.unpack(unsealed(record, _IDENTITY_SALT)))
