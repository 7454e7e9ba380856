import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.errors import PeerError
from seedflood.protocol.gasloc.messages import (
    CHUNK_BYTES_MAX,
    SIZE_MAX,
    Accept,
    Chunk,
    Decline,
    Kind,
    Offer,
    Progress,
    Reason,
    Want,
    decode,
    encode,
)
from seedflood.protocol.origin import STEP_MAX
from seedflood.transport.link import CONTENTS_BYTES_MAX

ROUNDS = st.integers(0, STEP_MAX)
DIGESTS = st.binary(min_size=32, max_size=32)
KEYS = st.binary(min_size=8, max_size=8)
PLACES = st.integers(0, 2**64 - 1)
WORDS = st.text("abcdefgh0123456789-", max_size=16)

SAYINGS = st.one_of(
    st.builds(Progress, ROUNDS, st.booleans(), st.booleans()),
    st.builds(
        Offer, st.sampled_from(Kind), ROUNDS, DIGESTS, st.integers(1, SIZE_MAX), st.integers(0, 2**16 - 1), WORDS
    ),
    st.builds(Accept, DIGESTS, PLACES),
    st.builds(Decline, st.sampled_from(Kind), ROUNDS, st.sampled_from(Reason), ROUNDS),
    st.builds(Want, DIGESTS),
    st.builds(Chunk, KEYS, PLACES, st.binary(min_size=1, max_size=200)),
)


@given(message=SAYINGS)
def test_what_is_said_is_heard(message):
    assert decode(encode(message)) == message


@given(data=st.binary(max_size=300))
def test_foreign_bytes_are_read_or_refused(data):
    try:
        message = decode(data)
    except PeerError:
        return
    assert decode(encode(message)) == message


@given(message=SAYINGS, data=st.data())
def test_what_is_cut_off_or_too_long_is_refused(message, data):
    spelled = encode(message)
    cut = data.draw(st.integers(0, len(spelled) - 1))
    with pytest.raises(PeerError):
        decode(spelled[:cut])
    with pytest.raises(PeerError):
        decode(spelled + b"\0")


@given(data=st.binary(min_size=1, max_size=100), place=st.integers(min_value=0), bit=st.integers(0, 7))
def test_a_chunk_with_a_wrong_bit_is_refused(data, place, bit):
    spelled = bytearray(encode(Chunk(b"8 bytes.", 77, data)))
    spelled[1 + place % (len(spelled) - 1)] ^= 1 << bit
    with pytest.raises(PeerError, match="checksum"):
        decode(bytes(spelled))


def test_the_largest_chunk_fits_into_a_message():
    spelled = encode(Chunk(bytes(8), STEP_MAX, bytes(CHUNK_BYTES_MAX)))
    assert len(spelled) <= CONTENTS_BYTES_MAX
    assert len(decode(spelled).data) == CHUNK_BYTES_MAX
    with pytest.raises(PeerError):
        decode(encode(Chunk(bytes(8), 0, bytes(CHUNK_BYTES_MAX + 1))))


def test_nothing_that_is_empty_or_beyond_any_size_is_offered():
    for size in (0, SIZE_MAX + 1):
        with pytest.raises(PeerError):
            decode(encode(Offer(Kind.ROUND, 0, bytes(32), size, 1, "bf16")))
