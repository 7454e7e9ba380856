"""The sum of a subtree at one of its hosts: its own parameters, and those of hosts below it (an all-reduce by a tree).

What arrives is the mean of some hosts, as it travelled; what leaves is the mean of all of them, encoded anew. An
encoding's error is made up for in the next round by the host that made it, as in any exchange (`exchange`).

Shapes: F numbers of all parameters (flat.py), N of a piece.
"""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from seedflood.training.gasloc.exchange import Arrival, Offer, begin_digest
from seedflood.training.gasloc.outer import Outer


class Gathering:
    """hosts: how many are in it; we are."""

    def __init__(self, outer: Outer) -> None:
        """outer: with an open offer."""
        assert outer.offer is not None, "nothing was offered"
        self.hosts = 1
        self._outer = outer
        self._offer: Offer = outer.offer
        self._sum_F: Tensor | None = None

    @property
    def size(self) -> int:
        """Bytes of the mean as it travels."""
        return self._offer.size

    @torch.no_grad()
    def add(self, arrival: Arrival, hosts: int) -> None:
        """The mean of so many hosts. Raises PeerError for other bytes than offered, and adds nothing."""
        arrival.check()
        if self._sum_F is None:
            self._sum_F = torch.zeros_like(self._outer.phi)
        for index, piece in enumerate(self._offer.pieces):
            self._sum_F[piece.start : piece.end].add_(arrival.told(index), alpha=hosts)
        self.hosts += hosts

    @torch.no_grad()
    def write(self, out: NDArray[Any], *, has_momentum: bool) -> bytes:
        """Writes the mean as it travels, and returns its digest. has_momentum: it is the result of a round, and that of
        the outer step is in it."""
        encoding = self._offer.encoding
        hasher = begin_digest(encoding, len(self._outer.phi))
        for piece in self._offer.pieces:
            part = slice(piece.start, piece.end)
            mean_N = self._outer.phi[part].clone()
            if self._sum_F is not None:
                mean_N.add_(self._sum_F[part]).div_(self.hosts)
            if has_momentum:
                mean_N = self._outer.carried_on(mean_N, part)
            payload = self._outer.tell(mean_N, part, encoding)
            out[piece.first_byte : piece.end_byte] = payload.cpu().numpy()
            hasher.update(out[piece.first_byte : piece.end_byte].data)
        return hasher.digest()
