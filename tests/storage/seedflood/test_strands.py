"""Strands and sums keep what they are given and notice every flipped bit."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.messages import SCALAR_MAX, SEED_MAX, Bundle
from seedflood.storage.layout import PAGE_BYTES
from seedflood.storage.records import ChecksumError, Identity, seal_of, sealed, unsealed
from seedflood.storage.seedflood.records import (
    STRAND_BUNDLES,
    STRAND_BYTES_MAX,
    decode_epoch,
    decode_strand,
    encode_epoch,
    encode_strand,
    fits_strand,
    is_strand,
)

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # two shared cores
IDENTITY = Identity(1, b"r" * 32, b"b" * 32)
STRAND, EPOCH = IDENTITY.salt("strand"), IDENTITY.salt("epoch")

u64 = st.integers(0, 2**64 - 1)


@st.composite
def strands(draw: st.DrawFn) -> list[Bundle]:
    """Bundles of one origin that follow each other, each of as many updates."""
    origin, updates, step = draw(u64), draw(st.integers(1, 64)), draw(st.integers(0, 2**50))
    pairs = st.tuples(st.integers(0, SEED_MAX), st.integers(-SCALAR_MAX, SCALAR_MAX))
    probe = draw(st.sampled_from([pairs, pairs, st.binary(min_size=1, max_size=40)]))
    strand: list[Bundle] = []
    for skipped in draw(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=9)):
        step += skipped if strand else 0
        probes = tuple(draw(st.lists(probe, min_size=updates, max_size=updates)))
        strand.append(Bundle(origin, step, probes, skipped, draw(st.binary(min_size=64, max_size=64))))
        step += updates
    return strand


held = st.builds(
    Held,
    origin=u64,
    mark=st.integers(0, STEP_MAX),
    beyond=st.lists(st.tuples(st.integers(0, STEP_MAX), st.integers(0, STEP_MAX)), max_size=3).map(tuple),
)


@settings(RELAXED)
@given(strands())
def test_a_strand_survives(strand: list[Bundle]) -> None:
    assert decode_strand(encode_strand(strand, STRAND), STRAND) == strand


@settings(RELAXED)
@given(u64, st.lists(held, max_size=4).map(tuple))
def test_an_epoch_survives(epoch: int, frontier: tuple[Held, ...]) -> None:
    assert decode_epoch(encode_epoch(epoch, frontier, EPOCH), EPOCH) == (epoch, frontier)


@settings(RELAXED)
@given(strands(), st.data())
def test_a_flipped_bit_is_noticed(strand: list[Bundle], data: st.DataObject) -> None:
    record = bytearray(encode_strand(strand, STRAND))
    bit = data.draw(st.integers(0, 8 * len(record) - 1))
    record[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ChecksumError):
        decode_strand(bytes(record), STRAND)


def test_a_short_record_is_noticed() -> None:
    with pytest.raises(ChecksumError):
        decode_strand(b"", STRAND)


def test_a_record_of_another_kind_run_or_base_model_is_noticed() -> None:
    record = encode_epoch(3, (), EPOCH)
    others = [IDENTITY._replace(run_id=b"x" * 32), IDENTITY._replace(base_digest=b"x" * 32)]
    for salt in [STRAND, *(other.salt("epoch") for other in others)]:
        with pytest.raises(ChecksumError):
            decode_epoch(record, salt)


def test_coefficients_belong_to_one_frontier() -> None:
    this, other = (encode_epoch(3, (Held(1, mark),), EPOCH) for mark in (5, 6))
    record = sealed(b"sums", seal_of(this))
    assert unsealed(record, seal_of(this)) == b"sums"
    with pytest.raises(ChecksumError):
        unsealed(record, seal_of(other))


def test_a_record_is_a_strand_only_under_its_own_name() -> None:
    record = encode_strand([Bundle(2**64 - 1, 5, ((1, 1), (2, 2))), Bundle(2**64 - 1, 9, ((3, 3), (4, 4)), 2)], STRAND)
    assert is_strand(STRAND, record, -1, 5, 10, 2)
    for other in ((-2, 5, 10, 2), (-1, 6, 10, 2), (-1, 5, 11, 2), (-1, 5, 10, 3), (-1, 5, 10, 2**63)):
        assert not is_strand(STRAND, record, *other)
    assert not is_strand(EPOCH, record, -1, 5, 10, 2)


@pytest.mark.parametrize("updates", [1, 5, 64])
def test_the_longest_strand_fits_a_page(updates: int) -> None:
    strand = [Bundle(1, k * updates, ((1, 1),) * updates) for k in range(STRAND_BUNDLES[updates])]
    assert len(encode_strand(strand, STRAND)) <= STRAND_BYTES_MAX < PAGE_BYTES


@pytest.mark.parametrize("size", [1, 300, 1900, 3000, 200_000])
def test_a_strand_of_payloads_fits_a_page_or_is_one_bundle(size: int) -> None:
    strand: list[Bundle] = []
    while not strand or fits_strand(strand, 1, Bundle(1, len(strand), (bytes(size),), 0, bytes(64))):
        strand.append(Bundle(1, len(strand), (bytes(size),), 0, bytes(64)))
    assert len(strand) == 1 or len(encode_strand(strand, STRAND)) <= STRAND_BYTES_MAX
    assert len(encode_strand([*strand, strand[-1]], STRAND)) > STRAND_BYTES_MAX
