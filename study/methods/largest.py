"""Choco: each worker has a public copy at its neighbours, and sends only the numbers in which that is furthest off.

Choco-SGD (Koloskova et al. 2019, arXiv 1902.00340, algorithm 2, in the form with two vectors per worker): x are the
parameters that a worker trains, xhat its public copy. After its local steps it sends q, the k largest numbers of
x - xhat. Everyone adds q to its copy of xhat, and

    x += gamma sum over neighbours j of w_ij (xhat_j - xhat_i)

What was not sent stays in x - xhat; this is the error feedback. The sum over neighbours is kept as one vector, so
memory does not grow with their number. It needs a fixed graph and loses no message, so it is a yardstick, not for hosts
that come and go.

Shapes: F numbers of all parameters (flat.py), K of them sent.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seedflood.errors import PeerError

_HEAD = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Sparse:
    """Some numbers of a flat tensor. index_K: rising, int64. value_K: float32."""

    index_K: Tensor
    value_K: Tensor

    def pack(self) -> bytes:
        """8 bytes per number."""
        index_K = self.index_K.to("cpu", torch.int32).numpy().astype("<u4")
        value_K = self.value_K.to("cpu", torch.float32).numpy().astype("<f4")
        return _HEAD.pack(len(index_K)) + index_K.tobytes() + value_K.tobytes()

    @classmethod
    def unpack(cls, packed: bytes, numbers: int, device: torch.device | str = "cpu") -> "Sparse":
        """Undoes `pack`. numbers: how many the whole tensor has. Raises PeerError."""
        count = _HEAD.unpack_from(packed)[0] if len(packed) >= _HEAD.size else -1
        if len(packed) != _HEAD.size + 8 * count or count > numbers:
            raise PeerError("sends numbers in a message of another size", reason="size")
        if count == 0:
            return cls(torch.empty(0, dtype=torch.int64, device=device), torch.empty(0, device=device))
        body = bytearray(packed[_HEAD.size :])
        index_K = torch.frombuffer(body, dtype=torch.int32, count=count).to(torch.int64)
        value_K = torch.frombuffer(body, dtype=torch.float32, offset=4 * count).clone()
        if not (bool((index_K.diff() > 0).all()) and int(index_K[0]) >= 0 and int(index_K[-1]) < numbers):
            raise PeerError("sends numbers at places that are not there, or twice", reason="parameters")
        if not bool(value_K.isfinite().all()):
            raise PeerError("sends numbers that are not finite", reason="parameters")
        return cls(index_K.to(device), value_K.to(device))


class Choco:
    """The outer steps of one worker. Its flat parameters are changed in place.

    fraction: the share of the numbers that is sent. gamma: how far the worker moves towards its neighbours; smaller for
    smaller fractions. public_F: our public copy. All workers must begin with the same parameters.
    """

    def __init__(self, values_F: Tensor, *, fraction: float, gamma: float) -> None:
        self.public_F = values_F.clone()
        self._values_F = values_F
        self._apart_F = torch.zeros_like(values_F)
        self._sent_max = max(1, round(fraction * len(values_F)))
        self._gamma = gamma

    @torch.no_grad()
    def propose(self) -> Sparse:
        """The numbers to be sent to the neighbours."""
        apart_F = self._values_F - self.public_F
        index_K = torch.topk(apart_F.abs(), self._sent_max, sorted=False).indices.sort().values
        return Sparse(index_K, apart_F[index_K])

    @torch.no_grad()
    def mix(self, sent: Sparse, neighbours: Sequence[tuple[float, Sparse]]) -> None:
        """Ends the round. sent: what we have sent. neighbours: of each, its weight w_ij and what it has sent."""
        self.public_F.index_add_(0, sent.index_K, sent.value_K)
        for weight, theirs in neighbours:
            self._apart_F.index_add_(0, theirs.index_K, theirs.value_K, alpha=weight)
            self._apart_F.index_add_(0, sent.index_K, sent.value_K, alpha=-weight)
        self._values_F.add_(self._apart_F, alpha=self._gamma)
