"""Only blocks that differ: who holds nearly the same parameters is told the rest of them, as float32.

The one who asks sends fingerprints of its own blocks (8 bytes for 64 KiB); the answer is the blocks of the other that
have another fingerprint, with a bit for each block in front. After that both hold the same bits. It pays for frozen
layers, for rows of an embedding that no text has touched, and for a host that comes back with parameters of some
rounds ago; between two trained replicas every block differs.

Fingerprints are no protection: who makes up answers is found by the digest of the offer (exchange.py).

Shapes: F numbers of all parameters (flat.py).
"""

import hashlib

import torch
from torch import Tensor

from seedflood.errors import PeerError

BLOCK = 1 << 14
"""Numbers of a block."""

FINGERPRINT_BYTES = 8


def fingerprints(values_F: Tensor) -> bytes:
    """Of all blocks of float32 numbers in host memory, one after the other."""
    memory = _memory(values_F)
    step = 4 * BLOCK
    return b"".join(
        hashlib.blake2b(memory[start : start + step], digest_size=FINGERPRINT_BYTES).digest()
        for start in range(0, len(memory), step)
    )


def tell_changed(values_F: Tensor, theirs: bytes) -> bytes:
    """Our blocks that whoever sent these fingerprints does not hold. Raises PeerError."""
    ours = fingerprints(values_F)
    if len(theirs) != len(ours):
        raise PeerError("sent fingerprints of parameters of another size", reason="size")
    blocks = len(ours) // FINGERPRINT_BYTES
    places = [slice(FINGERPRINT_BYTES * index, FINGERPRINT_BYTES * (index + 1)) for index in range(blocks)]
    changed = [index for index, place in enumerate(places) if ours[place] != theirs[place]]
    bits = bytearray(-(-blocks // 8))
    for index in changed:
        bits[index // 8] |= 1 << index % 8
    memory = _memory(values_F)
    return b"".join([bits, *(memory[4 * BLOCK * index : 4 * BLOCK * (index + 1)] for index in changed)])


def take_changed(values_F: Tensor, told: bytes) -> int:
    """Writes the blocks over ours, and returns how many there were. Raises PeerError, and changes nothing."""
    memory = _memory(values_F)
    blocks = -(-len(values_F) // BLOCK)
    bits, body = told[: -(-blocks // 8)], told[-(-blocks // 8) :]
    changed = [index for index in range(8 * len(bits)) if bits[index // 8] >> index % 8 & 1]
    step = 4 * BLOCK
    ends = [min(step * (index + 1), len(memory)) for index in changed]
    sizes = [end - step * index for index, end in zip(changed, ends, strict=True)]
    if len(bits) != -(-blocks // 8) or any(index >= blocks for index in changed) or sum(sizes) != len(body):
        raise PeerError("sent blocks of parameters of another size", reason="size")
    if not bool(torch.frombuffer(bytearray(body), dtype=torch.float32).isfinite().all() if body else True):
        raise PeerError("sent parameters that are no finite numbers", reason="parameters")
    start = 0
    for index, size in zip(changed, sizes, strict=True):
        memory[step * index : step * index + size] = body[start : start + size]
        start += size
    return len(changed)


def _memory(values_F: Tensor) -> memoryview:
    return values_F.detach().numpy().data.cast("B")
