"""Payloads mean integers within bounds or are refused; what is signed is all of a bundle."""

from hypothesis import assume, given
from hypothesis import strategies as st

from seedflood.protocol.seedflood.messages import SCALAR_MAX, Bundle
from seedflood.protocol.seedflood.payload import (
    PAIRS,
    Coefficients,
    Pairs,
)
from simulation.seedflood.telling import decode_coefficients, encode_coefficients

tellings = st.builds(Coefficients, groups=st.lists(st.integers(1, 9), min_size=1, max_size=5).map(tuple))


@st.composite
def quantised(draw):
    """A telling, exponents, signs."""
    telling = draw(tellings)
    exponents = draw(
        st.lists(st.integers(0, telling.exponent_max), min_size=len(telling.groups), max_size=len(telling.groups))
    )
    signs = draw(st.lists(st.booleans(), min_size=telling.values, max_size=telling.values))
    return telling, exponents, signs


@given(quantised())
def test_signs_and_sizes_survive_and_are_admitted(drawn):
    telling, exponents, signs = drawn
    payload = encode_coefficients(telling, exponents, signs)
    assert len(payload) == telling.size
    assert telling.admits([payload])
    scales = [exponent for exponent, count in zip(exponents, telling.groups, strict=True) for _ in range(count)]
    expected = [(1 if sign else -1) * 2 ** (e - 1) if e else 0 for sign, e in zip(signs, scales, strict=True)]
    assert decode_coefficients(telling, payload) == expected


@given(tellings, st.data())
def test_whatever_is_admitted_means_integers_within_bounds(telling, data):
    payload = data.draw(st.binary(min_size=telling.size, max_size=telling.size))
    if telling.admits([payload]):
        integers = decode_coefficients(telling, payload)
        assert len(integers) == telling.values
        assert max(map(abs, integers)) <= telling.reach <= SCALAR_MAX


@given(quantised())
def test_a_payload_of_another_size_is_refused(drawn):
    payload = encode_coefficients(*drawn)
    telling = drawn[0]
    assert not telling.admits([payload, payload[:-1]])
    assert not telling.admits([payload, payload + b"\0"])
    assert not telling.admits([(1, 2)])
    assert not PAIRS.admits([payload])


@given(quantised(), st.data())
def test_exponents_beyond_the_largest_are_refused(drawn, data):
    telling, exponents, signs = drawn
    at = data.draw(st.integers(0, len(exponents) - 1))
    exponents[at] = data.draw(st.integers(telling.exponent_max + 1, 255))
    assert not telling.admits([encode_coefficients(telling, exponents, signs)])


def test_the_largest_exponent_means_the_largest_number():
    telling = Coefficients((1,))
    assert telling.exponent_max == 33
    assert decode_coefficients(telling, encode_coefficients(telling, [33], [True])) == [SCALAR_MAX]


limits = st.integers(1, SCALAR_MAX)


@given(limits, st.integers(-SCALAR_MAX, SCALAR_MAX))
def test_a_scalar_is_taken_up_to_the_clip_of_the_run(limit, scalar):
    assert Pairs(limit).admits([(5, 0), (5, scalar)]) == (abs(scalar) <= limit)
    assert Pairs(limit).reach == limit


@given(limits, st.integers(1, 36))
def test_no_coefficient_is_taken_that_is_larger_than_the_clip_and_half_of_it_always_is(limit, exponent):
    telling = Coefficients((2, 1), limit=limit)
    is_within = 2 ** (exponent - 1) <= limit
    assert telling.admits([encode_coefficients(telling, [0, exponent], [False, False, True])]) == is_within
    assert limit < 2 * telling.reach <= 2 * limit


told = st.tuples(st.integers(0, 2**32 - 1), st.integers(-SCALAR_MAX, SCALAR_MAX)) | st.binary(min_size=1, max_size=40)
probes = st.lists(told, min_size=1, max_size=4).filter(lambda some: len(set(map(type, some))) == 1).map(tuple)
bundles = st.builds(Bundle, st.just(1), st.integers(0, 300), probes, st.integers(0, 300), st.just(b""))


@given(bundles, bundles)
def test_two_bundles_never_sign_the_same_bytes(one, other):
    assume(one != other)
    run_id, key = bytes(32), bytes(32)
    assert one.signed_bytes(run_id, key) != other.signed_bytes(run_id, key)
