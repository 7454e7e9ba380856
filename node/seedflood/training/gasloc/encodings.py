"""Wire formats of parameters: float32, bfloat16, or 8-bit numbers with a range per block.

A payload is a sequence of pieces of a flat tensor, each encoded by itself, so no buffer of the tensor's size is needed.
All numbers are little endian. A payload decodes to the same float32 numbers everywhere: bits are widened, or one
product and one sum are rounded one after the other. What 8 bits cost: docs/explanation/gossip.md.

Shapes: N numbers of a piece, K blocks.
"""

import sys
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

PIECE = 1 << 18
"""Numbers in a piece: 1 MiB of float32, which fits into a cache. A multiple of `BLOCK`."""

BLOCK = 256

EncodingName = Literal["float32", "bfloat16", "uint8"]

assert sys.byteorder == "little", "parameters travel as they lie in memory"


@dataclass(frozen=True, slots=True)
class Plain:
    """A wire format: numbers as they lie in memory. name: as in settings and offers."""

    name: EncodingName
    dtype: torch.dtype

    @property
    def is_exact(self) -> bool:
        """Does decoding give the encoded numbers back?"""
        return self.dtype == torch.float32

    def size(self, numbers: int) -> int:
        """The size in bytes of one piece of this many numbers."""
        return self.dtype.itemsize * numbers

    def encode(self, values_N: Tensor) -> Tensor:
        """A piece as bytes, (size,) uint8 on the same device; perhaps a view."""
        return values_N.to(self.dtype).view(torch.uint8)

    def decode(self, payload: Tensor) -> Tensor:
        """The float32 numbers of a piece; perhaps a view."""
        return payload.view(self.dtype).to(torch.float32)


@dataclass(frozen=True, slots=True)
class UInt8:
    """Numbers of 8 bits, with a range for each block, for the weights of a norm are all near one: least values, steps,
    then bytes; value = least + step * byte."""

    name: EncodingName = "uint8"
    is_exact: bool = False

    def size(self, numbers: int) -> int:
        return 8 * _blocks(numbers) + numbers

    def encode(self, values_N: Tensor) -> Tensor:
        numbers, blocks = len(values_N), _blocks(len(values_N))
        values = values_N
        if numbers < blocks * BLOCK:
            values = torch.cat([values_N, values_N[-1:].expand(blocks * BLOCK - numbers)])
        values_KB = values.view(blocks, BLOCK)
        least_K, most_K = values_KB.aminmax(dim=1)
        step_K = (most_K - least_K) / 255
        inverse_K = torch.where(step_K >= torch.finfo(torch.float32).tiny, 1 / step_K, 0)
        codes_KB = ((values_KB - least_K.unsqueeze(1)) * inverse_K.unsqueeze(1)).round_().clamp_(0, 255)
        out = torch.empty(self.size(numbers), dtype=torch.uint8, device=values_N.device)
        out[: 4 * blocks].copy_(least_K.view(torch.uint8))
        out[4 * blocks : 8 * blocks].copy_(step_K.view(torch.uint8))
        out[8 * blocks :].copy_(codes_KB.view(-1)[:numbers])
        return out

    def decode(self, payload: Tensor) -> Tensor:
        blocks = -(-len(payload) // (8 + BLOCK))  # only the last one may be short
        numbers = len(payload) - 8 * blocks
        least_K, step_K = payload[: 8 * blocks].view(torch.float32).view(2, blocks)
        values_KB = torch.zeros(blocks * BLOCK, dtype=torch.float32, device=payload.device)
        values_KB[:numbers].copy_(payload[8 * blocks :])
        values_KB = values_KB.view(blocks, BLOCK)
        return values_KB.mul_(step_K.unsqueeze(1)).add_(least_K.unsqueeze(1)).view(-1)[:numbers]


Encoding = Plain | UInt8
ENCODINGS: dict[EncodingName, Encoding] = {
    "float32": Plain("float32", torch.float32),
    "bfloat16": Plain("bfloat16", torch.bfloat16),
    "uint8": UInt8(),
}


def payload_size(encoding: Encoding, numbers: int) -> int:
    """The size in bytes of a payload of this many numbers."""
    whole, rest = divmod(numbers, PIECE)
    return whole * encoding.size(PIECE) + encoding.size(rest)


def stride(encoding: Encoding) -> int:
    """The size in bytes of every piece of a payload but the last."""
    return encoding.size(PIECE)


def pieces_of(numbers: int) -> list[slice]:
    """The parts of a flat tensor that are encoded by themselves."""
    return [slice(start, min(start + PIECE, numbers)) for start in range(0, numbers, PIECE)]


def _blocks(numbers: int) -> int:
    return -(-numbers // BLOCK)
