"""Where the weights of a replica lie, and in how many bits.

Usually the device holds them as they were loaded. Its matrices may have few bits instead (`quantised`). Of a model that
is too large for it, the device takes what it has room for, and the other matrices lie elsewhere (`offloaded`). Ranks
hold a part of each matrix (`sharded`).

One matrix is put in place after the other, and frees what it had: there may not be memory for two models.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from seedflood.training.models import BaseModel
from seedflood.training.ranks import Ranks
from seedflood.training.seedflood.layers import store_slot
from seedflood.training.seedflood.offloaded import OffloadedMatrix, find_places, room_for_weights
from seedflood.training.seedflood.quantised import Quantisation, quantise, stored_bytes
from seedflood.training.seedflood.sharded import ShardedMatrix
from seedflood.training.seedflood.slots import LiveSlot
from seedflood.training.seedflood.stored import StoredMatrix, give_back_memory


def lay_down(
    base: BaseModel, slots: Sequence[LiveSlot], kind: Quantisation | None, spare: Sequence[torch.device]
) -> int:
    """Puts the weights of a host that is one process where they belong: the device gets as many matrices as it has room
    for, those of tokens first. kind: of matrices in few bits, which are not folded any more and cannot be read. spare:
    other devices for weights. Returns how many bytes do not lie on the device."""
    if kind is None and base.device == base.destination:
        return 0
    give_back_memory()
    device, offloaded = base.destination, 0
    matrices = sorted((slot for slot in slots if slot.slot.is_matrix), key=lambda slot: not slot.slot.has_tokens)
    sizes = [slot.parameter.nbytes if kind is None else stored_bytes(kind, slot.parameter.shape) for slot in matrices]
    rooms = {one: room_for_weights(one) for one in (device, *spare)}
    rooms[device] -= sum(one.nbytes for one in base.model.parameters())  # what is no such matrix is there anyway
    rooms[device] += sum(slot.parameter.nbytes for slot in matrices)
    for slot, size, place in zip(matrices, sizes, find_places(sizes, rooms), strict=True):
        if place != device:
            offloaded += size
        elif kind is None:
            continue
        master = None if base.master is None else base.master.pop(slot.slot.name)
        store_slot(base.model, slot, _stored(slot.parameter.detach(), master, kind, device, place))
    _move_the_rest(base)
    return offloaded


def _stored(
    weight: Tensor, master: Tensor | None, kind: Quantisation | None, device: torch.device, place: torch.device
) -> StoredMatrix:
    if kind is None:
        return OffloadedMatrix(weight, master, device=device, place=place)
    stored = quantise(kind, weight if master is None else master, device, place)
    stored.dtype = weight.dtype
    return stored


def deal_out(base: BaseModel, slots: Sequence[LiveSlot], ranks: Ranks) -> None:
    """Keeps this rank's part of each matrix, on the device."""
    give_back_memory()
    for number, slot in enumerate(slots):
        if slot.slot.is_matrix:
            master = None if base.master is None else base.master.pop(slot.slot.name)
            store_slot(base.model, slot, ShardedMatrix(slot.parameter, master, ranks, number))
    _move_the_rest(base)


def _move_the_rest(base: BaseModel) -> None:
    """What is still in host memory, to the device."""
    base.device = base.destination
    base.model.to(base.device)
