"""What any journal keeps comes back as it was, and every flipped bit is noticed."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.swarm.messages import ALGORITHM_BYTES_MAX, Member
from seedflood.storage.records import (
    ChecksumError,
    Identity,
    decode_identity,
    decode_member,
    decode_number,
    encode_identity,
    encode_member,
    encode_number,
    is_whole,
    sealed,
    unsealed,
    value_salt,
)

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # two shared cores
IDENTITY = Identity(7, b"r" * 32, b"b" * 32)
SALT = IDENTITY.salt("record")

u64 = st.integers(0, 2**64 - 1)
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
    algorithm=st.binary(max_size=ALGORITHM_BYTES_MAX),
    signature=st.binary(max_size=64),
)


@settings(RELAXED)
@given(members)
def test_a_member_survives(member: Member) -> None:
    assert decode_member(encode_member(member, SALT), SALT) == member


def test_a_number_and_an_identity_survive() -> None:
    assert decode_number(encode_number(2**64 - 1, SALT), SALT) == 2**64 - 1
    assert decode_identity(encode_identity(IDENTITY)) == IDENTITY


@settings(RELAXED)
@given(st.binary(max_size=300), st.data())
def test_a_flipped_bit_is_noticed(value: bytes, data: st.DataObject) -> None:
    record = bytearray(sealed(value, SALT))
    assert unsealed(bytes(record), SALT) == value
    bit = data.draw(st.integers(0, 8 * len(record) - 1))
    record[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ChecksumError):
        unsealed(bytes(record), SALT)


@settings(RELAXED)
@given(st.binary(max_size=40), st.integers(1, 2**62), st.binary(min_size=1, max_size=5), st.binary(max_size=5))
def test_a_value_belongs_to_its_key_its_number_and_its_run(key: bytes, number: int, end: bytes, value: bytes) -> None:
    """key + end: no byte of the key passes for one of the value."""
    record = sealed(value, value_salt(key + end, number, SALT))
    assert is_whole(record, value_salt(key + end, number, SALT))
    others = [IDENTITY._replace(run_id=b"x" * 32), IDENTITY._replace(base_digest=b"x" * 32)]
    for salt in (*(other.salt("record") for other in others), IDENTITY.salt("member")):
        assert not is_whole(record, value_salt(key + end, number, salt))
    assert not is_whole(record, value_salt(key + end, number - 1, SALT))
    assert not is_whole(end + record, value_salt(key, number, SALT))


@pytest.mark.parametrize("strange", [b"", b"\0" * 3, None, 17, "text"])
def test_what_is_no_record_is_noticed(strange: object) -> None:
    assert not is_whole(strange, SALT)


def test_a_short_record_is_noticed() -> None:
    with pytest.raises(ChecksumError):
        unsealed(b"", SALT)
