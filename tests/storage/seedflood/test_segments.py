"""Segments and frontiers of sums keep what they are given and notice every flipped bit."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.seedflood.messages import BUNDLE_UPDATES_MAX, LOSS_MAX, SCALAR_MAX, Bundle
from seedflood.storage.opening import PAGE_BYTES
from seedflood.storage.records import ChecksumError
from seedflood.storage.seedflood.records import (
    SEGMENT_BUNDLES,
    SEGMENT_BYTES_MAX,
    Segment,
    SegmentEncoder,
    decode_frontier,
    decode_segments,
    encode_frontier,
    fits_segment,
    is_segment,
    segment_span,
)

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # two shared cores
encode = SegmentEncoder().encode

u64 = st.integers(0, 2**64 - 1)
pairs = st.tuples(st.integers(0, LOSS_MAX), st.integers(-SCALAR_MAX, SCALAR_MAX))
payloads = st.binary(min_size=1, max_size=40)


def segment(draw: st.DrawFn, probe: st.SearchStrategy) -> list[Bundle]:
    """Bundles of one origin that follow each other, each of as many updates."""
    origin, step = draw(u64), draw(st.integers(0, 2**50))
    updates = draw(st.integers(1, 3) | st.just(BUNDLE_UPDATES_MAX))
    skips = st.lists(st.just(0) | st.integers(0, 2**32 - 1), min_size=1, max_size=9)
    bundles: list[Bundle] = []
    for skipped in draw(skips):
        skipped = min(skipped, step) if not bundles else skipped
        step += skipped if bundles else 0
        probes = tuple(draw(st.lists(probe, min_size=updates, max_size=updates)))
        bundles.append(Bundle(origin, step, probes, skipped, draw(st.binary(min_size=64, max_size=64))))
        step += updates
    return bundles


@st.composite
def several(draw: st.DrawFn) -> list[list[Bundle]]:
    """Segments of one run: all tell pairs, or all tell payloads."""
    probe = draw(st.sampled_from([pairs, pairs, payloads]))
    return [segment(draw, probe) for _ in range(draw(st.integers(1, 4)))]


@settings(RELAXED)
@given(several())
def test_segments_survive_alone_and_read_together(segments: list[list[Bundle]]) -> None:
    rows = [encode(bundles) for bundles in segments]
    for bundles, row in zip(segments, rows, strict=True):
        assert list(decode_segments([row])) == bundles
        assert is_segment(row)
        assert segment_span(row) == (bundles[0].origin, bundles[0].first_covered, bundles[-1].last)
    assert list(decode_segments(rows)) == [bundle for bundles in segments for bundle in bundles]


@settings(RELAXED)
@given(st.integers(0, 2**31), st.lists(st.tuples(u64, st.integers(0, 2000), st.integers(0, 9)), max_size=40))
def test_a_frontier_survives(epoch: int, spans: list[tuple[int, int, int]]) -> None:
    frontier = Frontier()
    for origin, first, more in spans:
        frontier.add(origin, first, first + more)
    assert decode_frontier(epoch, encode_frontier(epoch, frontier.held())) == frontier.held()
    with pytest.raises(ChecksumError):
        decode_frontier(epoch + 1, encode_frontier(epoch, frontier.held()))


@settings(RELAXED)
@given(several(), st.data())
def test_a_flipped_bit_is_noticed(segments: list[list[Bundle]], data: st.DataObject) -> None:
    *columns, whole = encode(segments[0])
    record = bytearray(whole)
    bit = data.draw(st.integers(0, 8 * len(record) - 1))
    record[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ChecksumError):
        list(decode_segments([(*columns, bytes(record))]))


@pytest.mark.long
@settings(RELAXED)
@given(several(), st.integers(2, 5), st.integers(0, 30))
def test_a_flipped_bit_in_a_column_without_an_index_is_noticed(segments, column: int, bit: int) -> None:
    row: list = [*encode(segments[0])]
    row[column] ^= 1 << bit
    assert not is_segment(tuple(row))


@pytest.mark.parametrize("other", [b"", "", 0.5, None])
@pytest.mark.parametrize("column", range(2, 6))
def test_a_column_of_another_type_is_noticed(column: int, other: object) -> None:
    """A flipped bit in the header of a row makes a constant integer an empty blob or text."""
    row = list(SegmentEncoder().encode([Bundle(1, 4, ((5, 6),), signature=bytes(64))]))
    row[column] = other
    assert not is_segment(tuple(row))
    with pytest.raises(ChecksumError):
        list(decode_segments([tuple(row)]))


def test_a_short_record_is_noticed() -> None:
    with pytest.raises(ChecksumError):
        list(decode_segments([(1, 0, 0, 0, 1, 1, b"")]))


def size(row: Segment) -> int:
    return len(row[-1])


@pytest.mark.parametrize("updates", [1, 5, 64])
def test_the_longest_segment_fits_a_page(updates: int) -> None:
    most = ((LOSS_MAX, -SCALAR_MAX),) * updates
    bundles = [Bundle(1, k * 2**33, most, 2**32 - 1, bytes(64)) for k in range(1, 1 + SEGMENT_BUNDLES[updates])]
    assert size(encode(bundles)) <= SEGMENT_BYTES_MAX < PAGE_BYTES


@pytest.mark.parametrize("payload", [1, 300, 1900, 3000, 200_000])
def test_a_segment_of_payloads_fits_a_page_or_is_one_bundle(payload: int) -> None:
    segment: list[Bundle] = []
    while not segment or fits_segment(segment, 1, Bundle(1, len(segment), (bytes(payload),), 0, bytes(64))):
        segment.append(Bundle(1, len(segment), (bytes(payload),), 0, bytes(64)))
    assert len(segment) == 1 or size(encode(segment)) <= SEGMENT_BYTES_MAX
    assert size(encode([*segment, segment[-1]])) > SEGMENT_BYTES_MAX * 0.8
