"""How the integers of a closed epoch are made small, for the disk and for neighbours, and a frontier for memory."""

import struct
import sys
import zlib
from array import array
from collections.abc import Iterable

from seedflood.protocol.frontier import Held

_SIGNS = bytes(128) + b"\xff" * 128
"""What stands in all bytes above one, of a number in two's complement."""


def pack(raw: bytes) -> bytes:
    """Coefficients are small beside their eight bytes: the fastest level leaves about half of them."""
    return zlib.compress(raw, level=1)


def packed_bytes_max(size: int) -> int:
    """What so many bytes take at most, packed by whatever zlib: stored blocks cost five bytes in 16 KiB."""
    return size + size // 1024 + 64


def unpack(packed: bytes, size: int) -> bytes:
    """What was packed; raises ValueError unless it is exactly this many bytes.

    What a neighbour packed may be made to swell: never more than size + 1 bytes of it are made.
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
    """Are all of these little-endian integers of eight bytes at most so far from 0?

    Numbers of a sum are nearly always far below it. Then their upper bytes say so, many times as fast as the numbers:
    of what fits into k bytes the others repeat its sign.
    """
    k = min(limit.bit_length() // 8, 7)  # 2^(8k-1) is not above the limit
    if k:
        signs = coefficients[k - 1 :: 8].translate(_SIGNS)
        if all(coefficients[j::8] == signs for j in range(k, 8)):
            return True
    numbers = array("q", coefficients)
    if sys.byteorder == "big":
        numbers.byteswap()
    return max(max(numbers, default=0), -min(numbers, default=0)) <= limit


def pack_frontier(held: Iterable[Held]) -> bytes:
    """A tenth of what the values take in memory: there is one per compacted epoch."""
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
