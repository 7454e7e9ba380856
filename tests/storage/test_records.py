"""Whatever is sealed comes back as it was, and every flipped bit is noticed."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedflood.storage.records import ChecksumError, RunMark, is_whole, sealed, unsealed

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # two shared cores
IDENTITY = RunMark(7, b"r" * 32, b"b" * 32)

salts = st.integers(0, 2**32 - 1)


def test_an_identity_survives() -> None:
    assert RunMark.unpack(IDENTITY.packed()) == IDENTITY


@settings(RELAXED)
@given(st.binary(max_size=300), salts, st.data())
def test_a_flipped_bit_is_noticed(value: bytes, salt: int, data: st.DataObject) -> None:
    record = bytearray(sealed(value, salt))
    assert unsealed(bytes(record), salt) == value
    bit = data.draw(st.integers(0, 8 * len(record) - 1))
    record[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ChecksumError):
        unsealed(bytes(record), salt)


@settings(RELAXED)
@given(st.binary(max_size=300), salts, salts)
def test_a_record_is_whole_only_with_its_own_salt(value: bytes, salt: int, other: int) -> None:
    assert is_whole(sealed(value, salt), other) is (salt == other)


@pytest.mark.parametrize("strange", [b"", b"\0" * 3, None, 17, "text"])
def test_what_is_no_record_is_noticed(strange: object) -> None:
    assert not is_whole(strange)


def test_a_short_record_is_noticed() -> None:
    with pytest.raises(ChecksumError):
        unsealed(b"")
