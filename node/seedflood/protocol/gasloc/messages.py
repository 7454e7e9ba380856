"""The messages of GASLoC between neighbours, and their encoding.

Each message is the data of one `Opaque`: a byte for its kind, then its fields in network byte order. Received bytes are
checked here and nowhere else: what `decode` returns is well-formed.
"""

import struct
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

    ROUND = 0  # the parameters of a round, for a partner
    COPY = 1  # a checkpoint for a host that joins, or the replica with which all end


class Reason(IntEnum):
    """Why an offer, or a request for a copy, is declined."""

    PASSED = 0  # the round is over here, or the host is at another one
    TAKEN = 1  # others are our partners in this round
    DISTRUST = 2  # what it sent before was not what it had offered
    AWAY = 3  # the host joins, or has finished
    LATE = 4  # the host has waited long enough
    BUSY = 5  # the host serves another one, or has no copy


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
    """The host that declines does not mix with the other one in this round. now: the round of that host."""

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


ContentMessage = Progress | Offer | Accept | Decline | Want | Chunk


_FORMS: dict[type[ContentMessage], tuple[int, struct.Struct]] = {
    Progress: (1, struct.Struct(">BQB")),
    Offer: (2, struct.Struct(f">BBQ{DIGEST_BYTES}sQHB")),
    Accept: (3, struct.Struct(f">B{DIGEST_BYTES}sQ")),
    Decline: (4, struct.Struct(">BBQBQ")),
    Want: (5, struct.Struct(f">B{DIGEST_BYTES}s")),
    Chunk: (6, struct.Struct(f">B{KEY_BYTES}sQI")),
}
"""By kind: the first byte of a message, and its fields, that byte included; of an offer and a chunk, what is before the
part whose length differs."""

_KINDS = {tag: kind for kind, (tag, _) in _FORMS.items()}


def encode(message: ContentMessage) -> bytes:
    tag, form = _FORMS[type(message)]
    match message:
        case Chunk(key, offset, data):
            return b"".join((form.pack(tag, key, offset, checksum(key, offset, data)), data))
        case Progress(round_, is_active, can_serve):
            return form.pack(tag, round_, is_active | can_serve << 1)
        case Offer(kind, round_, digest, size, degree, encoding):
            name = encoding.encode()
            return form.pack(tag, kind, round_, digest, size, degree, len(name)) + name
        case _:
            return form.pack(tag, *message)


def decode(data: bytes) -> ContentMessage:
    """Undoes `encode`. Raises PeerError for bytes that no host of the run sends."""
    if not data:
        raise PeerError("an empty message", reason="limit")
    if _KINDS.get(data[0]) is Chunk:
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
    _, form = _FORMS[Chunk]
    if not form.size < len(data) <= form.size + CHUNK_BYTES_MAX:
        raise PeerError(f"a chunk of {len(data)} bytes", reason="limit")
    _, key, offset, expected = form.unpack_from(data)
    body = memoryview(data)[form.size :]
    if checksum(key, offset, body) != expected:
        raise PeerError("a chunk with a wrong checksum", reason="checksum")
    return Chunk(key, offset, body)


def _decode(data: bytes) -> ContentMessage:
    if (kind := _KINDS.get(data[0])) is None:
        raise ValueError("nothing is spelled so")
    _, form = _FORMS[kind]
    if kind is Offer:
        return _decode_offer(form, data)
    _, *fields = form.unpack(data)
    if kind is Progress:
        round_, flags = fields
        return Progress(_check_round(round_), bool(flags & 1), bool(flags & 2))
    if kind is Decline:
        what, round_, reason, now = fields
        return Decline(Kind(what), _check_round(round_), Reason(reason), _check_round(now))
    return kind(*fields)


def _decode_offer(form: struct.Struct, data: bytes) -> Offer:
    _, kind, round_, digest, size, degree, length = form.unpack_from(data)
    name = data[form.size :]
    if len(name) != length or length > ENCODING_BYTES_MAX:
        raise ValueError("its encoding has another length")
    if not 0 < size <= SIZE_MAX:
        raise ValueError(f"{size} bytes are offered")
    return Offer(Kind(kind), _check_round(round_), digest, size, degree, name.decode("ascii"))


def _check_round(round_: int) -> int:
    if round_ > STEP_MAX:
        raise ValueError(f"round {round_}")
    return round_
