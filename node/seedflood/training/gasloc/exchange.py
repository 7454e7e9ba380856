"""Parameters as bytes: what a worker offers, and what arrives from a partner, read and written in parts.

An offer encodes its bytes when they are read; for float32 in host memory they are the parameters themselves. So the
offered numbers must not change until the round is mixed. A round mixes differences: ours minus theirs, both as they
were sent. `Outgoing` is a `Content` of `protocol/gasloc/transfer.py`.

What becomes of the error of an encoding: docs/explanation/gossip.md.

Shapes: F numbers of all parameters (flat.py), N of a piece.
"""

import hashlib
import math
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from seedflood.errors import PeerError
from seedflood.training.gasloc.encodings import ENCODINGS, Encoding, EncodingName, payload_size, pieces_of, stride


class Stored(Protocol):
    """A one-dimensional array, perhaps in a file."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> NDArray[Any]: ...


class Outgoing:
    """Flat parameters, encoded for partners. digest: 32 bytes over encoding and payload; it names the offer. To make
    one encodes the whole payload once, so it is made where this holds up nobody.

    phi_F: the numbers, which must not change. residual_F: the error of earlier offers, which is added to this one, so
    errors do not add up; bfloat16, half a copy of the parameters. None if the encoding is exact.
    """

    def __init__(self, phi_F: Tensor, encoding: EncodingName, residual_F: Tensor | None = None) -> None:
        self.encoding: Encoding = ENCODINGS[encoding]
        self.numbers = len(phi_F)
        self.size = payload_size(self.encoding, self.numbers)
        self.pieces = pieces_of(self.numbers)
        self._phi_F = phi_F
        self._residual_F = None if self.encoding.is_exact else residual_F
        self._made: tuple[int, Tensor] | None = None
        hasher = begin_digest(self.encoding, self.numbers)
        for index in range(len(self.pieces)):
            hasher.update(_bytes(self._encoded(index)))
        self.digest = hasher.digest()

    def read(self, offset: int, count: int) -> memoryview | bytes:
        """Up to `count` bytes from `offset` on. Within a piece in host memory they are not copied."""
        end, parts = min(offset + count, self.size), []
        while offset < end:
            index, begin = divmod(offset, stride(self.encoding))
            parts.append(_bytes(self._encoded(index))[begin : begin + end - offset])
            offset += len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def sent(self, index: int) -> Tensor:
        """A piece as the receiver decodes it, float32. It is a view of the numbers themselves if the encoding is
        exact."""
        return self.encoding.decode(self._encoded(index))

    def settle(self, index: int, sent_N: Tensor) -> None:
        """Keeps the error of a piece, which was mixed. Call it before the numbers of the piece change."""
        if self._residual_F is not None:
            self._residual_F[self.pieces[index]] = self._wanted(index).sub_(sent_N)
            self._made = None

    def _wanted(self, index: int) -> Tensor:
        """A new tensor: the numbers plus the residual."""
        assert self._residual_F is not None
        return self._phi_F[self.pieces[index]] + self._residual_F[self.pieces[index]]

    def _encoded(self, index: int) -> Tensor:
        made = self._made  # the loop may read while the compute thread mixes
        if made is None or made[0] != index:
            values_N = self._phi_F[self.pieces[index]] if self._residual_F is None else self._wanted(index)
            made = self._made = index, self.encoding.encode(values_N)
        return made[1]


class Arrival:
    """The payload of a partner's offer."""

    def __init__(
        self,
        numbers: int,
        encoding: EncodingName,
        payload: Stored,
        digest: bytes,
        *,
        device: torch.device | str = "cpu",
        norm_max: float = math.inf,
    ) -> None:
        """numbers: how many our parameters have. payload: all bytes, uint8. digest: as offered. norm_max: no replica of
        the run has a norm like this.

        Raises PeerError for a size that the parameters of the run do not have.
        """
        self.encoding = ENCODINGS[encoding]
        expected = payload_size(self.encoding, numbers)
        if len(payload) != expected:
            raise PeerError(f"sent {len(payload):,} bytes of parameters, not {expected:,}", reason="size")
        self._numbers = numbers
        self._norm_max = norm_max
        self._digest = digest
        self._device = device
        self._payload = payload
        self._read: tuple[int, Tensor] | None = None

    def check(self) -> None:
        """Raises PeerError if the bytes do not have the offered digest, or are beyond what parameters of the run can
        be."""
        hasher, squares = begin_digest(self.encoding, self._numbers), 0.0
        for index in range(len(pieces_of(self._numbers))):
            payload = self._piece(index)
            hasher.update(_bytes(payload))
            sent_N = self.encoding.decode(payload)
            squares += float(torch.linalg.vector_norm(sent_N, dtype=torch.float64)) ** 2
        if hasher.digest() != self._digest:
            raise PeerError("sent other parameters than it offered", reason="digest")
        if not math.sqrt(squares) < self._norm_max:  # also if one of them is not a number
            raise PeerError("sent parameters that no host of this run can have", reason="parameters")

    def sent(self, index: int) -> Tensor:
        """The numbers of a piece, on the device. It may be a view: do not change it."""
        return self.encoding.decode(self._piece(index).to(self._device))

    def _piece(self, index: int) -> Tensor:
        """The bytes of a piece. The last one is cached, because it is used right after its check."""
        if self._read is None or self._read[0] != index:
            size = stride(self.encoding)
            self._read = index, torch.from_numpy(self._payload[index * size : (index + 1) * size])
        return self._read[1]


class Difference:
    """Our parameters minus those of a partner, for one round, both as they were sent: of an open offer and an arrival
    that was checked."""

    def __init__(self, offer: Outgoing, arrival: Arrival) -> None:
        self._offer = offer
        self._arrival = arrival

    def piece(self, index: int) -> Tensor:
        """One piece, float32."""
        return self._offer.sent(index) - self._arrival.sent(index)


def begin_digest(encoding: Encoding, numbers: int) -> "hashlib._Hash":
    """The hash of a payload, before the bytes of its pieces."""
    return hashlib.sha256(f"seedflood parameters 1\0{encoding.name}\0{numbers}\0".encode())


def _bytes(payload: Tensor) -> memoryview:
    return payload.detach().cpu().numpy().data.cast("B")
