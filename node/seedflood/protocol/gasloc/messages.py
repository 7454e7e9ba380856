"""The messages of GASLoC between neighbours, and their encoding.

Each message is the data of one `Opaque`: a byte for its kind, then its fields in network byte order. Received bytes are
checked here and nowhere else: what `decode` returns is well-formed.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from seedflood.errors import PeerError
from seedflood.protocol.gasloc.rules import CHUNK_BYTES_MAX, ENCODING_BYTES_MAX
from seedflood.protocol.origin import STEP_MAX

DIGEST_BYTES, KEY_BYTES = 32, 8
NEWEST = bytes(DIGEST_BYTES)
"""Names no content: the newest checkpoint is wanted, whatever it is."""

SIZE_MAX = 1 << 48


class Kind(IntEnum):
    """The kind of a content."""

    ROUND = 0
    """The parameters of a round, for a partner."""
    COPY = 1
    """A checkpoint for a host that joins, or the replica with which all end."""


class Reason(IntEnum):
    """Why an offer, or a request for a copy, is declined."""

    PASSED = 0
    """The round is over here, or the host is at another one."""
    TAKEN = 1
    """Others are our partners in this round."""
    DOUBT = 2
    """The outcome of the last exchange with this partner is not known yet."""
    DISTRUST = 3
    """What it sent before was not what it had offered."""
    AWAY = 4
    """The host joins, or has finished."""
    LATE = 5
    """The host has waited long enough."""
    BUSY = 6
    """The host serves another one, or has no copy."""


class Progress(NamedTuple):
    """How far a host is. round: the one whose local steps it takes, or which it exchanges. is_active: it takes part.
    can_serve: it can give a copy to a host that joins."""

    round: int
    is_active: bool
    can_serve: bool


@dataclass(frozen=True, slots=True)
class Offer:
    """The sender can give these parameters. size: in bytes as they travel. degree: how many partners it takes in this
    round. encoding: how they travel, a word that the run agrees on."""

    kind: Kind
    round: int
    digest: bytes
    size: int
    degree: int = 0
    encoding: str = ""


class Accept(NamedTuple):
    """Asks for an offered content from byte `start` on; everything before is held. From its end on: nothing more of it
    is wanted."""

    digest: bytes
    start: int


class Decline(NamedTuple):
    """No exchange in this round. now: the round of the host that declines."""

    kind: Kind
    round: int
    reason: Reason
    now: int


class Want(NamedTuple):
    """Wants a copy. digest: of the replica with which all end, or `NEWEST`."""

    digest: bytes


class Chunk(NamedTuple):
    """A part of an accepted content. key: the first bytes of the content's digest. data: bytes, or a view of them."""

    key: bytes
    offset: int
    data: bytes | memoryview


class Kept(NamedTuple):
    """The sender has everything that you offered for the round on its disk, and waits for your decision. digest: of
    your offer."""

    round: int
    digest: bytes


class Outcome(NamedTuple):
    """The decision about a pair: was the round mixed with this partner?"""

    round: int
    is_mixed: bool


Saying = Progress | Offer | Accept | Decline | Want | Chunk | Kept | Outcome

_PROGRESS, _OFFER, _ACCEPT, _DECLINE, _WANT, _CHUNK, _KEPT, _OUTCOME = range(1, 9)

_PROGRESS_FORM = struct.Struct(">BQB")
_OFFER_FORM = struct.Struct(f">BBQ{DIGEST_BYTES}sQHB")
_ACCEPT_FORM = struct.Struct(f">B{DIGEST_BYTES}sQ")
_DECLINE_FORM = struct.Struct(">BBQBQ")
_WANT_FORM = struct.Struct(f">B{DIGEST_BYTES}s")
_CHUNK_HEAD = struct.Struct(f">B{KEY_BYTES}sQI")
_KEPT_FORM = struct.Struct(f">BQ{DIGEST_BYTES}s")
_OUTCOME_FORM = struct.Struct(">BQB")


