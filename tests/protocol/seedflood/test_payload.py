"""Payloads mean integers within bounds or are refused; what is signed is all of a bundle."""

from hypothesis import assume, given
from hypothesis import strategies as st

from seedflood.protocol.seedflood.messages import SCALAR_MAX, Bundle
from seedflood.protocol.seedflood.payload import NO_ROW, NOTHING, PAIRS, Coefficients, Pairs, Sparse
from simulation.seedflood.telling import decode_coefficients, encode_coefficients

sparse = st.tuples(st.integers(1, 4), st.integers(0, 400), st.integers(1, 9)).map(
    lambda a: Sparse(a[0], sum(a[:2]), a[2])
)
tellings = st.builds(
    Coefficients,
    groups=st.lists(st.integers(1, 9), min_size=1, max_size=5).map(tuple),
    sparse=st.just(NOTHING) | sparse,
)


def many(values, count):
    return st.lists(values, min_size=count, max_size=count)


@st.composite
def quantised(draw, *, rows_least=0):
    """What `encode_coefficients` takes."""
    telling = draw(tellings.filter(lambda one: one.sparse.told >= rows_least))
    exponents = draw(many(st.integers(0, telling.exponent_max), telling.exponents))
    signs, sparse = draw(many(st.booleans(), sum(telling.groups))), telling.sparse
    rows = draw(st.sets(st.integers(0, max(0, sparse.rows - 1)), min_size=rows_least, max_size=sparse.told))
    return telling, exponents, signs, 7, {row: draw(many(st.booleans(), sparse.columns)) for row in sorted(rows)}


@given(quantised())
def test_signs_and_sizes_survive_and_are_admitted(drawn):
    telling, exponents, signs, _, rows = drawn
    payload = encode_coefficients(*drawn)
    assert len(payload) == telling.size
    assert telling.admits([payload])
    counts = [*telling.groups, telling.sparse.values]
    scales = [exponent for exponent, count in zip(exponents, counts, strict=False) for _ in range(count)]
    absent = [None] * telling.sparse.columns
    told = signs + [sign for row in range(telling.sparse.rows) for sign in rows.get(row, absent)]
    ways = [0 if sign is None else 1 if sign else -1 for sign in told]
    expected = [way * 2 ** (e - 1) if e else 0 for way, e in zip(ways, scales, strict=True)]
    assert decode_coefficients(telling, payload) == expected


@given(quantised(rows_least=2), st.data())
def test_a_row_that_does_not_exist_or_is_told_twice_or_out_of_order_is_refused(drawn, data):
    telling, *_, rows = drawn
    payload, size = encode_coefficients(*drawn), telling.sparse.row_bytes
    at = telling.rows_at + size * data.draw(st.integers(0, len(rows) - 2))
    first, second = payload[at : at + size], payload[at + size : at + 2 * size]
    missing = data.draw(st.integers(telling.sparse.rows, NO_ROW)).to_bytes(2, "little") + first[2:]
    for wrong in (first + first, second + first, missing + second):
        assert not telling.admits([payload[:at] + wrong + payload[at + 2 * size :]])


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
    telling, exponents, *_ = drawn
    at = data.draw(st.integers(0, len(exponents) - 1))
    exponents[at] = data.draw(st.integers(telling.exponent_max + 1, 255))
    assert not telling.admits([encode_coefficients(*drawn)])


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
