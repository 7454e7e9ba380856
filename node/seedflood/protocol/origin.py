"""Origins: participants as authors, named by their keys, and the steps that they count."""

import hashlib
from functools import lru_cache

OriginId = int
"""The leading eight bytes of SHA-256 of an origin's Ed25519 public key, as a big-endian integer."""

STEP_MAX = (1 << 53) - 1
"""The greatest step: integers up to it are exact in JSON and in a float64."""

ORIGINS_REMEMBERED = 65_536
"""How many keys `origin_id` caches, and how many origins a `Membership` knows by default."""

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"


@lru_cache(maxsize=ORIGINS_REMEMBERED)
def origin_id(public_key: bytes) -> OriginId:
    """Names an origin by its 32-byte Ed25519 public key."""
    return int.from_bytes(hashlib.sha256(public_key).digest()[:8], "big")


def fingerprint(origin: OriginId) -> str:
    """Shows an origin to people: sixteen hex digits."""
    return f"{origin:016x}"
