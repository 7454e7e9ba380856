import struct
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.protocol.packing import are_within, pack, unpack


@given(st.binary(max_size=4096))
def test_unpack_returns_what_was_packed(raw):
    assert unpack(pack(raw), len(raw)) == raw


@pytest.mark.parametrize("size", [0, 1, 63, 65, 10**6])
def test_another_size_is_refused(size):
    with pytest.raises(ValueError, match=f"exactly {size} bytes"):
        unpack(pack(bytes(64)), size)


def test_what_is_cut_off_is_refused():
    packed = pack(bytes(range(64)))
    for length in range(len(packed)):
        with pytest.raises(ValueError, match="exactly"):
            unpack(packed[:length], 64)


def test_bytes_after_the_end_are_refused():
    with pytest.raises(ValueError, match="exactly"):
        unpack(pack(bytes(64)) + b"x", 64)


@given(st.binary(max_size=256), st.integers(0, 256))
def test_any_input_gives_the_size_asked_for_or_an_error(packed, size):
    try:
        raw = unpack(packed, size)
    except ValueError:
        return
    assert len(raw) == size


def test_a_bomb_costs_no_more_memory_than_was_asked_for():
    bomb = zlib.compress(bytes(64 << 20), 9)
    tracemalloc.start()
    with pytest.raises(ValueError, match="exactly"):
        unpack(bomb, 1 << 16)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


near_powers = st.builds(
    lambda k, d, sign: sign * ((1 << k) + d), st.integers(0, 62), st.integers(-1, 1), st.sampled_from((1, -1))
)
numbers = st.integers(-(1 << 63), (1 << 63) - 1) | near_powers


@given(st.lists(numbers, max_size=5), st.integers(0, (1 << 64)) | near_powers.map(abs))
def test_numbers_are_within_a_limit_if_the_greatest_is(values, limit):
    assert are_within(struct.pack(f"<{len(values)}q", *values), limit) == (max(map(abs, values), default=0) <= limit)
