"""Payloads mean integers within bounds or are refused."""

from hypothesis import given
from hypothesis import strategies as st

from seedflood.protocol.seedflood.bundles import SCALAR_MAX
from seedflood.protocol.seedflood.payload import COEFFICIENT_MAX, NO_ROW, NOTHING, PAIRS, Coefficients, Pairs, Sparse
from simulation.seedflood.compression import decode_coefficients, encode_coefficients

sparse = st.tuples(st.integers(1, 4), st.integers(0, 400), st.integers(1, 9)).map(
    lambda a: Sparse(a[0], sum(a[:2]), a[2])
)
compressions = st.builds(
    Coefficients,
    groups=st.lists(st.integers(1, 9), min_size=1, max_size=5).map(tuple),
    sparse=st.just(NOTHING) | sparse,
)


def many(values, count):
    return st.lists(values, min_size=count, max_size=count)


@st.composite
def quantised(draw, *, rows_least=0):
    """What `encode_coefficients` takes."""
    compression = draw(compressions.filter(lambda one: one.sparse.kept >= rows_least))
    exponents = draw(many(st.integers(0, compression.exponent_max), compression.exponents))
    signs, sparse = draw(many(st.booleans(), sum(compression.groups))), compression.sparse
    rows = draw(st.sets(st.integers(0, max(0, sparse.rows - 1)), min_size=rows_least, max_size=sparse.kept))
    return compression, exponents, signs, 7, {row: draw(many(st.booleans(), sparse.columns)) for row in sorted(rows)}


@given(quantised())
def test_signs_and_sizes_survive_and_are_admitted(drawn):
    compression, exponents, signs, _, rows = drawn
    payload = encode_coefficients(*drawn)
    assert len(payload) == compression.size
    assert compression.admits([payload])
    counts = [*compression.groups, compression.sparse.values]
    scales = [exponent for exponent, count in zip(exponents, counts, strict=False) for _ in range(count)]
    absent = [None] * compression.sparse.columns
    told = signs + [sign for row in range(compression.sparse.rows) for sign in rows.get(row, absent)]
    ways = [0 if sign is None else 1 if sign else -1 for sign in told]
    expected = [way * 2 ** (e - 1) if e else 0 for way, e in zip(ways, scales, strict=True)]
    assert decode_coefficients(compression, payload) == expected


@given(quantised(rows_least=2), st.data())
def test_a_row_that_does_not_exist_or_is_told_twice_or_out_of_order_is_refused(drawn, data):
    compression, *_, rows = drawn
    payload, size = encode_coefficients(*drawn), compression.sparse.row_bytes
    at = compression.rows_at + size * data.draw(st.integers(0, len(rows) - 2))
    first, second = payload[at : at + size], payload[at + size : at + 2 * size]
    missing = data.draw(st.integers(compression.sparse.rows, NO_ROW)).to_bytes(2, "little") + first[2:]
    for wrong in (first + first, second + first, missing + second):
        assert not compression.admits([payload[:at] + wrong + payload[at + 2 * size :]])


@given(compressions, st.data())
def test_whatever_is_admitted_means_integers_within_bounds(compression, data):
    payload = data.draw(st.binary(min_size=compression.size, max_size=compression.size))
    if compression.admits([payload]):
        integers = decode_coefficients(compression, payload)
        assert len(integers) == compression.values
        assert max(map(abs, integers)) <= compression.reach <= COEFFICIENT_MAX


@given(quantised())
def test_a_payload_of_another_size_is_refused(drawn):
    payload = encode_coefficients(*drawn)
    compression = drawn[0]
    assert not compression.admits([payload, payload[:-1]])
    assert not compression.admits([payload, payload + b"\0"])
    assert not compression.admits([(1, 2)])
    assert not PAIRS.admits([payload])


@given(quantised(), st.data())
def test_exponents_beyond_the_largest_are_refused(drawn, data):
    compression, exponents, *_ = drawn
    at = data.draw(st.integers(0, len(exponents) - 1))
    exponents[at] = data.draw(st.integers(compression.exponent_max + 1, 255))
    assert not compression.admits([encode_coefficients(*drawn)])


def test_the_largest_exponent_means_the_largest_number():
    compression = Coefficients((1,))
    assert compression.exponent_max == 33
    assert decode_coefficients(compression, encode_coefficients(compression, [33], [True])) == [COEFFICIENT_MAX]


@given(st.integers(1, SCALAR_MAX), st.integers(-SCALAR_MAX, SCALAR_MAX))
def test_a_scalar_is_taken_up_to_the_clip_of_the_run(limit, scalar):
    assert Pairs(limit).admits([(5, 0), (5, scalar)]) == (abs(scalar) <= limit)
    assert Pairs(limit).reach == limit


def test_the_one_scalar_that_fits_into_a_bundle_and_is_beyond_all_limits_is_refused():
    assert PAIRS.admits([(5, -SCALAR_MAX)])
    assert not PAIRS.admits([(5, -SCALAR_MAX - 1)])


@given(st.integers(1, COEFFICIENT_MAX), st.integers(1, 36))
def test_no_coefficient_is_taken_that_is_larger_than_the_clip_and_half_of_it_always_is(limit, exponent):
    compression = Coefficients((2, 1), limit=limit)
    is_within = 2 ** (exponent - 1) <= limit
    assert compression.admits([encode_coefficients(compression, [0, exponent], [False, False, True])]) == is_within
    assert limit < 2 * compression.reach <= 2 * limit
