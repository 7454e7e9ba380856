"""The bytes of a bundle: one layout, which is read as it was made, and nothing else."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from origins import RUN_ID, C

from seedflood.errors import PeerError
from seedflood.protocol.seedflood.bundles import (
    BUNDLE_BYTES_MAX,
    BUNDLE_STEP_MAX,
    BUNDLE_UPDATES_MAX,
    LOSS_MAX,
    SCALAR_MAX,
    join_bundles,
    make_bundle,
    read_bundles,
)

SIGNATURE = bytes(range(64))
pairs = st.tuples(st.integers(0, LOSS_MAX), st.integers(-SCALAR_MAX, SCALAR_MAX))
payloads = st.integers(1, 40).flatmap(lambda size: st.tuples(st.binary(min_size=size, max_size=size)))


@st.composite
def bundles(draw):
    step = draw(st.integers(0, BUNDLE_STEP_MAX))
    several = st.lists(pairs, min_size=1, max_size=draw(st.sampled_from([1, 3, BUNDLE_UPDATES_MAX])))
    probes = draw(several | payloads.map(lambda one: one * draw(st.integers(1, 3))))
    skipped = draw(st.sampled_from([0, 0, step]))
    return make_bundle(
        draw(st.integers(0, 2**64 - 1)), step, probes, skipped, draw(st.binary(min_size=64, max_size=64))
    )


@given(st.lists(bundles(), max_size=6))
def test_bundles_are_read_as_they_were_made(some):
    assert read_bundles([one.origin for one in some], join_bundles(some)) == some
    for one in some:
        assert make_bundle(one.origin, one.step, one.probes, one.skipped, one.signature) == one


@given(st.lists(bundles(), min_size=1, max_size=4), st.integers(0, 2**16), st.integers(0, 255), st.data())
def test_what_is_read_is_all_that_there_is_and_no_bundle_has_two_spellings(some, at, byte, data):
    damaged = bytearray(join_bundles(some))
    damaged[at % len(damaged)] = byte
    damaged = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    try:
        read = read_bundles([one.origin for one in some], damaged)
    except PeerError:
        return
    assert join_bundles(read) == damaged
    for one in read:
        assert make_bundle(one.origin, one.step, one.probes, one.skipped, one.signature) == one


def test_the_layout_is_that_of_the_wire_contract():
    assert make_bundle(1, 5, [(7, -2)], 0, SIGNATURE).data == struct.pack(">BIHi", 0, 5, 7, -2) + SIGNATURE
    skipping = struct.pack(">BIIHiHi", 128 + 1, 5, 3, 7, -2, 8, 9) + SIGNATURE
    assert make_bundle(1, 5, [(7, -2), (8, 9)], 3, SIGNATURE).data == skipping
    assert (
        make_bundle(1, 5, [b"abc"] * 2, 0, SIGNATURE).data == struct.pack(">BII", 64 + 1, 5, 3) + b"abcabc" + SIGNATURE
    )


def test_a_signature_covers_the_bundle_the_run_and_the_key():
    key, bundle = bytes([9]) * 32, make_bundle(1, 5, [(7, -2)], 0, SIGNATURE)
    assert bundle.signed_bytes(RUN_ID, key) == b"seedflood bundle 3\0" + RUN_ID + key + bundle.data[:-64]


PAIR = make_bundle(1, 5, [(7, -2)], 0, SIGNATURE).data
PAYLOAD = make_bundle(1, 5, [b"abc"], 0, SIGNATURE).data


@pytest.mark.parametrize(
    ("origins", "data", "reason"),
    [
        ([], PAIR, "columns"),
        ([1, 2], PAIR, "columns"),
        ([1], PAIR + PAIR, "columns"),
        ([1], PAIR[:-1], "columns"),
        ([1], PAIR[:1], "columns"),
        ([1], PAIR + b"\0", "columns"),
        ([1, 2], PAIR + PAYLOAD[:7], "columns"),
        ([1], PAYLOAD[:-1], "columns"),
        ([1], struct.pack(">BII", 128, 5, 0) + PAIR[5:], "limit"),
        ([1], struct.pack(">BII", 128, 5, 6) + PAIR[5:], "limit"),
        ([1], struct.pack(">BII", 64, 5, 0) + SIGNATURE, "limit"),
        ([1], struct.pack(">BII", 64, 5, BUNDLE_BYTES_MAX + 1) + bytes(BUNDLE_BYTES_MAX + 65), "limit"),
        ([1], struct.pack(">BII", 65, 5, BUNDLE_BYTES_MAX // 2 + 1) + bytes(BUNDLE_BYTES_MAX + 66), "limit"),
    ],
)
def test_what_is_no_bundle_is_refused(origins, data, reason):
    with pytest.raises(PeerError) as caught:
        read_bundles(origins, data)
    assert caught.value.reason == reason


def test_bundles_of_all_shapes_stand_behind_each_other():
    shapes = [(1, 0), (1, 0), (2, 0), (1, 3), (1, 0), (64, 0)]
    some = [C.bundle(10 * k + 70, count, skipped=skipped) for k, (count, skipped) in enumerate(shapes)]
    some.insert(3, make_bundle(C.id, 1, [b"x" * 9]))
    assert read_bundles([C.id] * len(some), join_bundles(some)) == some
