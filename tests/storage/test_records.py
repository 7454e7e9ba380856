"""Records keep what they are given and notice every flipped bit."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedflood.protocol.messages import SCALAR_MAX, SEED_MAX, STEP_MAX, Bundle, Held, Member
from seedflood.storage.records import (
    ChecksumError,
    Identity,
    Salts,
    coefficients_salt,
    decode_bundle,
    decode_coefficients,
    decode_epoch,
    decode_identity,
    decode_member,
    decode_number,
    encode_bundle,
    encode_coefficients,
    encode_epoch,
    encode_identity,
    encode_member,
    encode_number,
    is_bundle,
)

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # two shared cores
SALTS = Salts.of(b"r" * 32, b"b" * 32)

u64 = st.integers(0, 2**64 - 1)
bundles = st.builds(
    Bundle,
    origin=u64,
    step=st.integers(0, STEP_MAX),
    probes=st.lists(
        st.tuples(st.integers(0, SEED_MAX), st.integers(-SCALAR_MAX, SCALAR_MAX)), min_size=1, max_size=64
    ).map(tuple),
    skipped=st.integers(0, 2**32 - 1),
    signature=st.binary(max_size=64),
)
members = st.builds(
    Member,
    public_key=st.binary(min_size=32, max_size=32),
    name=st.text("abcXYZ019._-", max_size=63),
    incarnation=u64,
    version=u64,
    neighbours=st.lists(u64, max_size=4).map(tuple),
    first_step=st.integers(0, STEP_MAX),
    last_step=st.none() | st.integers(-1, STEP_MAX),
    hop_milliseconds=st.integers(0, 2**32 - 1),
    closed_before=st.integers(0, STEP_MAX),
    closed_digest=st.binary(max_size=32),
    signature=st.binary(max_size=64),
)
held = st.builds(
    Held,
    origin=u64,
    mark=st.integers(0, STEP_MAX),
    beyond=st.lists(st.tuples(st.integers(0, STEP_MAX), st.integers(0, STEP_MAX)), max_size=3).map(tuple),
)


@settings(RELAXED)
@given(bundles)
def test_a_bundle_survives(bundle: Bundle) -> None:
    assert decode_bundle(encode_bundle(bundle, SALTS.bundle), SALTS.bundle) == bundle


@settings(RELAXED)
@given(members)
def test_a_member_survives(member: Member) -> None:
    assert decode_member(encode_member(member, SALTS.member), SALTS.member) == member


@settings(RELAXED)
@given(u64, st.lists(held, max_size=4).map(tuple))
def test_an_epoch_survives(epoch: int, frontier: tuple[Held, ...]) -> None:
    assert decode_epoch(encode_epoch(epoch, frontier, SALTS.epoch), SALTS.epoch) == (epoch, frontier)


def test_a_number_and_an_identity_survive() -> None:
    identity = Identity(7, b"r" * 32, b"b" * 32)
    assert decode_number(encode_number(2**64 - 1, SALTS.number), SALTS.number) == 2**64 - 1
    assert decode_identity(encode_identity(identity)) == identity


@settings(RELAXED)
@given(bundles, st.data())
def test_a_flipped_bit_is_noticed(bundle: Bundle, data: st.DataObject) -> None:
    record = bytearray(encode_bundle(bundle, SALTS.bundle))
    bit = data.draw(st.integers(0, 8 * len(record) - 1))
    record[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ChecksumError):
        decode_bundle(bytes(record), SALTS.bundle)


def test_a_short_record_is_noticed() -> None:
    with pytest.raises(ChecksumError):
        decode_bundle(b"", SALTS.bundle)


def test_a_record_of_another_kind_run_or_base_model_is_noticed() -> None:
    record = encode_epoch(3, (), SALTS.epoch)
    strangers = [Salts.of(b"x" * 32, b"b" * 32).epoch, Salts.of(b"r" * 32, b"x" * 32).epoch, SALTS.member]
    for salt in strangers:
        with pytest.raises(ChecksumError):
            decode_epoch(record, salt)


def test_coefficients_belong_to_one_frontier() -> None:
    this, other = (encode_epoch(3, (Held(1, mark),), SALTS.epoch) for mark in (5, 6))
    record = encode_coefficients(b"sums", coefficients_salt(this))
    assert decode_coefficients(record, coefficients_salt(this)) == b"sums"
    with pytest.raises(ChecksumError):
        decode_coefficients(record, coefficients_salt(other))


def test_a_bundle_is_one_only_under_its_own_origin_and_step() -> None:
    record = encode_bundle(Bundle(2**64 - 1, 5, ((1, 1),)), SALTS.bundle)
    assert is_bundle(SALTS.bundle, record, -1, 5)
    assert not is_bundle(SALTS.bundle, record, -1, 6)
    assert not is_bundle(SALTS.bundle, record, -2, 5)
