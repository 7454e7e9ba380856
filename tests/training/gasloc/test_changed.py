import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seedflood.errors import PeerError
from seedflood.training.gasloc.changed import BLOCK, FINGERPRINT_BYTES, fingerprints, take_changed, tell_changed

NUMBERS = 10 * BLOCK + 48


@given(st.sets(st.integers(0, NUMBERS - 1), max_size=5))
def test_both_hold_the_same_after_it_and_only_blocks_that_differ_are_told(places):
    ours_F = torch.zeros(NUMBERS)
    theirs_F = ours_F.clone()
    theirs_F[sorted(places)] = 1.0
    told = tell_changed(theirs_F, fingerprints(ours_F))
    blocks = {place // BLOCK for place in places}
    assert take_changed(ours_F, told) == len(blocks)
    assert torch.equal(ours_F, theirs_F)
    assert len(told) == 2 + sum(4 * (48 if block == 10 else BLOCK) for block in blocks)


def test_fingerprints_are_small():
    assert len(fingerprints(torch.zeros(NUMBERS))) == 11 * FINGERPRINT_BYTES


def test_equal_parameters_take_no_blocks():
    values_F = torch.randn(NUMBERS)
    assert tell_changed(values_F, fingerprints(values_F)) == bytes(2)


BLOCKS = bytes(4 * BLOCK)


@pytest.mark.parametrize(
    "told",
    [
        b"",
        b"\x01",
        b"\x01\0",
        b"\x01\0" + BLOCKS[:-4],
        b"\x01\0" + BLOCKS + b"\0",
        b"\0\x08" + BLOCKS,
        b"\0\x04" + BLOCKS,
        b"\0\0" + BLOCKS,
        b"\x01\0" + b"\xff" * (4 * BLOCK),
    ],
)
def test_answers_that_do_not_fit_are_refused_and_change_nothing(told):
    values_F = torch.ones(NUMBERS)
    with pytest.raises(PeerError):
        take_changed(values_F, told)
    assert torch.equal(values_F, torch.ones(NUMBERS))


def test_fingerprints_of_another_size_are_refused():
    with pytest.raises(PeerError):
        tell_changed(torch.zeros(NUMBERS), bytes(FINGERPRINT_BYTES))
