"""Which direction an origin measures at a step: everybody can compute it, so nobody chooses."""

import hashlib
import struct


def probe_seed(run_seed: int, origin: int, step: int) -> int:
    """The 32-bit seed of an origin's direction at a step: pure, so a restarted node measures the same direction.

    origin: an OriginId, or any number below 2^64 that names who measures.
    """
    packed = struct.pack("<QQQ", run_seed, origin, step)
    return int.from_bytes(hashlib.sha256(b"seedflood probe 1\0" + packed).digest()[:4], "big")
