"""Where the weights of a replica lie, and in how many bits.

Usually the device holds them as they were loaded. Its matrices may have few bits instead (`quantised`). Ranks hold a
part of each (`sharded`). A model that is too large for the device was loaded into host memory: then the device takes
what it has room for, and the other matrices lie elsewhere (`offloaded`).

One matrix is put in place after the other, and frees what it had: there may not be memory for two models.
"""

from collections.abc import Sequence

import torch

from seedflood.training.models import BaseModel
from seedflood.training.ranks import Ranks
from seedflood.training.seedflood.layers import store_slot
from seedflood.training.seedflood.offloaded import OffloadedMatrix, find_places, room_for_weights
from seedflood.training.seedflood.quantised import Quantisation, quantise
from seedflood.training.seedflood.sharded import ShardedMatrix
from seedflood.training.seedflood.slots import LiveSlot
from seedflood.training.seedflood.stored import give_back_memory


def lay_down(
    base: BaseModel, slots: Sequence[LiveSlot], kind: Quantisation | None, spare: Sequence[torch.device]
) -> int:
    """Puts the weights of a host that is one process where they belong. kind: of its
    matrices, if they have few bits. spare: other devices for weights. Returns how
    many bytes do not lie on the device."""
    if kind is not None:
        _quantise(base, slots, kind)
    elif base.device != base.destination:
        return _offload(base, slots, spare)
    return 0


def deal_out(base: BaseModel, slots: Sequence[LiveSlot], ranks: Ranks) -> None:
    """Keeps this rank's part of each matrix, on the device."""
    give_back_memory()
    for number, slot in enumerate(slots):
        if slot.slot.is_matrix:
            master = None if base.master is None else base.master.pop(slot.slot.name)
            store_slot(base.model, slot, ShardedMatrix(slot.parameter, master, ranks, number))
    _move_the_rest(base)


def _quantise(base: BaseModel, slots: Sequence[LiveSlot], kind: Quantisation) -> None:
    """The matrices. They are not folded any more, nor can they be read."""
    for slot in slots:
        if slot.slot.is_matrix:
            master = slot.parameter if base.master is None else base.master.pop(slot.slot.name)
            stored = quantise(kind, master.detach(), base.destination)
            stored.dtype = slot.parameter.dtype
            store_slot(base.model, slot, stored)
    _move_the_rest(base)


def _offload(base: BaseModel, slots: Sequence[LiveSlot], spare: Sequence[torch.device]) -> int:
    """Gives the device as many matrices as it has room for, those of tokens first. Returns the bytes of the others."""
    give_back_memory()
    device, offloaded = base.destination, 0
    matrices = sorted((slot for slot in slots if slot.slot.is_matrix), key=lambda slot: not slot.slot.has_tokens)
    sizes = [slot.parameter.nbytes for slot in matrices]
    rooms = {one: room_for_weights(one) for one in (device, *spare)}
    rooms[device] -= sum(one.nbytes for one in base.model.parameters()) - sum(sizes)  # all that stays a parameter
    for slot, size, place in zip(matrices, sizes, find_places(sizes, rooms), strict=True):
        if place != device:
            master = None if base.master is None else base.master.pop(slot.slot.name)
            store_slot(base.model, slot, OffloadedMatrix(slot.parameter, master, device=device, place=place))
            offloaded += size
    _move_the_rest(base)
    return offloaded


def _move_the_rest(base: BaseModel) -> None:
    """What is still in host memory, to the device."""
    base.device = base.destination
    base.model.to(base.device)
