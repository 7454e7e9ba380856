import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seedflood.training.gasloc.encodings import BLOCK, ENCODINGS, PIECE, payload_size, pieces_of

NAMES = sorted(ENCODINGS)
LOSSY = [name for name in NAMES if not ENCODINGS[name].is_exact]

values = st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=2 * BLOCK + 3).map(
    lambda numbers: torch.tensor(numbers, dtype=torch.float32)
)


def decoded(name, values_N):
    encoding = ENCODINGS[name]
    payload = encoding.encode(values_N)
    assert payload.dtype == torch.uint8
    assert len(payload) == encoding.size(len(values_N))
    return encoding.decode(payload)


@given(values)
def test_float32_is_exact(values_N):
    assert torch.equal(decoded("float32", values_N), values_N)


@given(values)
def test_bfloat16_keeps_eight_bits(values_N):
    error_N = (decoded("bfloat16", values_N) - values_N).abs()
    assert (error_N <= values_N.abs() * 2.0**-8 + 1e-38).all()


@given(values)
def test_a_byte_is_off_by_half_a_step_of_its_block(values_N):
    found_N = decoded("uint8", values_N)
    for start in range(0, len(values_N), BLOCK):
        block, found = values_N[start : start + BLOCK].double(), found_N[start : start + BLOCK].double()
        step = float(block.max() - block.min()) / 255
        rounding = float(block.abs().max()) * 1e-6 + 255 * 2.0**-126  # a step below the normal range of float32 is 0
        assert float((found - block).abs().max()) <= step / 2 + rounding


@given(values, st.sampled_from(NAMES))
def test_what_is_decoded_is_finite_if_it_was(values_N, name):
    encoding = ENCODINGS[name]
    payload = encoding.encode(values_N)
    assert encoding.decode(payload).isfinite().all()


def test_equal_numbers_are_told_exactly():
    assert torch.equal(decoded("uint8", torch.full((BLOCK + 5,), 0.1)), torch.full((BLOCK + 5,), 0.1))


@given(st.integers(1, 3 * PIECE), st.sampled_from(NAMES))
def test_pieces_cover_numbers_and_payload_without_a_gap(numbers, name):
    pieces, encoding = pieces_of(numbers), ENCODINGS[name]
    assert (pieces[0].start, pieces[-1].stop) == (0, numbers)
    assert all(before.stop == after.start for before, after in itertools.pairwise(pieces))
    sizes = [encoding.size(piece.stop - piece.start) for piece in pieces]
    assert sum(sizes) == payload_size(encoding, numbers)
    assert set(sizes[:-1]) <= {encoding.size(PIECE)}


@pytest.mark.parametrize(("name", "most"), [("float32", 4.0), ("bfloat16", 2.0), ("uint8", 1.0313)])
def test_a_number_takes_so_many_bytes(name, most):
    assert payload_size(ENCODINGS[name], 1 << 24) <= most * (1 << 24)


def symmetric(values_N):
    """The alternative to a range: a scale around zero per block."""
    values_KB = values_N.view(-1, BLOCK)
    scale_K1 = values_KB.abs().amax(dim=1, keepdim=True).clamp_min(1e-30) / 127
    return ((values_KB / scale_K1).round() * scale_K1).view(-1)


@pytest.mark.shared
def test_on_a_trained_model_a_range_is_better_than_a_scale(shared):
    from safetensors.torch import load_file

    weights = load_file(shared / "models" / "tiny-opt" / "model.safetensors")
    vectors = [value.float() for name, value in sorted(weights.items()) if value.dim() == 1]
    matrices = [value.float().flatten() for name, value in sorted(weights.items()) if value.dim() == 2]
    for parts, factor in ((matrices, 0.95), (vectors, 0.9)):
        values_N = torch.cat(parts)
        values_N = values_N[: len(values_N) // BLOCK * BLOCK]
        ranged = torch.linalg.vector_norm(decoded("uint8", values_N) - values_N)
        scaled = torch.linalg.vector_norm(symmetric(values_N) - values_N)
        print(float(ranged / scaled))
        assert ranged < factor * scaled
