"""What an origin that trains by SeedFlood states of itself beside its membership, and how that is spelled.

A membership statement carries it as bytes that the swarm signs, keeps and passes on, and does not read.
"""

import struct
from functools import lru_cache
from typing import NamedTuple

from seedflood.errors import PeerError
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.swarm.messages import Member

_HEAD = struct.Struct(">QQBB")
_DIGEST_BYTES = (0, 32)


class Closed(NamedTuple):
    """How far an origin has closed: all epochs that end at or below step `before`, with a digest of the steps that
    their sums cover, and one of the sums (`evidence.Chain`). Digests are 32 bytes, or empty."""

    before: int = 0
    frontier_digest: bytes = b""
    digest: bytes = b""


class Stated(NamedTuple):
    """said_before: of the steps below it, the origin had said everything that it ever will when it stated this. closed:
    how far it has closed."""

    said_before: int = 0
    closed: Closed = Closed()


def pack(said: Stated) -> bytes:
    """The bytes of a statement; none if there is nothing to state."""
    if said == Stated():
        return b""
    before, frontier_digest, digest = said.closed
    return _HEAD.pack(said.said_before, before, len(frontier_digest), len(digest)) + frontier_digest + digest


@lru_cache(4096)
def unpack(state: bytes) -> Stated:
    """Undoes `pack`. Raises PeerError for bytes that no honest origin states."""
    if not state:
        return Stated()
    if len(state) < _HEAD.size:
        raise PeerError("a statement is too short", reason="limit")
    said_before, before, frontier_bytes, digest_bytes = _HEAD.unpack_from(state)
    middle = _HEAD.size + frontier_bytes
    is_sized = frontier_bytes in _DIGEST_BYTES and digest_bytes in _DIGEST_BYTES and len(state) == middle + digest_bytes
    if not is_sized or said_before > STEP_MAX + 1 or before > STEP_MAX:
        raise PeerError("a statement tells of digests or steps that do not exist", reason="limit")
    return Stated(said_before, Closed(before, state[_HEAD.size : middle], state[middle:]))


def stated(member: Member) -> Stated:
    """What a member states. It was checked when it came (`admission`), so nothing is raised."""
    return unpack(member.algorithm)
