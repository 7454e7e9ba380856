"""What a worker offers of its parameters, and what arrives of those of another: payloads, read and written in parts.

An offer makes its bytes when they are read, and holds one piece at a time: of float32 in host memory not even that,
for there the bytes are the parameters themselves. So nobody may change the offered numbers until the offer is closed
by an outer step. An arrival is one buffer of the payload's size. Both together stay below 1.2 copies of float32
parameters, whatever the encoding.

**Error feedback.** What an encoding leaves out of a number is kept (`residual_F`, bfloat16) and added to what is told
next. So errors do not pile up: after any number of rounds, all that was told and all that should have been differ by
one round's error. It counts only from when somebody took the offer: `told` is the same bytes until then.

Shapes: F numbers of all parameters (flat.py), N of a piece.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterator

import torch
from torch import Tensor

from seedflood.errors import PeerError
from seedflood.training.gasloc.encodings import ENCODINGS, Encoding, EncodingName, Piece, payload_size, pieces_of


class Offer:
    """What is told of flat parameters. Its digest names it: 32 bytes, over the encoding and the payload.

    phi_F: the numbers, which must stay as they are. residual_F: what was left out before, or None for an encoding
    that leaves out nothing.
    """

    def __init__(self, phi_F: Tensor, encoding: EncodingName, residual_F: Tensor | None = None) -> None:
        self.encoding: Encoding = ENCODINGS[encoding]
        self.numbers = len(phi_F)
        self.size = payload_size(self.encoding, self.numbers)
        self.pieces = pieces_of(self.encoding, self.numbers)
        self._phi_F = phi_F
        self._residual_F = None if self.encoding.is_exact else residual_F
        self._starts = [piece.first_byte for piece in self.pieces]
        self._made: tuple[int, Tensor] | None = None
        self._digest: bytes | None = None

    @property
    def digest(self) -> bytes:
        """Reads the whole payload once, the first time."""
        if self._digest is None:
            hasher = _hasher(self.encoding, self.numbers)
            for index in range(len(self.pieces)):
                hasher.update(_bytes(self._encoded(index)))
            self._digest = hasher.digest()
        return self._digest

    def read(self, offset: int, length: int) -> Iterator[memoryview]:
        """The bytes from there on, in parts; fewer where the payload ends. No copies in host memory."""
        end = min(offset + length, self.size)
        while offset < end:
            index = bisect_right(self._starts, offset) - 1
            piece = self.pieces[index]
            until = min(end, piece.end_byte)
            yield _bytes(self._encoded(index))[offset - piece.first_byte : until - piece.first_byte]
            offset = until

    def told(self, index: int) -> Tensor:
        """What others take a piece for, float32. A view of the numbers themselves if the encoding is exact."""
        piece = self.pieces[index]
        return self.encoding.decode(self._encoded(index), piece.end - piece.start)

    def settle(self, index: int, told_N: Tensor) -> None:
        """Keeps what was left out of a piece: it was taken. Before the numbers of the piece change."""
        if self._residual_F is not None:
            part = _part(self.pieces[index])
            self._residual_F[part] = self._wanted(index).sub_(told_N)
            self._made = None

    def _wanted(self, index: int) -> Tensor:
        """A new tensor: the numbers, and what was left out of them before."""
        part = _part(self.pieces[index])
        assert self._residual_F is not None
        return self._phi_F[part] + self._residual_F[part]

    def _encoded(self, index: int) -> Tensor:
        if self._made is None or self._made[0] != index:
            is_plain = self._residual_F is None
            values_N = self._phi_F[_part(self.pieces[index])] if is_plain else self._wanted(index)
            self._made = index, self.encoding.encode(values_N)
        return self._made[1]


class Arrival:
    """The payload of somebody else's offer, as it comes in, in any order and perhaps twice.

    digest: of the offer. Raises PeerError, here and at the end, for what no honest host offers.
    """

    def __init__(
        self, numbers: int, encoding: str, size: int, digest: bytes, device: torch.device | str = "cpu"
    ) -> None:
        """numbers: of our own parameters. size: as it was offered."""
        known = next((one for one in ENCODINGS.values() if one.name == encoding), None)
        if known is None:
            raise PeerError(f"offers parameters in an unknown encoding, {encoding[:32]!r}", reason="encoding")
        if size != payload_size(known, numbers):
            raise PeerError(f"offers {size} bytes of parameters, not {payload_size(known, numbers)}", reason="size")
        self.encoding = known
        self.pieces = pieces_of(known, numbers)
        self.size = size
        self._numbers = numbers
        self._digest = digest
        self._device = device
        self._payload = torch.empty(size, dtype=torch.uint8)
        self._memory = _bytes(self._payload)

    @property
    def memory(self) -> memoryview:
        """Where the payload goes: whoever receives may write here."""
        return self._memory

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Takes a part. Raises PeerError for one that lies outside."""
        part = memoryview(data).cast("B")
        if offset < 0 or offset + len(part) > self.size:
            raise PeerError("sends parameters beyond the end of its offer", reason="size")
        self._memory[offset : offset + len(part)] = part

    def check(self) -> None:
        """All has come: is it what was offered, and made of numbers? Raises PeerError."""
        hasher = _hasher(self.encoding, self._numbers)
        hasher.update(self._memory)
        if hasher.digest() != self._digest:
            raise PeerError("sent other parameters than it offered", reason="digest")
        for piece in self.pieces:
            if not self.encoding.is_finite(self._payload[piece.first_byte : piece.end_byte], piece.end - piece.start):
                raise PeerError("sent parameters that are no finite numbers", reason="parameters")

    def piece(self, index: int) -> Tensor:
        """The numbers of a piece, on the device; perhaps a view, to be left as it is."""
        piece = self.pieces[index]
        payload = self._payload[piece.first_byte : piece.end_byte].to(self._device)
        return self.encoding.decode(payload, piece.end - piece.start)


def _hasher(encoding: Encoding, numbers: int) -> "hashlib._Hash":
    return hashlib.sha256(f"seedflood parameters 1\0{encoding.name}\0{numbers}\0".encode())


def _bytes(payload: Tensor) -> memoryview:
    return payload.detach().cpu().numpy().data.cast("B")


def _part(piece: Piece) -> slice:
    return slice(piece.start, piece.end)
