"""Payloads mean integers within bounds or are refused; what is signed is all of a bundle."""

from hypothesis import assume, given
from hypothesis import strategies as st

from seedflood.protocol.seedflood.messages import SCALAR_MAX, Bundle
from seedflood.protocol.seedflood.payload import (
    PAIRS,
    Coefficients,
    Pairs,
    decode_coefficients,
    encode_coefficients,
)

tellings = st.builds(
    Coefficients, slots=st.lists(st.integers(1, 9), min_size=1, max_size=5).map(tuple), bits=st.sampled_from([4, 8])
)


@st.composite
def quantised(draw):
    """A telling, exponents, values."""
    telling = draw(tellings)
    most = (1 << telling.bits - 1) - 1
    exponents = draw(
        st.lists(st.integers(0, telling.exponent_max), min_size=len(telling.slots), max_size=len(telling.slots))
    )
    values = draw(st.lists(st.integers(-most, most), min_size=telling.values, max_size=telling.values))
    return telling, exponents, values


@given(quantised())
def test_quantised_values_survive_and_are_admitted(drawn):
    telling, exponents, values = drawn
    payload = encode_coefficients(telling, exponents, values)
    assert len(payload) == telling.size
    assert telling.admits([payload])
    scales = [exponent for exponent, count in zip(exponents, telling.slots, strict=True) for _ in range(count)]
    assert decode_coefficients(telling, payload) == [q * 2**e for q, e in zip(values, scales, strict=True)]


@given(tellings, st.data())
def test_whatever_is_admitted_means_integers_within_bounds_in_one_way_only(telling, data):
    payload = data.draw(st.binary(min_size=telling.size, max_size=telling.size))
    if telling.admits([payload]):
        integers = decode_coefficients(telling, payload)
        assert len(integers) == telling.values
        assert max(map(abs, integers)) <= SCALAR_MAX
        exponents = payload[: len(telling.slots)]
        scales = [e for e, count in zip(exponents, telling.slots, strict=True) for _ in range(count)]
        values = [value >> scale for value, scale in zip(integers, scales, strict=True)]
        assert encode_coefficients(telling, exponents, values) == payload


@given(quantised(), st.data())
def test_a_payload_of_another_size_is_refused(drawn, data):
    telling, exponents, values = drawn
    payload = encode_coefficients(telling, exponents, values)
    assert not telling.admits([payload, payload[:-1]])
    assert not telling.admits([payload, payload + b"\0"])
    assert not telling.admits([(1, 2)])
    assert not PAIRS.admits([payload])


@given(quantised(), st.data())
def test_exponents_beyond_the_largest_and_the_unused_values_are_refused(drawn, data):
    telling, exponents, values = drawn
    payload = bytearray(encode_coefficients(telling, exponents, values))
    scales = len(exponents)
    at = data.draw(st.integers(0, scales - 1))
    beyond = data.draw(st.integers(telling.exponent_max + 1, 255))
    assert not telling.admits([bytes(payload[:at]) + bytes([beyond]) + bytes(payload[at + 1 :])])
    value = data.draw(st.integers(0, telling.values - 1))
    if telling.bits == 8:
        payload[scales + value] = 0x80
    else:
        shift = value % 2 * 4
        payload[scales + value // 2] = payload[scales + value // 2] & (0xF0 >> shift) | 8 << shift
    assert not telling.admits([bytes(payload)])


def test_the_half_byte_that_no_value_needs_is_zero():
    telling = Coefficients((3,), bits=4)
    payload = encode_coefficients(telling, [0], [1, 2, 3])
    assert telling.admits([payload])
    assert not telling.admits([payload[:-1] + bytes([payload[-1] | 0x10])])


def test_the_largest_exponents_keep_the_largest_values_below_the_cap():
    for bits, exponent in ((8, 25), (4, 29)):
        telling = Coefficients((1,), bits=bits)
        most = (1 << bits - 1) - 1
        assert telling.exponent_max == exponent
        assert most << exponent <= SCALAR_MAX < most << exponent + 1


limits = st.integers(127, SCALAR_MAX)


@given(limits, st.integers(-SCALAR_MAX, SCALAR_MAX))
def test_a_scalar_is_taken_up_to_the_clip_of_the_run(limit, scalar):
    assert Pairs(limit).admits([(5, 0), (5, scalar)]) == (abs(scalar) <= limit)
    assert Pairs(limit).reach == limit


@given(limits, st.sampled_from([4, 8]), st.integers(0, 29))
def test_no_coefficient_is_taken_that_is_larger_than_the_clip_and_half_of_it_always_is(limit, bits, exponent):
    telling = Coefficients((2, 1), bits=bits, limit=limit)
    most = (1 << bits - 1) - 1
    assert telling.admits([encode_coefficients(telling, [0, exponent], [0, 0, most])]) == (most << exponent <= limit)
    assert limit < 2 * telling.reach <= 2 * limit


told = st.tuples(st.integers(0, 2**32 - 1), st.integers(-SCALAR_MAX, SCALAR_MAX)) | st.binary(min_size=1, max_size=40)
probes = st.lists(told, min_size=1, max_size=4).filter(lambda some: len(set(map(type, some))) == 1).map(tuple)
bundles = st.builds(Bundle, st.just(1), st.integers(0, 300), probes, st.integers(0, 300), st.just(b""))


@given(bundles, bundles)
def test_two_bundles_never_sign_the_same_bytes(one, other):
    assume(one != other)
    run_id, key = bytes(32), bytes(32)
    assert one.signed_bytes(run_id, key) != other.signed_bytes(run_id, key)
