"""Records keep what they are given and notice every flipped bit."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedflood.protocol.messages import SCALAR_MAX, SEED_MAX, STEP_MAX, Bundle, Member
from seedflood.storage.records import ChecksumError, decode_bundle, decode_member, encode_bundle, encode_member

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # two shared cores

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
    signature=st.binary(max_size=64),
)


@settings(RELAXED)
@given(bundles)
def test_a_bundle_survives(bundle: Bundle) -> None:
    assert decode_bundle(encode_bundle(bundle)) == bundle


@settings(RELAXED)
@given(members)
def test_a_member_survives(member: Member) -> None:
    assert decode_member(encode_member(member)) == member


@settings(RELAXED)
@given(bundles, st.data())
def test_a_flipped_bit_is_noticed(bundle: Bundle, data: st.DataObject) -> None:
    record = bytearray(encode_bundle(bundle))
    bit = data.draw(st.integers(0, 8 * len(record) - 1))
    record[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ChecksumError):
        decode_bundle(bytes(record))


def test_a_short_record_is_noticed() -> None:
    with pytest.raises(ChecksumError):
        decode_bundle(b"")
