"""Where the weights of a replica lie, and in how many bits.

Usually the device holds them as they were loaded. Its matrices may have few bits instead (`quantised`). Of a model that
is too large for it, the device takes what it has room for, and the other matrices lie in host memory (`offloaded`).
Ranks hold a part of each matrix (`sharded`). Experts of a mixture are placed as matrices are (`experts`).

One matrix is put in place after the other, and frees what it had: there may not be memory for two models.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from rich.filesize import decimal
from torch import Tensor

from seedflood.config import RunSettings
from seedflood.errors import ModelError
from seedflood.training.models import BaseModel, expert_modules
from seedflood.training.ranks import Ranks
from seedflood.training.seedflood.experts import ExpertTensor
from seedflood.training.seedflood.layers import store_slot
from seedflood.training.seedflood.offloaded import (
    HOST,
    OffloadedMatrix,
    bytes_beside,
    copies_of,
    room_for_weights,
)
from seedflood.training.seedflood.quantised import Quantisation, quantise, stored_bytes
from seedflood.training.seedflood.sharded import ShardedCodes, ShardedMatrix
from seedflood.training.seedflood.slots import LiveSlot
from seedflood.training.seedflood.stored import StoredMatrix, give_back_memory


class Placed(Protocol):
    """A matrix that can lie elsewhere than its parameter. name: of the parameter."""

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> Tensor:
        """As it was loaded, or rounded to the type of the device."""

    def store(self, stored: StoredMatrix) -> None:
        """Puts something else in its place, and frees the parameter."""


class _PlacedSlot:
    """A matrix that is trained."""

    def __init__(self, base: BaseModel, slot: LiveSlot) -> None:
        self.name = slot.slot.name
        self._base, self._slot = base, slot

    @property
    def weight(self) -> Tensor:
        return self._slot.parameter.detach()

    def store(self, stored: StoredMatrix) -> None:
        store_slot(self._base.model, self._slot, stored)


def lay_down(
    base: BaseModel,
    slots: Sequence[LiveSlot],
    experts: Sequence[ExpertTensor],
    run: RunSettings,
    kind: Quantisation | None,
) -> int:
    """Puts the weights of a host that is one process where they belong. kind: of matrices in few bits, which are not
    folded any more and cannot be read. Returns how many bytes do not lie on the device. Raises ModelError."""
    _drop_needless_masters(base, experts)
    if kind is None and base.device == base.destination:
        return 0
    give_back_memory()
    device, offloaded = base.destination, 0
    room = room_for_weights(device) - _needed(base, slots, experts, run, kind)
    for placed in _by_use(base, slots, experts):
        weight = placed.weight
        size = weight.nbytes if kind is None else stored_bytes(kind, weight.shape)
        place = device if size <= room else HOST
        if place == device:
            room -= size
        else:
            offloaded += size
        if kind is None and place == device:
            continue
        placed.store(_stored(weight, _taken_master(base, placed), kind, device, place))
    _move_the_rest(base)
    return offloaded


def _by_use(base: BaseModel, slots: Sequence[LiveSlot], experts: Iterable[ExpertTensor]) -> list[Placed]:
    """What has a place of its own, in the order in which it gets one: first the head, which products read a piece of
    the logits at a time; last what only single rows are looked up in."""
    head = base.model.get_output_embeddings()
    heads: list[Placed] = []
    products: list[Placed] = []
    words: list[Placed] = []
    for slot in slots:
        placed = _PlacedSlot(base, slot)
        if not slot.slot.is_matrix:
            continue
        if head is not None and head.weight is slot.parameter:
            heads.append(placed)
        elif slot.slot.has_tokens:
            words.append(placed)
        else:
            products.append(placed)
    return [*heads, *products, *experts, *words]


def _needed(
    base: BaseModel,
    slots: Sequence[LiveSlot],
    experts: Sequence[ExpertTensor],
    run: RunSettings,
    kind: Quantisation | None,
) -> int:
    """The bytes that the device needs for other things than these weights. Raises ModelError if it has no room for
    them."""
    matrices = [slot for slot in slots if slot.slot.is_matrix]
    placed = sum(slot.parameter.nbytes for slot in matrices) + sum(one.weight.nbytes for one in experts)
    everything: int = sum(one.nbytes for one in base.model.parameters())
    others = everything - placed
    # The experts of a layer are there while it computes, wherever they lie.
    layers = [sum(one.nbytes for one in tensors.values()) for _, _, tensors in expert_modules(base.model)]
    others += max(layers, default=0)
    room = room_for_weights(base.destination)
    if others > room:
        raise ModelError(
            f"what must lie on the device (the experts of one layer, above all) takes {decimal(others)}, and "
            f"{base.destination} has room for {decimal(int(room))}: take a device with more memory, or a smaller model."
        )
    sides = sum(sum(slot.slot.shape) for slot in matrices)
    return others + bytes_beside(run, kind, sides, base.dtype.itemsize)


def _stored(
    weight: Tensor, master: Tensor | None, kind: Quantisation | None, device: torch.device, place: torch.device
) -> StoredMatrix:
    if kind is None:
        return OffloadedMatrix(weight, master, device)
    stored = quantise(kind, weight if master is None else master, device, place)
    stored.dtype = weight.dtype
    return stored


def check_copies(base: BaseModel, run: RunSettings) -> None:
    """Raises ModelError if a device has no room for the base model beside the one that learns, and needs both."""
    if copies_of(run) > 1 and base.device != base.destination:
        raise ModelError(
            f"kl keeps the base model beside the one that learns, and {base.destination} has no room for both: take a "
            "device with more memory, a smaller model, or kl = 0 in [run.objective]."
        )


def deal_out(
    base: BaseModel,
    slots: Sequence[LiveSlot],
    experts: Sequence[ExpertTensor],
    ranks: Ranks,
    kind: Quantisation | None,
) -> None:
    """Keeps this rank's part of each matrix, on the device. kind: of matrices in few bits."""
    give_back_memory()
    _drop_needless_masters(base, experts)
    for number, placed in enumerate(_by_use(base, slots, experts)):
        weight, master = placed.weight, _taken_master(base, placed)
        if kind is None:
            placed.store(ShardedMatrix(weight, master, ranks, number))
        else:
            codes = ShardedCodes(weight if master is None else master, ranks, number, kind)
            codes.dtype = weight.dtype
            placed.store(codes)
    _move_the_rest(base)


def _drop_needless_masters(base: BaseModel, experts: Iterable[ExpertTensor]) -> None:
    """Of experts that were rounded to the type of the device without a loss. They do not change."""
    if base.master is None:
        return
    for one in experts:
        master = base.master.get(one.name)
        if master is not None and torch.equal(master.to(base.dtype).to(master.dtype), master):
            del base.master[one.name]


def _taken_master(base: BaseModel, placed: Placed) -> Tensor | None:
    master = None if base.master is None else base.master.pop(placed.name, None)
    return None if master is None else master.view(placed.weight.shape)


def _move_the_rest(base: BaseModel) -> None:
    """What is still in host memory, to the device."""
    base.device = base.destination
    base.model.to(base.device)
