"""Compact forms: zlib for the integers of a closed epoch (on the disk and on the wire), bytes for a frontier (in
memory)."""

import struct
import sys
import zlib
from array import array
from collections.abc import Iterable

from seedflood.protocol.frontier import Held


def pack(raw: bytes) -> bytes:
    """Compresses coefficients. They are small numbers in eight bytes each, so zlib's fastest level halves them."""
    return zlib.compress(raw, level=1)


def packed_bytes_max(size: int) -> int:
    """The most bytes that `size` bytes take when packed, by any zlib: a stored block adds five bytes per 16 KiB."""
    return size + size // 1024 + 64


def unpack(packed: bytes, size: int) -> bytes:
    """Undoes `pack`. Raises ValueError unless the result has exactly `size` bytes.

    A neighbour may send a little that unpacks to very much, so at most size + 1 bytes are ever made.
    """
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(packed, size + 1)
    except zlib.error as error:
        raise ValueError(f"coefficients are packed wrongly ({error})") from None
    if len(raw) != size or not stream.eof or stream.unused_data:
        raise ValueError(f"packed coefficients must be exactly {size} bytes when unpacked")
    return raw


def are_within(coefficients: bytes, limit: int) -> bool:
    """Is each integer at most `limit` away from 0? coefficients: little-endian int64."""
    numbers = array("q", coefficients)
    if sys.byteorder == "big":
        numbers.byteswap()
    return max(max(numbers, default=0), -min(numbers, default=0)) <= limit


def pack_frontier(held: Iterable[Held]) -> bytes:
    """A frontier as bytes, in a tenth of the memory that the values take: one is kept per compacted epoch."""
    parts: list[bytes] = []
    for one in held:
        parts.append(struct.pack(">QQI", one.origin, one.mark, len(one.beyond)))
        parts += [struct.pack(">QQ", *span) for span in one.beyond]
    return b"".join(parts)


def unpack_frontier(packed: bytes) -> tuple[Held, ...]:
    held: list[Held] = []
    at = 0
    while at < len(packed):
        origin, mark, ranges = struct.unpack_from(">QQI", packed, at)
        flat = struct.unpack_from(f">{2 * ranges}Q", packed, at + 20)
        held.append(Held(origin, mark, tuple(zip(flat[::2], flat[1::2], strict=True))))
        at += 20 + 16 * ranges
    return tuple(held)
