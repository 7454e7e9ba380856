"""The form of a run: a relay reads what hosts say, and makes nothing else of any bytes."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.errors import PeerError
from seedflood.protocol.seedflood.bundles import SCALAR_MAX
from seedflood.protocol.seedflood.form import Form, unpack_form
from seedflood.protocol.seedflood.payload import COEFFICIENT_MAX, NO_ROW, NOTHING, PAIRS, Coefficients, Pairs, Sparse
from seedflood.protocol.swarm.messages import FORM_BYTES_MAX

compressions = st.builds(Pairs, st.integers(1, SCALAR_MAX)) | st.builds(
    Coefficients,
    st.lists(st.integers(1, 2**32 - 1), min_size=1, max_size=20).map(tuple),
    st.integers(0, 64),
    st.integers(1, COEFFICIENT_MAX),
    st.just(NOTHING) | st.builds(Sparse, st.integers(1, 99), st.integers(99, NO_ROW - 1), st.integers(1, 99)),
)
forms = st.integers(0, 1 << 40).flatmap(
    lambda size: st.builds(Form, st.just(size), st.integers(0, size), compressions, st.none() | st.integers(1, 2**63))
)


@given(forms)
def test_what_is_told_of_a_run_is_read_again(form):
    assert unpack_form(form.pack()) == form


@given(st.binary(max_size=100) | forms.map(Form.pack).flatmap(lambda data: st.binary(max_size=4).map(data.__add__)))
def test_any_bytes_are_a_form_or_refused(data):
    with contextlib.suppress(PeerError):
        assert unpack_form(data).pack() == data


@pytest.mark.parametrize(
    "form",
    [
        Form((1 << 40) + 1, 0, PAIRS, None),
        Form(8, 16, PAIRS, None),
        Form(8, 0, Pairs(SCALAR_MAX + 1), None),
        Form(8, 0, Pairs(0), None),
        *(
            Form(8, 0, Coefficients((1,), sparse=Sparse(*sizes)), None)
            for sizes in ((3, 2, 1), (1, NO_ROW, 1), (1, 2, 0))
        ),
    ],
)
def test_sizes_that_no_host_has_are_refused(form):
    with pytest.raises(PeerError, match="form of a run"):
        unpack_form(form.pack())


def test_the_form_of_a_large_model_fits_into_a_hello():
    assert len(Form(1 << 30, 1 << 20, Coefficients((64,) * 1000, 20), 1 << 50).pack()) <= FORM_BYTES_MAX