def encode(saying: Saying) -> bytes:
    match saying:
        case Chunk(key, offset, data):
            return b"".join((_CHUNK_HEAD.pack(_CHUNK, key, offset, checksum(key, offset, data)), data))
        case Progress(round_, is_active, can_serve):
            return _PROGRESS_FORM.pack(_PROGRESS, round_, is_active | can_serve << 1)
        case Offer(kind, round_, digest, size, degree, encoding):
            name = encoding.encode()
            return _OFFER_FORM.pack(_OFFER, kind, round_, digest, size, degree, len(name)) + name
        case Accept(digest, start):
            return _ACCEPT_FORM.pack(_ACCEPT, digest, start)
        case Decline(kind, round_, reason, now):
            return _DECLINE_FORM.pack(_DECLINE, kind, round_, reason, now)
        case Want(digest):
            return _WANT_FORM.pack(_WANT, digest)
        case Kept(round_, digest):
            return _KEPT_FORM.pack(_KEPT, round_, digest)
        case Outcome(round_, is_mixed):
            return _OUTCOME_FORM.pack(_OUTCOME, round_, is_mixed)


def decode(data: bytes) -> Saying:
    """Undoes `encode`. Raises PeerError for bytes that no host of the run sends."""
    if not data:
        raise PeerError("an empty message", reason="limit")
    if data[0] == _CHUNK:
        return _decode_chunk(data)
    try:
        return _decode(data)
    except (struct.error, ValueError) as error:
        raise PeerError(f"a message of kind {data[0]} that cannot be read ({error})", reason="limit") from None


def checksum(key: bytes, offset: int, data: bytes | memoryview) -> int:
    """Of a chunk and its place: the lower half of XXH3, seeded with the place. It finds what got damaged, as CRC-32
    does, in a twentieth of the time; what somebody made up is found by the digest of the content."""
    return xxh3_64_intdigest(data, (int.from_bytes(key) + offset) % (1 << 64)) & 0xFFFF_FFFF


def _decode_chunk(data: bytes) -> Chunk:
    if not _CHUNK_HEAD.size < len(data) <= _CHUNK_HEAD.size + CHUNK_BYTES_MAX:
        raise PeerError(f"a chunk of {len(data)} bytes", reason="limit")
    _, key, offset, told = _CHUNK_HEAD.unpack_from(data)
    body = memoryview(data)[_CHUNK_HEAD.size :]
    if checksum(key, offset, body) != told:
        raise PeerError("a chunk with a wrong checksum", reason="checksum")
    return Chunk(key, offset, body)


def _decode(data: bytes) -> Saying:
    read = _READERS.get(data[0])
    if read is None:
        raise ValueError("nothing is spelled so")
    return read(data)


def _decode_progress(data: bytes) -> Progress:
    _, round_, flags = _PROGRESS_FORM.unpack(data)
    return Progress(_check_round(round_), bool(flags & 1), bool(flags & 2))


def _decode_offer(data: bytes) -> Offer:
    _, kind, round_, digest, size, degree, length = _OFFER_FORM.unpack_from(data)
    name = data[_OFFER_FORM.size :]
    if len(name) != length or length > ENCODING_BYTES_MAX:
        raise ValueError("its encoding has another length")
    if not 0 < size <= SIZE_MAX:
        raise ValueError(f"{size} bytes are offered")
    return Offer(Kind(kind), _check_round(round_), digest, size, degree, name.decode("ascii"))


def _decode_accept(data: bytes) -> Accept:
    _, digest, start = _ACCEPT_FORM.unpack(data)
    return Accept(digest, start)


def _decode_decline(data: bytes) -> Decline:
    _, kind, round_, reason, now = _DECLINE_FORM.unpack(data)
    return Decline(Kind(kind), _check_round(round_), Reason(reason), _check_round(now))


def _decode_want(data: bytes) -> Want:
    _, digest = _WANT_FORM.unpack(data)
    return Want(digest)


def _decode_kept(data: bytes) -> Kept:
    _, round_, digest = _KEPT_FORM.unpack(data)
    return Kept(_check_round(round_), digest)


def _decode_outcome(data: bytes) -> Outcome:
    _, round_, is_mixed = _OUTCOME_FORM.unpack(data)
    return Outcome(_check_round(round_), bool(is_mixed))


_READERS: dict[int, Callable[[bytes], Saying]] = {
    _PROGRESS: _decode_progress,
    _OFFER: _decode_offer,
    _ACCEPT: _decode_accept,
    _DECLINE: _decode_decline,
    _WANT: _decode_want,
    _KEPT: _decode_kept,
    _OUTCOME: _decode_outcome,
}


def _check_round(round_: int) -> int:
    if round_ > STEP_MAX:
        raise ValueError(f"round {round_}")
    return round_
