"""The integers of a closed epoch, packed by zlib on the disk and on the wire."""

import sys
import zlib
from array import array


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
