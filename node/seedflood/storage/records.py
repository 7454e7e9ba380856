"""How what any algorithm keeps looks on disk: packed, with a CRC-32 at the end.

Independent of the wire format, so that a journal written today is read by any later release. sqlite does not checksum
its pages: the CRC is what tells a flipped bit from what was written. It starts from a number that follows from the kind
of the record, the run and the base model, so that a record found anywhere in a damaged file proves what it is and that
it belongs to this run.
"""

import struct
import zlib
from typing import NamedTuple

from seedflood.protocol.swarm.messages import Member

_MEMBER = struct.Struct(">32sQQQqIHHB")  # key, incarnation, version, first_step, last_step, hop_milliseconds,
#       neighbours, bytes of what the algorithm states, of the name; these three, and the signature
_IDENTITY = struct.Struct(">I32s32s")
_NUMBER = struct.Struct(">Q")
_VALUE = struct.Struct(">QI")  # how what a value is bound to starts: number, bytes of the key; then the key
_CRC = struct.Struct("<I")
CRC_BYTES = _CRC.size
_RESIDUE = 0x2144DF1C
"""The CRC-32 of anything followed by its own CRC-32 in little-endian order, wherever it started."""
_STILL_HERE = -2


class ChecksumError(ValueError):
    """The record is not what was written."""


class Identity(NamedTuple):
    """Whose journal it is. format: of the file; run_id and base_digest: 32 bytes each."""

    format: int
    run_id: bytes
    base_digest: bytes

    def salt(self, kind: str) -> int:
        """Where the CRCs of a kind of records of this run start."""
        return zlib.crc32(kind.encode() + self.run_id + self.base_digest)


_IDENTITY_SALT = zlib.crc32(b"identity")  # of no run: it is there to tell whose journal it is


def is_whole(record: object, salt: int) -> bool:
    """Is it what was written? Of a flipped bit sqlite may make a number or a text."""
    return isinstance(record, bytes) and zlib.crc32(record, salt) == _RESIDUE


def sealed(data: bytes, salt: int) -> bytes:
    """With its CRC behind it."""
    return data + _CRC.pack(zlib.crc32(data, salt))


def unsealed(record: bytes, salt: int) -> bytes:
    """What was sealed. Raises ChecksumError."""
    if zlib.crc32(record, salt) != _RESIDUE or len(record) < CRC_BYTES:
        raise ChecksumError
    return record[:-CRC_BYTES]


def seal_of(record: bytes) -> int:
    """Its CRC: what is sealed with this as the salt belongs to this record and no other."""
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
    """Binds a value to its key and its number, by which a later one is told from an earlier one."""
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
