"""Randomness that is the same on every device: Philox4x32-10, element by element.

Seeded generators of a device are not reproducible: CUDA's numbers change with the model of the GPU and the CPU has
another algorithm. Here every number is a pure function of a 64-bit key and a position, written once in torch int64
arithmetic: a product of two 32-bit words wraps in int64, its high word is a masked shift, and nothing rounds. Floats
appear in the last line only, where they are exact.

Keys come from SHA-256 of what a number is for (purpose, run seed, epoch, parameter name), never from an order.

Shapes: B blocks (of four 32-bit words), N numbers.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

MASK_32 = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10

CHUNK_BLOCKS = 3 << 14
"""Blocks made at once. With 49,152 of them the ten rounds stay in a CPU's cache, and memory is bounded for the largest
matrix. It is a multiple of three, so that no group of `normal` is cut."""

SUM_MEAN = 393_210
"""Mean of twelve 16-bit uniforms: 12 * 65535 / 2."""

Words = tuple[Tensor, Tensor, Tensor, Tensor]


def derive_key(purpose: str, *parts: int | str) -> int:
    """A 64-bit key for this purpose and these parts: the beginning of a SHA-256."""
    text = json.dumps([purpose, *parts], separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(b"seedflood key 1\0" + text.encode()).digest()[:8], "big")


def philox(counter: Words, key: tuple[Tensor | int, Tensor | int]) -> Words:
    """Philox4x32-10 (Salmon et al. 2011). Words are int64 tensors with values below 2^32; shapes broadcast."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        product_0 = c0 * MULTIPLIERS[0]
        product_1 = c2 * MULTIPLIERS[1]
        c0 = ((product_1 >> 32) & MASK_32) ^ c1 ^ k0
        c2 = ((product_0 >> 32) & MASK_32) ^ c3 ^ k1
        c1 = product_1 & MASK_32
        c3 = product_0 & MASK_32
        k0 = (k0 + KEY_INCREMENTS[0]) & MASK_32
        k1 = (k1 + KEY_INCREMENTS[1]) & MASK_32
    return c0, c1, c2, c3


def blocks(key: int, start: int, count: int, device: torch.device | str = "cpu") -> Tensor:
    """Blocks start .. start + count of a key's stream, (B, 4) int64: block b is Philox of the counter (b, 0, 0)."""
    index_B = torch.arange(start, start + count, dtype=torch.int64, device=device)
    zero_B = torch.zeros_like(index_B)
    words = philox((index_B & MASK_32, index_B >> 32, zero_B, zero_B), (key & MASK_32, key >> 32))
    return torch.stack(words, dim=-1)


def normal(key: int, count: int, *, device: torch.device | str = "cpu") -> Tensor:
    """The first `count` elements of a key's normal stream, (N,) float32, mean 0, variance 1.

    Three blocks are twelve words, or 24 sixteen-bit uniforms; twelve of them (words 0..5) add up to an even element,
    the others to the odd one after it. The value (sum - 393210) / 65536 is exact in float32.
    """
    out_N = torch.empty(count, dtype=torch.float32, device=device)
    for block, size in _chunks(3 * -(-count // 2)):
        words = blocks(key, block, size, device).view(-1, 6)
        element_N = ((words & 0xFFFF) + (words >> 16)).sum(dim=1)
        _place(out_N, (element_N - SUM_MEAN).to(torch.float32).div_(65536), at=block // 3 * 2)
    return out_N


def rademacher(key: int, count: int) -> Tensor:
    """The first `count` elements of a key's stream of signs, (N,) float32: bit k % 128 of block k // 128."""
    out_N = torch.empty(count, dtype=torch.float32)
    bit = torch.arange(32, dtype=torch.int64)
    for block, size in _chunks(-(-count // 128), CHUNK_BLOCKS // 32):
        bits = (blocks(key, block, size).unsqueeze(-1) >> bit) & 1
        _place(out_N, (1 - 2 * bits).to(torch.float32).flatten(), at=block * 128)
    return out_N


def uniform(keys: Sequence[int], count: int) -> Tensor:
    """The first `count` numbers of each key's uniform stream, (keys, N) float64 within 0 and 1, neither of them: the
    middles of 2^32 equal parts."""
    key_B1 = torch.tensor([[key & MASK_32, key >> 32] for key in keys], dtype=torch.int64).unsqueeze(1)
    index_N = torch.arange(count, dtype=torch.int64)
    zero_N = torch.zeros_like(index_N)
    words = philox((index_N, zero_N, zero_N, zero_N), (key_B1[..., 0], key_B1[..., 1]))
    return (words[0].to(torch.float64) + 0.5) * 2.0**-32


def words_64(key: int, count: int) -> Tensor:
    """The first `count` 64-bit words of a key's stream, (N,) as the signed int64 of equal bits."""
    parts = [blocks(key, block, size).view(-1, 2) for block, size in _chunks(-(-count // 2))]
    pairs = torch.cat(parts) if parts else torch.empty(0, 2, dtype=torch.int64)
    return ((pairs[:, 0] << 32) | pairs[:, 1])[:count]


def bounded(words: Tensor, bound: int) -> Tensor:
    """Maps 32-bit words to 0 .. bound - 1 by multiply and shift; bound <= 2^31 (bias at most bound / 2^32)."""
    return (words * bound) >> 32


def permutation(key: int, count: int) -> Tensor:
    """A permutation of 0 .. count - 1, (N,) int64: the order of the key's 64-bit words, ties by index."""
    return torch.argsort(words_64(key, count), stable=True)


def _chunks(count: int, size_max: int = CHUNK_BLOCKS) -> Iterator[tuple[int, int]]:
    """(the first block of each chunk, how many it has)."""
    for block in range(0, count, size_max):
        yield block, min(size_max, count - block)


def _place(out_N: Tensor, values: Tensor, at: int) -> None:
    """Writes values to out_N from position `at` on; what lies behind its end is dropped."""
    wanted = min(len(values), len(out_N) - at)
    out_N[at : at + wanted] = values[:wanted]
