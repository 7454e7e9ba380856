"""Segments and sums of epochs as rows.

A *segment* is a row of the journal: bundles of one origin that follow each other without a hole, and were learned
together. In a live run it is mostly a single bundle. A node that catches up, or follows a busy stream, writes many
bundles at the cost of one row. Columns tell whose it is and which steps it covers. The record has the bundles as they
were sent. Segments of an origin never overlap, so two numbers per origin in memory tell whether a bundle may be here
already.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from zlib import crc32

from seedflood.protocol.frontier import Held, Span
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import Bundle, join_bundles, read_bundles
from seedflood.storage.records import SEAL_BYTES, ChecksumError, is_whole, sealed, unsealed
from seedflood.storage.tables import signed
from seedflood.wire import flood_pb2 as pb
from seedflood.wire.columns import exact_frontier_from_wire, exact_frontier_to_wire

SEGMENT_COLUMNS = "origin, step, skipped, last, bundles, record"
Segment = tuple[int, int, int, int, int, bytes]
"""A row: origin (signed), first step measured, steps skipped before it, last step, bundles; the record."""

SEGMENT_BYTES_MAX = 4000
"""The most bytes of a segment that has more than one bundle: such a row fits into one page of the file."""

DECODED_SEGMENTS = 128
"""How many segments are read together: more would not fit into the processor's cache."""

_NAME = struct.Struct(">qqq")  # the columns of a segment that are in no index: skipped, last, bundles


def encode_segment(bundles: Sequence[Bundle]) -> Segment:
    """bundles: of one origin, without a hole between them."""
    origin, step, _, skipped, _ = bundles[0]
    last, count = bundles[-1].last, len(bundles)
    record = sealed(join_bundles(bundles), crc32(_NAME.pack(skipped, last, count)))
    return signed(origin), step, skipped, last, count, record


def is_segment(segment: Segment) -> bool:
    """Is it what was written? A flipped bit may also change the type of a column."""
    _, _, skipped, last, bundles, record = segment
    try:
        return is_whole(record, crc32(_NAME.pack(skipped, last, bundles)))
    except struct.error:
        return False


def segment_span(segment: Segment) -> Span:
    """The steps that a segment covers."""
    origin, step, skipped, last, *_ = segment
    return origin % (1 << 64), step - skipped, last


def decode_segments(segments: Iterable[Segment]) -> Iterator[Bundle]:
    """The bundles of segments, one after the other. Raises ChecksumError."""
    rows = iter(segments)
    while part := list(islice(rows, DECODED_SEGMENTS)):
        if not all(map(is_segment, part)):
            raise ChecksumError
        origins: list[OriginId] = []
        for origin, _, _, _, bundles, _ in part:
            origins += [origin % (1 << 64)] * bundles
        yield from read_bundles(origins, b"".join([record[:-SEAL_BYTES] for *_, record in part]))


def encode_frontier(epoch: int, frontier: Sequence[Held]) -> bytes:
    """Which bundles the coefficients of an epoch are the sum of."""
    return sealed(exact_frontier_to_wire(frontier).SerializeToString(), epoch)


def decode_frontier(epoch: int, record: bytes) -> tuple[Held, ...]:
    """Raises ChecksumError."""
    return exact_frontier_from_wire(pb.Frontier.FromString(unsealed(record, epoch)))
