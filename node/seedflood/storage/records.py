"""How a bundle and a membership statement look on disk: packed, with a CRC-32 at the end.

Independent of the wire format, so that a journal written today is read by any later release. sqlite does not checksum
its pages: the CRC is what tells a flipped bit from an update.
"""

import struct
import zlib

from seedflood.protocol.messages import Bundle, Member

_BUNDLE = struct.Struct(">QQIH")  # origin, step, skipped, count; then count * (seed u32, scalar i64), the signature
_SINGLE = struct.Struct(">QQIHIq")
_PROBES = [struct.Struct(">" + "Iq" * n) for n in range(65)]
_MEMBER = struct.Struct(">32sQQQqHB")  # key, incarnation, version, first_step, last_step, neighbours, name bytes; then
#                                       the neighbours u64, the name, the signature
_CRC = struct.Struct(">I")
_STILL_HERE = -2


class ChecksumError(ValueError):
    """The record is not what was written."""


def encode_bundle(bundle: Bundle) -> bytes:
    probes = bundle.probes
    if len(probes) == 1:  # the usual case, in one call
        data = _SINGLE.pack(bundle.origin, bundle.step, bundle.skipped, 1, *probes[0]) + bundle.signature
        return data + _CRC.pack(zlib.crc32(data))
    data = (
        _BUNDLE.pack(bundle.origin, bundle.step, bundle.skipped, len(probes))
        + _PROBES[len(probes)].pack(*[value for probe in probes for value in probe])
        + bundle.signature
    )
    return data + _CRC.pack(zlib.crc32(data))


def decode_bundle(record: bytes) -> Bundle:
    """Raises ChecksumError."""
    data = _checked(record)
    origin, step, skipped, count = _BUNDLE.unpack_from(data)
    flat = _PROBES[count].unpack_from(data, _BUNDLE.size)
    signature = data[_BUNDLE.size + _PROBES[count].size :]
    return Bundle(origin, step, tuple(zip(flat[::2], flat[1::2], strict=True)), skipped, signature)


def encode_member(member: Member) -> bytes:
    name = member.name.encode()
    data = b"".join(
        (
            _MEMBER.pack(
                member.public_key,
                member.incarnation,
                member.version,
                member.first_step,
                _STILL_HERE if member.last_step is None else member.last_step,
                len(member.neighbours),
                len(name),
            ),
            struct.pack(f">{len(member.neighbours)}Q", *member.neighbours),
            name,
            member.signature,
        )
    )
    return data + _CRC.pack(zlib.crc32(data))


def decode_member(record: bytes) -> Member:
    """Raises ChecksumError."""
    data = _checked(record)
    key, incarnation, version, first_step, last_step, neighbours, name_bytes = _MEMBER.unpack_from(data)
    name_at = _MEMBER.size + 8 * neighbours
    return Member(
        key,
        data[name_at : name_at + name_bytes].decode(),
        incarnation,
        version,
        struct.unpack_from(f">{neighbours}Q", data, _MEMBER.size),
        first_step,
        None if last_step == _STILL_HERE else last_step,
        data[name_at + name_bytes :],
    )


def _checked(record: bytes) -> bytes:
    data, crc = record[:-4], record[-4:]
    if len(crc) != 4 or zlib.crc32(data) != _CRC.unpack(crc)[0]:
        raise ChecksumError
    return data
