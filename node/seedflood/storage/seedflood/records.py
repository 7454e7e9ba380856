"""The format of strands and epochs on the disk: packed bytes with a CRC-32 at the end, as in `storage.records`.

A *strand* is a row of the journal: bundles of one origin that follow each other without a hole and were learned
together. In a live run it is mostly a single bundle. A node that catches up, or hears a busy stream, writes many
bundles at the cost of one row.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import cast

from seedflood.protocol.frontier import Held, Span
from seedflood.protocol.seedflood.batches import payload_bytes, tells_payloads
from seedflood.protocol.seedflood.messages import BUNDLE_UPDATES_MAX, Bundle, EpochDigest, Warrant, bundle_of
from seedflood.storage.records import CRC_BYTES, decode_member, encode_member, is_whole, sealed, unsealed

_STRAND = struct.Struct(">QQQHH")  # origin, step, last, bundles, updates in each (or | _PAYLOADS); then the bundles
_PAYLOADS = 1 << 15
_NAME = struct.Struct(">qqqH")  # the start of a strand, as the columns of its row: origin (signed), step, last, bundles
_BUNDLES = [struct.Struct(f">I{'Iq' * n}64s") for n in range(BUNDLE_UPDATES_MAX + 1)]  # skipped, probes, signature
_SKIPPED = struct.Struct(">I")  # the start of each bundle
_SIZES = [struct.Struct(f">I{n}I") for n in range(BUNDLE_UPDATES_MAX + 1)]  # skipped, sizes; then payloads, signature
_SIGNATURE_BYTES = 64
_EPOCH = struct.Struct(">QI")  # epoch, origins; then the frontier
_HELD = struct.Struct(">QQI")  # origin, mark, ranges; then ranges * (first u64, last u64)
_WARRANT = struct.Struct(">BHH")  # bytes of the digests before, epochs, members; then both kinds of digests, members
_SIZE = struct.Struct(">I")  # of a member, before it
_DIGEST_BYTES = 32

STRAND_BYTES_MAX = 4000
"""The most bytes of a strand: such a row fits into one page of the file."""

_STRAND_ROOM = STRAND_BYTES_MAX - _STRAND.size - CRC_BYTES
STRAND_BUNDLES = [_STRAND_ROOM // one.size for one in _BUNDLES]
"""The most bundles of pairs in a strand, by the number of updates in each bundle."""


def is_strand(salt: int, record: bytes, *columns: int) -> bool:
    """Is the record what was written, and does it belong to a row with these columns: origin (signed), step, last,
    bundles?"""
    is_record = is_whole(record, salt) and len(record) >= _STRAND.size
    return is_record and _NAME.unpack_from(record) == columns


def fits_strand(strand: Sequence[Bundle], updates: int, bundle: Bundle) -> bool:
    """Is there room in the strand for this bundle? It has `updates` updates, like each bundle of the strand."""
    if bundle.probes[0].__class__ is tuple:
        return len(strand) < STRAND_BUNDLES[updates]
    sizes = _SIZES[updates].size + _SIGNATURE_BYTES
    room = _STRAND_ROOM - (len(strand) + 1) * sizes - payload_bytes([bundle])
    return room >= payload_bytes(strand)


def strand_span(record: bytes) -> Span:
    """The steps that a strand covers. record: with a checksum that was checked before."""
    origin, step, last, _, _ = _STRAND.unpack_from(record)
    (skipped,) = _SKIPPED.unpack_from(record, _STRAND.size)
    return origin, step - skipped, last


def encode_strand(bundles: Sequence[Bundle], salt: int) -> bytes:
    """A strand as bytes. bundles: of one origin, without a hole between them, each with as many updates as the
    first."""
    first = bundles[0]
    updates = len(first.probes)
    if tells_payloads(bundles):
        head = _STRAND.pack(first.origin, first.step, bundles[-1].last, len(bundles), updates | _PAYLOADS)
        sizes = _SIZES[updates].pack
        for _, _, probes, skipped, signature in bundles:
            payloads = cast(tuple[bytes, ...], probes)
            head += b"".join((sizes(skipped, *map(len, payloads)), *payloads, signature))
        return sealed(head, salt)
    head = _STRAND.pack(first.origin, first.step, bundles[-1].last, len(bundles), updates)
    pack = _BUNDLES[updates].pack
    if updates == 1:  # the usual case
        rows = [pack(skipped, *probes[0], signature) for _, _, probes, skipped, signature in bundles]
    else:
        rows = [pack(skipped, *chain.from_iterable(probes), signature) for _, _, probes, skipped, signature in bundles]
    return sealed(head + b"".join(rows), salt)


def decode_strand(record: bytes, salt: int) -> list[Bundle]:
    """Raises ChecksumError."""
    data = unsealed(record, salt)
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
    """The bundles of a strand with payloads. step: of the first bundle. updates: how many each bundle has."""
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


def encode_epoch(epoch: int, frontier: Iterable[Held], salt: int) -> bytes:
    """An epoch and its frontier, as bytes: which bundles its coefficients are the sum of."""
    held = tuple(frontier)
    parts = [_EPOCH.pack(epoch, len(held))]
    for one in held:
        parts.append(_HELD.pack(one.origin, one.mark, len(one.beyond)))
        parts += [struct.pack(">QQ", first, last) for first, last in one.beyond]
    return sealed(b"".join(parts), salt)


def decode_epoch(record: bytes, salt: int) -> tuple[int, tuple[Held, ...]]:
    """Raises ChecksumError."""
    data = unsealed(record, salt)
    epoch, count = _EPOCH.unpack_from(data)
    held, at = [], _EPOCH.size
    for _ in range(count):
        origin, mark, ranges = _HELD.unpack_from(data, at)
        flat = struct.unpack_from(f">{2 * ranges}Q", data, at + _HELD.size)
        held.append(Held(origin, mark, tuple(zip(flat[::2], flat[1::2], strict=True))))
        at += _HELD.size + 16 * ranges
    return epoch, tuple(held)


def encode_warrant(warrant: Warrant, salt: int) -> bytes:
    """A warrant as a value of the table of records, which adds a checksum. salt: of members."""
    members = [encode_member(member, salt) for member in warrant.members]
    head = _WARRANT.pack(len(b"".join(warrant.before)), len(warrant.digests), len(members))
    digests = [digest for pair in (warrant.before, *warrant.digests) for digest in pair]
    return b"".join((head, *digests, *(part for one in members for part in (_SIZE.pack(len(one)), one))))


def decode_warrant(data: bytes, salt: int) -> Warrant:
    """Raises ChecksumError."""
    before_bytes, epochs, count = _WARRANT.unpack_from(data)
    start = _WARRANT.size + before_bytes
    at = start + 2 * epochs * _DIGEST_BYTES
    middle = _WARRANT.size + before_bytes // 2
    halves = [data[k : k + _DIGEST_BYTES] for k in range(start, at, _DIGEST_BYTES)]
    members = []
    for _ in range(count):
        (size,) = _SIZE.unpack_from(data, at)
        at += _SIZE.size + size
        members.append(decode_member(data[at - size : at], salt))
    before = data[_WARRANT.size : middle], data[middle:start]
    return Warrant(before, tuple(map(EpochDigest, halves[::2], halves[1::2])), tuple(members))
