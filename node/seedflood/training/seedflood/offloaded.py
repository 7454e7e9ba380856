"""Base weights for which the device has no room: they lie in host memory.

A product copies them to the device, a part at a time (`fetched`). So the model may be larger than the memory of a GPU.
Each pass over a piece of a batch copies all of them: two passes for a gradient, three with checkpoints.

Shapes: M rows and K columns of a matrix, N some rows, X rows of a part.
"""

from collections.abc import Iterator
from math import inf

import torch
from torch import Tensor

from seedflood.config import RunSettings
from seedflood.training.devices import memory_free
from seedflood.training.seedflood.fetched import FetchedMatrix, parts_of
from seedflood.training.seedflood.quantised import Quantisation
from seedflood.training.seedflood.subspace import SlotBasis

WEIGHTS_SHARE = 0.8
"""Of what a device has free, for weights and bases. The rest is for activations, and the parts that products copy."""

BASES_KEPT = 3
"""Of a matrix, on the device: of the open epoch, of one for which an update came late, and of one that opens."""

HOST = torch.device("cpu")


def room_for_weights(device: torch.device) -> float:
    """How many bytes of weights a device should hold at most; infinite if that is not known."""
    free = memory_free(device)
    return inf if free is None else WEIGHTS_SHARE * free


def copies_of(run: RunSettings) -> int:
    """How many models a device holds: with `kl` the base model stays beside the one that learns."""
    return 2 if run.objective.kl else 1


def bytes_beside(run: RunSettings, kind: Quantisation | None, sides: int, itemsize: int) -> int:
    """What the device needs beside the weights, with `sides` rows and columns of all matrices: bases, and what epochs
    have changed where matrices have few bits. itemsize: of a number that is computed with."""
    table = run.seedflood
    bases = BASES_KEPT * table.rank * (torch.float32.itemsize + itemsize)
    folded = 0 if kind is None else torch.float32.itemsize * table.rank * -(-run.steps // table.refresh_period)
    return sides * (bases + folded)


class OffloadedMatrix(FetchedMatrix):
    """A matrix in host memory."""

    def __init__(self, weight_MK: Tensor, master_MK: Tensor | None, device: torch.device) -> None:
        """weight_MK, master_MK: in host memory; the master is float32, if the weight is of half precision. device:
        where it is computed with."""
        super().__init__(weight_MK.shape, device, weight_MK.dtype)
        self._own_MK = weight_MK
        self._master_MK = self._own_MK if master_MK is None else master_MK

    def fetched(self, *, is_master: bool = False) -> Iterator[tuple[slice, Tensor]]:
        for rows in parts_of(self.shape):
            yield rows, self._master_MK[rows] if is_master else self._own_MK[rows].to(self.device)

    def lookup(self, index_N: Tensor) -> Tensor:
        return self._own_MK[index_N.to(HOST)].to(self.device)

    def fold(self, epoch: int, basis: SlotBasis, a: Tensor) -> None:
        here = basis.to(HOST)
        assert here.v_NR is not None
        self._master_MK.addmm_(here.left(a.to(HOST)), here.v_NR.T)
        if self._master_MK is not self._own_MK:
            self._own_MK.copy_(self._master_MK)
