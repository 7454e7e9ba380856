"""How the integers of a closed epoch are made small, for the disk and for neighbours."""

import zlib


def pack(raw: bytes) -> bytes:
    """Coefficients are small beside their eight bytes: the fastest level leaves about half of them."""
    return zlib.compress(raw, level=1)


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
