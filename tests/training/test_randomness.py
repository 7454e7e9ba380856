import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from randomgen import Philox

from seedflood.training import randomness

keys = st.integers(0, 2**64 - 1)


def philox_words(counter: tuple[int, ...], key: tuple[int, int]) -> list[int]:
    words = randomness.philox(tuple(torch.tensor([word]) for word in counter), key)
    return [int(word) for word in words]


def oracle_words(key: int, first_block: int, blocks: int) -> np.ndarray:
    counter = (first_block - 1) % 2**128  # The oracle advances its counter before it makes a block.
    return Philox(key=key, counter=counter, number=4, width=32).random_raw(4 * blocks).reshape(blocks, 4)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_gives_the_known_answers(counter, key, expected):
    assert philox_words(counter, key) == [int(word, 16) for word in expected.split()]


@given(key=keys, start=st.integers(0, 2**62), count=st.integers(1, 20))
def test_blocks_are_those_of_the_oracle(key, start, count):
    assert np.array_equal(randomness.blocks(key, start, count).numpy(), oracle_words(key, start, count))


@given(key=keys, count=st.integers(1, 40))
def test_normal_is_the_sum_of_twelve_uniforms_of_the_oracle(key, count):
    halves = oracle_words(key, 0, 3 * ((count + 1) // 2)).astype("<u4").view("<u2").reshape(-1, 12)
    expected = (halves.astype(np.int64).sum(axis=1) - 393210) / 65536
    assert np.array_equal(randomness.normal(key, count).numpy(), expected[:count].astype(np.float32))
    assert np.array_equal(expected.astype(np.float32).astype(np.float64), expected)


@given(key=keys, count=st.integers(1, 300))
def test_rademacher_signs_are_the_bits_of_the_oracle(key, count):
    words = oracle_words(key, 0, (count + 127) // 128).astype("<u4").flatten()
    expected = 1 - 2 * ((words[:, None] >> np.arange(32)) & 1).astype(np.int64).flatten()
    assert np.array_equal(randomness.rademacher(key, count).numpy(), expected[:count])


@pytest.mark.parametrize("draw", [randomness.normal, randomness.rademacher])
@given(key=keys, count=st.integers(0, 1300), chunk=st.integers(1, 300))
def test_an_element_depends_neither_on_the_size_nor_on_the_chunks(draw, key, count, chunk):
    whole = draw(key, 1300)
    before = randomness.CHUNK_BLOCKS
    try:
        randomness._chunks.__defaults__ = (3 * chunk,)
        part = draw(key, count)
    finally:
        randomness._chunks.__defaults__ = (before,)
    assert torch.equal(part, whole[:count])


def test_normal_has_mean_zero_and_variance_one():
    sample = randomness.normal(5, 200_000).to(torch.float64)
    assert abs(float(sample.mean())) < 0.01
    assert abs(float(sample.var()) - 1) < 0.01
    assert float(sample.abs().max()) < 6.0


def test_a_key_belongs_to_its_purpose_and_parts():
    variants = [("basis", 1, 2, "a"), ("basis", 12, "a"), ("basis", 1, 2, "b"), ("batch", 1, 2, "a"), ("basis", "1", 2)]
    assert len({randomness.derive_key(*variant) for variant in variants}) == len(variants)
    assert randomness.derive_key("basis u", 1, 0, "lm_head.weight") == 17469386612116320016


@given(key=keys, count=st.integers(0, 400))
def test_a_permutation_holds_every_index_once(key, count):
    order = randomness.permutation(key, count).tolist()
    assert sorted(order) == list(range(count))
    assert order == randomness.permutation(key, count).tolist()


@given(word=st.integers(0, 2**32 - 1), bound=st.integers(1, 2**31))
def test_bounded_scales_a_word_to_its_bound(word, bound):
    assert int(randomness.bounded(torch.tensor([word]), bound)) == word * bound // 2**32


@pytest.mark.gpu
def test_a_gpu_makes_the_same_numbers_bit_for_bit():
    count = 1_000_003
    on_gpu = randomness.normal(11, count, device="cuda").cpu()
    assert torch.equal(on_gpu, randomness.normal(11, count))
