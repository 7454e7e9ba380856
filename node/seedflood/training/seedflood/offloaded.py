"""Base weights for which the device has no room: they lie on other devices of the host, or in its memory.

A product copies them to the device, a part at a time (`fetched`). So the model may be larger than the memory of a GPU,
and a step takes as long as its weights need to travel there twice, once for each pass.

Shapes: M rows and K columns of a matrix, N some rows, X rows of a part.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf

import torch
from torch import Tensor

from seedflood.training.devices import memory_free
from seedflood.training.seedflood.fetched import FetchedMatrix
from seedflood.training.seedflood.subspace import SlotBasis

WEIGHTS_SHARE = 0.8
"""Of what a device has free, for weights. The rest is for activations, bases, and the parts that products copy."""

HOST = torch.device("cpu")


def room_for_weights(device: torch.device) -> float:
    """How many bytes of weights a device should hold at most; infinite if that is not known."""
    free = memory_free(device)
    return inf if free is None else WEIGHTS_SHARE * free


def find_places(sizes: Sequence[int], rooms: Mapping[torch.device, float]) -> list[torch.device]:
    """Where matrices of so many bytes lie: each on the first device that still has room for it, else in host memory."""
    left = dict(rooms) | {HOST: inf}
    places = []
    for size in sizes:
        place = next(device for device, room in left.items() if size <= room)
        left[place] -= size
        places.append(place)
    return places


class OffloadedMatrix(FetchedMatrix):
    """A matrix that lies elsewhere."""

    def __init__(
        self, weight_MK: Tensor, master_MK: Tensor | None, *, device: torch.device, place: torch.device
    ) -> None:
        """weight_MK: in host memory. master_MK: float32, if the weight is of half precision. device: where it is
        computed with. place: where it lies."""
        super().__init__(weight_MK.shape, device, weight_MK.dtype)
        self.place = place
        self._own_MK = weight_MK.detach().to(place)
        self._master_MK = self._own_MK if master_MK is None else master_MK

    def fetched(self, *, is_master: bool = False) -> Iterator[tuple[slice, Tensor]]:
        for rows in self.parts():
            yield rows, self._master_MK[rows] if is_master else self._own_MK[rows].to(self.device)

    def lookup(self, index_N: Tensor) -> Tensor:
        return self._own_MK[index_N.to(self.place)].to(self.device)

    def fold(self, epoch: int, basis: SlotBasis, a: Tensor) -> None:
        master_MK = self._master_MK
        there = basis.to(master_MK.device)
        assert there.v_NR is not None
        master_MK.addmm_(there.left(a.to(master_MK.device)), there.v_NR.T)
        if master_MK is not self._own_MK:
            self._own_MK.copy_(master_MK)
