"""Segments and frontiers of sums keep what they are given and notice every flipped bit."""

from itertools import cycle, islice

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.seedflood.bundles import BUNDLE_UPDATES_MAX, LOSS_MAX, SCALAR_MAX, Bundle, make_bundle
from seedflood.storage.records import ChecksumError
from seedflood.storage.seedflood.records import (
    decode_frontier,
    decode_segments,
    encode_frontier,
    encode_segment,
    is_segment,
    segment_span,
)

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # two shared cores

u64 = st.integers(0, 2**64 - 1)
pairs = st.tuples(st.integers(0, LOSS_MAX), st.integers(-SCALAR_MAX, SCALAR_MAX))
payloads = st.binary(min_size=9, max_size=9)


def segment(draw: st.DrawFn, probe: st.SearchStrategy) -> list[Bundle]:
    """Bundles of one origin that follow each other."""
    origin, step = draw(u64), draw(st.integers(0, 2**31))
    skips = st.lists(st.just(0) | st.integers(0, 2**27), min_size=1, max_size=9)
    bundles: list[Bundle] = []
    for skipped in draw(skips):
        skipped = min(skipped, step) if not bundles else skipped
        step += skipped if bundles else 0
        updates = draw(st.integers(1, 3) | st.just(BUNDLE_UPDATES_MAX))
        probes = [*islice(cycle(draw(st.lists(probe, min_size=1, max_size=3))), updates)]  # to draw many takes long
        bundles.append(make_bundle(origin, step, probes, skipped, draw(st.binary(min_size=64, max_size=64))))
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
    rows = [encode_segment(bundles) for bundles in segments]
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
    *columns, whole = encode_segment(segments[0])
    record = bytearray(whole)
    bit = data.draw(st.integers(0, 8 * len(record) - 1))
    record[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ChecksumError):
        list(decode_segments([(*columns, bytes(record))]))


@pytest.mark.long
@settings(RELAXED)
@given(several(), st.integers(2, 4), st.integers(0, 30))
def test_a_flipped_bit_in_a_column_without_an_index_is_noticed(segments, column: int, bit: int) -> None:
    row: list = [*encode_segment(segments[0])]
    row[column] ^= 1 << bit
    assert not is_segment(tuple(row))


@pytest.mark.parametrize("other", [b"", "", 0.5, None])
@pytest.mark.parametrize("column", range(2, 5))
def test_a_column_of_another_type_is_noticed(column: int, other: object) -> None:
    """A flipped bit in the header of a row makes a constant integer an empty blob or text."""
    row = list(encode_segment([make_bundle(1, 4, ((5, 6),))]))
    row[column] = other
    assert not is_segment(tuple(row))
    with pytest.raises(ChecksumError):
        list(decode_segments([tuple(row)]))


def test_a_short_record_is_noticed() -> None:
    with pytest.raises(ChecksumError):
        list(decode_segments([(1, 0, 0, 0, 1, b"")]))
