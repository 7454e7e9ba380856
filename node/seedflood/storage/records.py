"""How strands of bundles, statements and epochs look on disk: packed, with a CRC-32 at the end.

A *strand* is a row of the journal: bundles of one origin that follow each other without a hole and were learned
together. Live it is mostly a single bundle; a node that catches up, or hears a busy stream, writes and reads many at
once, for what a row costs.

Independent of the wire format, so that a journal written today is read by any later release. sqlite does not checksum
its pages: the CRC is what tells a flipped bit from an update. It starts from a number that follows from the kind of
the record, the run and the base model, so that a record found anywhere in a damaged file proves what it is and that
it belongs to this run.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import NamedTuple, Self, cast

from seedflood.protocol.frontier import Held, Span
from seedflood.protocol.seedflood.batches import payload_bytes, tells_payloads
from seedflood.protocol.seedflood.messages import BUNDLE_UPDATES_MAX, Bundle, bundle_of
from seedflood.protocol.swarm.messages import Member

_STRAND = struct.Struct(">QQQHH")  # origin, step, last, bundles, updates in each (or | _PAYLOADS); then the bundles
_PAYLOADS = 1 << 15
_NAME = struct.Struct(">qqqH")  # how it starts, as the columns of its row: origin (signed), step, last, bundles
_BUNDLES = [struct.Struct(f">I{'Iq' * n}64s") for n in range(BUNDLE_UPDATES_MAX + 1)]  # skipped, probes, signature
_SKIPPED = struct.Struct(">I")  # how one of the bundles starts
_SIZES = [struct.Struct(f">I{n}I") for n in range(BUNDLE_UPDATES_MAX + 1)]  # skipped, sizes; then payloads, signature
_SIGNATURE_BYTES = 64
_MEMBER = struct.Struct(">32sQQQqIHHB")  # key, incarnation, version, first_step, last_step, hop_milliseconds,
#       neighbours, bytes of what the algorithm states, of the name; these three, and the signature
_EPOCH = struct.Struct(">QI")  # epoch, origins; then the frontier
_HELD = struct.Struct(">QQI")  # origin, mark, ranges; then ranges * (first u64, last u64)
_IDENTITY = struct.Struct(">I32s32s")
_NUMBER = struct.Struct(">Q")
_CRC = struct.Struct("<I")
_RESIDUE = 0x2144DF1C
"""The CRC-32 of anything followed by its own CRC-32 in little-endian order, wherever it started."""
_STILL_HERE = -2


STRAND_BYTES_MAX = 4000
"""A row that fits a page of the file needs no other page."""

_STRAND_ROOM = STRAND_BYTES_MAX - _STRAND.size - _CRC.size
STRAND_BUNDLES = [_STRAND_ROOM // one.size for one in _BUNDLES]
"""How many bundles of pairs make a strand at most, by the number of updates in each."""


class ChecksumError(ValueError):
    """The record is not what was written."""


class Identity(NamedTuple):
    """Whose journal it is. format: of the file; run_id and base_digest: 32 bytes each."""

    format: int
    run_id: bytes
    base_digest: bytes


class Salts(NamedTuple):
    """Where the CRCs of the kinds of records of one run start."""

    strand: int
    member: int
    epoch: int
    number: int

    @classmethod
    def of(cls, run_id: bytes, base_digest: bytes) -> Self:
        return cls(*(zlib.crc32(kind.encode() + run_id + base_digest) for kind in cls._fields))


_IDENTITY_SALT = zlib.crc32(b"identity")  # of no run: it is there to tell whose journal it is


def is_whole(record: bytes, salt: int) -> bool:
    """Is it what was written?"""
    return zlib.crc32(record, salt) == _RESIDUE


def is_strand(salt: int, record: bytes, *columns: int) -> bool:
    """Is it what was written, and in the row with these columns: origin (signed), step, last, bundles?"""
    is_record = zlib.crc32(record, salt) == _RESIDUE and len(record) >= _STRAND.size
    return is_record and _NAME.unpack_from(record) == columns


def fits_strand(strand: Sequence[Bundle], updates: int, bundle: Bundle) -> bool:
    """May a bundle, of so many updates as each of these, stand behind them in one record?"""
    if bundle.probes[0].__class__ is tuple:
        return len(strand) < STRAND_BUNDLES[updates]
    sizes = _SIZES[updates].size + _SIGNATURE_BYTES
    room = _STRAND_ROOM - (len(strand) + 1) * sizes - payload_bytes([bundle])
    return room >= payload_bytes(strand)


def strand_span(record: bytes) -> Span:
    """What a strand covers, of a record that was checked."""
    origin, step, last, _, _ = _STRAND.unpack_from(record)
    (skipped,) = _SKIPPED.unpack_from(record, _STRAND.size)
    return origin, step - skipped, last


def encode_strand(bundles: Sequence[Bundle], salt: int) -> bytes:
    """Bundles of one origin without a hole between them, each of as many updates as the first."""
    first = bundles[0]
    updates = len(first.probes)
    if tells_payloads(bundles):
        head = _STRAND.pack(first.origin, first.step, bundles[-1].last, len(bundles), updates | _PAYLOADS)
        sizes = _SIZES[updates].pack
        for _, _, probes, skipped, signature in bundles:
            payloads = cast(tuple[bytes, ...], probes)
            head += b"".join((sizes(skipped, *map(len, payloads)), *payloads, signature))
        return _sealed(head, salt)
    head = _STRAND.pack(first.origin, first.step, bundles[-1].last, len(bundles), updates)
    pack = _BUNDLES[updates].pack
    if updates == 1:  # the usual case
        rows = [pack(skipped, *probes[0], signature) for _, _, probes, skipped, signature in bundles]
    else:
        rows = [pack(skipped, *chain.from_iterable(probes), signature) for _, _, probes, skipped, signature in bundles]
    return _sealed(head + b"".join(rows), salt)


def decode_strand(record: bytes, salt: int) -> list[Bundle]:
    """Raises ChecksumError."""
    data = _checked(record, salt)
    origin, step, _, _, updates = _STRAND.unpack_from(data)
    if updates & _PAYLOADS:
        return list(_payload_bundles(data, origin, step, updates - _PAYLOADS))
    rows = data[_STRAND.size :]
    (skipped,) = _SKIPPED.unpack_from(rows)
    bundles: list[Bundle] = []
    covered = step - skipped
    if updates == 1:  # the usual case
        for skipped, seed, scalar, signature in _BUNDLES[1].iter_unpack(rows):
            step = covered + skipped
            bundles.append(bundle_of((origin, step, ((seed, scalar),), skipped, signature)))
            covered = step + 1
        return bundles
    for skipped, *flat, signature in _BUNDLES[updates].iter_unpack(rows):
        step = covered + skipped
        probes = tuple(zip(flat[::2], flat[1::2], strict=True))
        bundles.append(bundle_of((origin, step, probes, skipped, signature)))
        covered = step + updates
    return bundles


def _payload_bundles(data: bytes, origin: int, step: int, updates: int) -> Iterator[Bundle]:
    """Of a strand of bundles with payloads, which starts at this step."""
    at = _STRAND.size
    covered: int | None = None
    while at < len(data):
        skipped, *sizes = _SIZES[updates].unpack_from(data, at)
        at += _SIZES[updates].size
        ends = list(accumulate(sizes, initial=at))
        payloads = tuple(data[start:end] for start, end in pairwise(ends))
        at = ends[-1] + _SIGNATURE_BYTES
        step = step if covered is None else covered + skipped
        yield bundle_of((origin, step, payloads, skipped, data[ends[-1] : at]))
        covered = step + updates


def encode_member(member: Member, salt: int) -> bytes:
    name = member.name.encode()
    head = _MEMBER.pack(
        member.public_key,
        member.incarnation,
        member.version,
        member.first_step,
        _STILL_HERE if member.last_step is None else member.last_step,
        member.hop_milliseconds,
        len(member.neighbours),
        len(member.algorithm),
        len(name),
    )
    neighbours = struct.pack(f">{len(member.neighbours)}Q", *member.neighbours)
    return _sealed(head + neighbours + member.algorithm + name + member.signature, salt)


def decode_member(record: bytes, salt: int) -> Member:
    """Raises ChecksumError."""
    data = _checked(record, salt)
    key, incarnation, version, first, last, hop, neighbours, *sizes = _MEMBER.unpack_from(data)
    algorithm_bytes, name_bytes = sizes
    algorithm_at = _MEMBER.size + 8 * neighbours
    name_at = algorithm_at + algorithm_bytes
    return Member(
        key,
        data[name_at : name_at + name_bytes].decode(),
        incarnation,
        version,
        struct.unpack_from(f">{neighbours}Q", data, _MEMBER.size),
        first,
        None if last == _STILL_HERE else last,
        hop,
        data[algorithm_at:name_at],
        data[name_at + name_bytes :],
    )


def encode_epoch(epoch: int, frontier: Iterable[Held], salt: int) -> bytes:
    """What the coefficients of an epoch stand for."""
    held = tuple(frontier)
    parts = [_EPOCH.pack(epoch, len(held))]
    for one in held:
        parts.append(_HELD.pack(one.origin, one.mark, len(one.beyond)))
        parts += [struct.pack(">QQ", first, last) for first, last in one.beyond]
    return _sealed(b"".join(parts), salt)


def decode_epoch(record: bytes, salt: int) -> tuple[int, tuple[Held, ...]]:
    """Raises ChecksumError."""
    data = _checked(record, salt)
    epoch, count = _EPOCH.unpack_from(data)
    held, at = [], _EPOCH.size
    for _ in range(count):
        origin, mark, ranges = _HELD.unpack_from(data, at)
        flat = struct.unpack_from(f">{2 * ranges}Q", data, at + _HELD.size)
        held.append(Held(origin, mark, tuple(zip(flat[::2], flat[1::2], strict=True))))
        at += _HELD.size + 16 * ranges
    return epoch, tuple(held)


def coefficients_salt(epoch_record: bytes) -> int:
    """Binds coefficients to the record that tells what they stand for: its own CRC."""
    (crc,) = _CRC.unpack(epoch_record[-_CRC.size :])
    return int(crc)


def encode_coefficients(coefficients: bytes, salt: int) -> bytes:
    return _sealed(coefficients, salt)


def decode_coefficients(record: bytes, salt: int) -> bytes:
    """Raises ChecksumError."""
    return _checked(record, salt)


def encode_number(number: int, salt: int) -> bytes:
    return _sealed(_NUMBER.pack(number), salt)


def decode_number(record: bytes, salt: int) -> int:
    """Raises ChecksumError."""
    (number,) = _NUMBER.unpack(_checked(record, salt))
    return int(number)


def encode_identity(identity: Identity) -> bytes:
    return _sealed(_IDENTITY.pack(*identity), _IDENTITY_SALT)


def decode_identity(record: bytes) -> Identity:
    """Raises ChecksumError."""
    return Identity(*_IDENTITY.unpack(_checked(record, _IDENTITY_SALT)))


def _sealed(data: bytes, salt: int) -> bytes:
    return data + _CRC.pack(zlib.crc32(data, salt))


def _checked(record: bytes, salt: int) -> bytes:
    if zlib.crc32(record, salt) != _RESIDUE or len(record) <= _CRC.size:
        raise ChecksumError
    return record[: -_CRC.size]
