"""What an origin that trains by SeedFlood states of itself beside its membership, and how that is spelled.

A membership statement carries it as bytes that the swarm signs, keeps and passes on, and does not read.
"""

import struct
from functools import lru_cache
from typing import NamedTuple

from seedflood.errors import PeerError
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.swarm.messages import Member

_HEAD = struct.Struct(">QQBB")
_ROWS = struct.Struct(">II32s")
_REMAINS = struct.Struct(">Q32s")
_DIGEST_BYTES = (0, 32)
_ENDED = 1 << 63
"""Beside `said_before`, of an origin that has ended the run."""


class Closed(NamedTuple):
    """How far an origin has closed: all epochs that end at or below step `before`, with a digest of the steps that
    their sums cover, and one of the sums (`evidence.Chain`). Digests are 32 bytes, or empty."""

    before: int = 0
    frontier_digest: bytes = b""
    digest: bytes = b""


REMAINS_MAX = 16
"""Of how many removed hosts an origin states what it holds."""


class Remains(NamedTuple):
    """What an origin holds of a removed host. digest: 32 bytes, equal on hosts that hold the same (`cuts`)."""

    removed: OriginId
    digest: bytes


class Rows(NamedTuple):
    """What an origin measures on: share number `place` (from 0) of `shares` of the run's training rows. digest: of all
    of these. Whoever has the same rows can audit it (`audit`)."""

    place: int
    shares: int
    digest: bytes


class Stated(NamedTuple):
    """said_before: of the steps below it, the origin had said everything that it ever will when it stated this. closed:
    how far it has closed. rows: None if it does not say. remains: what it holds of removed hosts. has_ended: it has
    ended the run, perhaps without having measured the last step."""

    said_before: int = 0
    closed: Closed = Closed()
    rows: Rows | None = None
    remains: tuple[Remains, ...] = ()
    has_ended: bool = False


def pack(said: Stated) -> bytes:
    """The bytes of a statement; none if there is nothing to state."""
    if said == Stated():
        return b""
    before, frontier_digest, digest = said.closed
    said_before = said.said_before + _ENDED * said.has_ended
    digests = _HEAD.pack(said_before, before, len(frontier_digest), len(digest)) + frontier_digest + digest
    remains = b"".join(_REMAINS.pack(*one) for one in said.remains)
    rows = b"" if said.rows is None else _ROWS.pack(*said.rows)
    return digests + (bytes([len(said.remains)]) + remains if remains else b"") + rows


@lru_cache(4096)
def unpack(state: bytes) -> Stated:
    """Undoes `pack`. Raises PeerError for bytes that no honest origin states."""
    if not state:
        return Stated()
    if len(state) < _HEAD.size:
        raise PeerError("a statement is too short", reason="limit")
    has_ended, said_before, before, frontier_bytes, digest_bytes = _unpack_head(state)
    middle = _HEAD.size + frontier_bytes
    end = middle + digest_bytes
    is_sized = frontier_bytes in _DIGEST_BYTES and digest_bytes in _DIGEST_BYTES
    if not is_sized or end > len(state) or said_before > STEP_MAX + 1 or before > STEP_MAX:
        raise PeerError("a statement tells of digests or steps that do not exist", reason="limit")
    remains, rest = _unpack_remains(state[end:])
    if len(rest) not in (0, _ROWS.size):
        raise PeerError("a statement has another size than what it tells of", reason="limit")
    rows = Rows(*_ROWS.unpack(rest)) if rest else None
    if rows is not None and rows.place >= rows.shares:
        raise PeerError("a statement tells of a share of the rows that does not exist", reason="limit")
    return Stated(said_before, Closed(before, state[_HEAD.size : middle], state[middle:end]), rows, remains, has_ended)


def _unpack_head(state: bytes) -> tuple[bool, int, int, int, int]:
    said_before, *rest = _HEAD.unpack_from(state)
    return said_before >= _ENDED, said_before % _ENDED, *rest


def _unpack_remains(state: bytes) -> tuple[tuple[Remains, ...], bytes]:
    """(what is held of removed hosts, the rest). Rows have as many bytes as one of these, so an odd byte more tells
    that there are some."""
    if len(state) % _REMAINS.size != 1:
        return (), state
    end = 1 + state[0] * _REMAINS.size
    if not 0 < state[0] <= REMAINS_MAX or end > len(state):
        raise PeerError("a statement tells of more removed hosts than it has bytes for", reason="limit")
    return tuple(Remains(*one) for one in _REMAINS.iter_unpack(state[1:end])), state[end:]


def stated(member: Member) -> Stated:
    """What a member states. It was checked when it came (`admission`), so nothing is raised."""
    return unpack(member.algorithm)
