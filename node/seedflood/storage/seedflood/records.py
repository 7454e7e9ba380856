"""Segments and sums of epochs as rows.

A *segment* is a row of the journal: bundles of one origin that follow each other without a hole, each with as many
updates, and were learned together. In a live run it is mostly a single bundle. A node that catches up, or follows a
busy stream, writes many bundles at the cost of one row. Columns tell whose it is and which steps it covers. The record
has the signatures, and then the rest as on the wire (`wire/columns`). Segments of an origin never overlap, so two
numbers per origin in memory tell whether a bundle may be here already.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from zlib import crc32

from seedflood.protocol.frontier import Held, Span
from seedflood.protocol.seedflood.messages import BUNDLE_UPDATES_MAX, Bundle, payload_bytes
from seedflood.storage.records import SEAL_BYTES, ChecksumError, is_whole, sealed, unsealed
from seedflood.storage.tables import signed
from seedflood.wire import flood_pb2 as pb
from seedflood.wire.columns import (
    SIGNATURE_BYTES,
    exact_frontier_from_wire,
    exact_frontier_to_wire,
    values_from_wire,
    values_to_wire,
)

SEGMENT_COLUMNS = "origin, step, skipped, last, bundles, updates, record"
Segment = tuple[int, int, int, int, int, int, bytes]
"""A row: origin (signed), first step measured, steps skipped before it, last step, bundles, updates in each bundle; the
record."""

SEGMENT_BYTES_MAX = 4000
"""The most bytes of a segment: such a row fits into one page of the file."""

DECODED_SEGMENTS = 128
"""How many segments are read together: more would not fit into the processor's cache."""

_NAME = struct.Struct(">qqqq")  # the columns of a segment that are in no index: skipped, last, bundles, updates
_HEAD_BYTES = 32  # more than tags and lengths of all columns of a message, and the seal
_BUNDLE_BYTES = 64 + 1 + 5  # of a bundle without its values: signature, count, steps skipped
_PAIR_BYTES, _SIZE_BYTES = 4 + 5, 3
SEGMENT_BUNDLES = [
    (SEGMENT_BYTES_MAX - _HEAD_BYTES) // (_BUNDLE_BYTES + _PAIR_BYTES * n) for n in range(BUNDLE_UPDATES_MAX + 1)
]
"""The most bundles of pairs in a segment, by the number of updates in each bundle."""


def fits_segment(segment: Sequence[Bundle], updates: int, bundle: Bundle) -> bool:
    """Is there room in the segment for this bundle? It has `updates` updates, like each bundle of the segment."""
    if bundle.probes[0].__class__ is tuple:
        return len(segment) < SEGMENT_BUNDLES[updates]
    all_bundles = [*segment, bundle]
    columns = len(all_bundles) * (_BUNDLE_BYTES + updates * _SIZE_BYTES) + payload_bytes(all_bundles)
    return _HEAD_BYTES + columns <= SEGMENT_BYTES_MAX


class SegmentEncoder:
    """For one thread at a time."""

    def __init__(self) -> None:
        self._one = pb.Updates(losses=[0], scalars=[0])
        """Made once: to make it takes longer than to spell it."""

    def encode(self, bundles: Sequence[Bundle]) -> Segment:
        """bundles: of one origin, without a hole between them, each with as many updates as the first."""
        origin, step, probes, skipped, signatures = bundles[0]
        count, updates = len(bundles), len(probes)
        last = step + updates - 1
        if count == updates == 1 and probes[0].__class__ is tuple and not skipped:  # the usual case
            one = self._one
            one.losses[0], one.scalars[0] = probes[0]
            columns = one.SerializeToString()
        else:
            last = bundles[-1].last
            signatures = b"".join([bundle.signature for bundle in bundles])
            columns = values_to_wire(bundles).SerializeToString()
        salt = crc32(_NAME.pack(skipped, last, count, updates))
        return signed(origin), step, skipped, last, count, updates, sealed(signatures + columns, salt)


def is_segment(segment: Segment) -> bool:
    """Is it what was written? A flipped bit may also change the type of a column."""
    _, _, skipped, last, bundles, updates, record = segment
    try:
        return is_whole(record, crc32(_NAME.pack(skipped, last, bundles, updates)))
    except struct.error:
        return False


def segment_span(segment: Segment) -> Span:
    """The steps that a segment covers."""
    origin, step, skipped, last, *_ = segment
    return origin % (1 << 64), step - skipped, last


def decode_segments(segments: Iterable[Segment]) -> Iterator[Bundle]:
    """The bundles of all segments, in order. Raises ChecksumError.

    Messages that follow each other are one message with longer columns. So segments that spell the same columns are
    read together.
    """
    for _, some in groupby(map(_checked, segments), _shape):
        while part := list(islice(some, DECODED_SEGMENTS)):
            yield from _decode(part)


def _checked(segment: Segment) -> Segment:
    if not is_segment(segment):
        raise ChecksumError
    return segment


def _shape(segment: Segment) -> tuple[bool, bool]:
    """(are no steps skipped in it, has each bundle one update)."""
    _, step, skipped, last, bundles, updates, _ = segment
    return skipped == 0 and last - step + 1 == bundles * updates, updates == 1


def _decode(segments: Sequence[Segment]) -> tuple[Bundle, ...]:
    """segments: of one shape."""
    origins: list[int] = []
    signatures, columns = [], []
    for origin, _, _, _, bundles, _, record in segments:
        origins += [origin % (1 << 64)] * bundles
        signatures.append(record[: SIGNATURE_BYTES * bundles])
        columns.append(record[SIGNATURE_BYTES * bundles : -SEAL_BYTES])
    wire = pb.Updates.FromString(b"".join(columns))
    steps: list[int] = []
    in_turn = iter(wire.skipped)
    for _, step, skipped, last, bundles, updates, _ in segments:
        if wire.skipped:
            steps += _steps(step - skipped, islice(in_turn, bundles), updates)
        else:
            steps += range(step, last + 1, updates)
    return values_from_wire(origins, steps, b"".join(signatures), wire)


def _steps(covered: int, skipped: Iterable[int], updates: int) -> Iterator[int]:
    """The first step of each bundle. covered: the first step that a segment covers."""
    for more in skipped:
        yield covered + more
        covered += more + updates


def encode_frontier(epoch: int, frontier: Sequence[Held]) -> bytes:
    """Which bundles the coefficients of an epoch are the sum of."""
    return sealed(exact_frontier_to_wire(frontier).SerializeToString(), epoch)


def decode_frontier(epoch: int, record: bytes) -> tuple[Held, ...]:
    """Raises ChecksumError."""
    return exact_frontier_from_wire(pb.Frontier.FromString(unsealed(record, epoch)))
