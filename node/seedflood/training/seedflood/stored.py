"""What takes the place of a matrix that is no parameter of the model any more."""

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from seedflood.training.seedflood.subspace import SlotBasis

MMAP_THRESHOLD_OPTION = -3
"""M_MMAP_THRESHOLD of glibc's malloc.h."""


def give_back_memory() -> None:
    """Large blocks that are freed go back to the system at once, from now on: glibc otherwise keeps more of them than
    the model takes (1.6 GB of a model of 1 B parameters)."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(MMAP_THRESHOLD_OPTION, 1 << 20)


class StoredMatrix(ABC):
    """It takes the place of a module's weight, so it has shape, device and dtype (in which modules compute) of one.

    Shapes: B positions, X and Y outputs and inputs of a product, N some rows, K columns.
    """

    def __init__(self, shape: torch.Size, device: torch.device, dtype: torch.dtype) -> None:
        self.shape, self.device, self.dtype = shape, device, dtype

    @abstractmethod
    def base_rows(self) -> Iterator[tuple[slice, Tensor]]:
        """All rows of the base weight on the device, some after the other, (N, K)."""

    @abstractmethod
    def add_product(self, y_BX: Tensor, x_BY: Tensor, index: Tensor | slice, *, is_transposed: bool) -> Tensor:
        """`y + x W^T`, or some columns of it; `y + x W` of all unless it is transposed. y may be written to."""

    @abstractmethod
    def lookup(self, index_N: Tensor) -> Tensor:
        """Some rows as they are after all folded epochs, (N, K)."""

    @abstractmethod
    def fold(self, epoch: int, basis: SlotBasis, a: Tensor) -> None:
        """Adds `U A V^T` of an epoch. basis: on the device. a: float32."""
