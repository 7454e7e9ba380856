"""Payloads mean integers within bounds or are refused; what is signed is all of a bundle."""

from hypothesis import assume, given
from hypothesis import strategies as st

from seedflood.protocol.seedflood.messages import SCALAR_MAX, Bundle, Update
from seedflood.protocol.seedflood.payload import (
    PAIRS,
    VALUE_MAX,
    Coefficients,
    Pairs,
    decode_coefficients,
    encode_coefficients,
)

tellings = st.builds(Coefficients, groups=st.lists(st.integers(1, 9), min_size=1, max_size=5).map(tuple))


@st.composite
def quantised(draw):
    """A telling, exponents, values."""
    telling = draw(tellings)
    exponents = draw(
        st.lists(st.integers(0, telling.exponent_max), min_size=len(telling.groups), max_size=len(telling.groups))
    )
    values = draw(st.lists(st.integers(-VALUE_MAX, VALUE_MAX), min_size=telling.values, max_size=telling.values))
    return telling, exponents, values


@given(quantised())
def test_quantised_values_survive_and_are_admitted(drawn):
    telling, exponents, values = drawn
    payload = encode_coefficients(telling, exponents, values)
    assert len(payload) == telling.size
    assert telling.admits([payload])
    scales = [exponent for exponent, count in zip(exponents, telling.groups, strict=True) for _ in range(count)]
    assert decode_coefficients(telling, payload) == [q * 2**e for q, e in zip(values, scales, strict=True)]


@given(tellings, st.data())
def test_whatever_is_admitted_means_integers_within_bounds_in_one_way_only(telling, data):
    payload = data.draw(st.binary(min_size=telling.size, max_size=telling.size))
    if telling.admits([payload]):
        integers = decode_coefficients(telling, payload)
        assert len(integers) == telling.values
        assert max(map(abs, integers)) <= SCALAR_MAX
        exponents = payload[: len(telling.groups)]
        scales = [e for e, count in zip(exponents, telling.groups, strict=True) for _ in range(count)]
        values = [value >> scale for value, scale in zip(integers, scales, strict=True)]
        assert encode_coefficients(telling, exponents, values, Update(0, 0, payload).loss) == payload


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
    payload[scales + value] = 0x80
    assert not telling.admits([bytes(payload)])


def test_the_largest_exponent_keeps_the_largest_value_below_the_cap():
    exponent = Coefficients((1,)).exponent_max
    assert exponent == 25
    assert VALUE_MAX << exponent <= SCALAR_MAX < VALUE_MAX << exponent + 1


limits = st.integers(127, SCALAR_MAX)


@given(limits, st.integers(-SCALAR_MAX, SCALAR_MAX))
def test_a_scalar_is_taken_up_to_the_clip_of_the_run(limit, scalar):
    assert Pairs(limit).admits([(5, 0), (5, scalar)]) == (abs(scalar) <= limit)
    assert Pairs(limit).reach == limit


@given(limits, st.integers(0, 29))
def test_no_coefficient_is_taken_that_is_larger_than_the_clip_and_half_of_it_always_is(limit, exponent):
    telling = Coefficients((2, 1), limit=limit)
    is_within = VALUE_MAX << exponent <= limit
    assert telling.admits([encode_coefficients(telling, [0, exponent], [0, 0, VALUE_MAX])]) == is_within
    assert limit < 2 * telling.reach <= 2 * limit


told = st.tuples(st.integers(0, 2**32 - 1), st.integers(-SCALAR_MAX, SCALAR_MAX)) | st.binary(min_size=1, max_size=40)
probes = st.lists(told, min_size=1, max_size=4).filter(lambda some: len(set(map(type, some))) == 1).map(tuple)
bundles = st.builds(Bundle, st.just(1), st.integers(0, 300), probes, st.integers(0, 300), st.just(b""))


@given(bundles, bundles)
def test_two_bundles_never_sign_the_same_bytes(one, other):
    assume(one != other)
    run_id, key = bytes(32), bytes(32)
    assert one.signed_bytes(run_id, key) != other.signed_bytes(run_id, key)
