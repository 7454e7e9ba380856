"""What an origin that trains by SeedFlood states of itself beside its membership, and how that is spelled.

A membership statement carries it as bytes that the swarm signs, keeps and passes on, and does not read.
"""

import struct
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from seedflood.errors import PeerError
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.swarm.messages import Member

_HEAD = struct.Struct(">QBB")
_ROWS = struct.Struct(">II32s")
_REMAINS = struct.Struct(">Q32s")
_ROWS_BYTES = (0, _ROWS.size)
_ENDED = 1 << 63
"""Beside `published_before`, of an origin that has ended the run."""
_RELAY = 1 << 62
"""Beside `published_before`, of an origin that only relays."""

REMAINS_MAX = 16
"""Of how many removed hosts an origin states what it holds."""


class Remains(NamedTuple):
    """What an origin holds of a removed host. digest: 32 bytes, equal on hosts that hold the same (`ends`)."""

    removed: OriginId
    digest: bytes


class Rows(NamedTuple):
    """What an origin measures on: share number `place` (from 0) of `shares` of the run's training rows. digest: of all
    of these. Whoever has the same rows can audit it (`host/seedflood/audit`)."""

    place: int
    shares: int
    digest: bytes


class Stated(NamedTuple):
    """published_before: of the steps below it, the origin had published everything that it ever will when it stated
    this. rows: None if it does not say. remains: what it holds of removed hosts. has_ended: it has ended the run,
    perhaps without having measured the last step. is_relay: it takes part in no step."""

    published_before: int = 0
    rows: Rows | None = None
    remains: tuple[Remains, ...] = ()
    has_ended: bool = False
    is_relay: bool = False


def pack(fields: Stated) -> bytes:
    """The bytes of a statement; none if there is nothing to state. A head of fixed size says how long each part is
    that follows."""
    if fields == Stated():
        return b""
    rows = b"" if fields.rows is None else _ROWS.pack(*fields.rows)
    published_before = fields.published_before + _ENDED * fields.has_ended + _RELAY * fields.is_relay
    head = _HEAD.pack(published_before, len(fields.remains), len(rows))
    return b"".join((head, *(_REMAINS.pack(*one) for one in fields.remains), rows))


@lru_cache(4096)
def unpack(state: bytes) -> Stated:
    """Undoes `pack`. Raises PeerError for bytes that no honest origin states."""
    if not state:
        return Stated()
    if len(state) < _HEAD.size:
        raise PeerError("a statement is too short", reason="limit")
    published_before, remains, rows_bytes = _HEAD.unpack_from(state)
    has_ended, is_relay, published_before = (
        bool(published_before & _ENDED),
        bool(published_before & _RELAY),
        published_before % _RELAY,
    )
    if rows_bytes not in _ROWS_BYTES or remains > REMAINS_MAX or published_before > STEP_MAX + 1:
        raise PeerError("a statement names hosts or steps that do not exist", reason="limit")
    ends = [*accumulate((_HEAD.size, remains * _REMAINS.size, rows_bytes))]
    if ends[-1] != len(state):
        raise PeerError("a statement has another size than what it describes", reason="limit")
    held, measured = (state[start:end] for start, end in pairwise(ends))
    rows = Rows(*_ROWS.unpack(measured)) if measured else None
    if rows is not None and rows.place >= rows.shares:
        raise PeerError("a statement names a share of the rows that does not exist", reason="limit")
    of_removed = tuple(Remains(*one) for one in _REMAINS.iter_unpack(held))
    return Stated(published_before, rows, of_removed, has_ended, is_relay)


def stated(member: Member) -> Stated:
    """What a member states. It was checked when it came (`admission`), so nothing is raised."""
    return unpack(member.algorithm)
