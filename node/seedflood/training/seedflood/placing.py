"""Where the weights of a replica lie, and in how many bits.

Usually the device holds them as they were loaded. Its matrices may have few bits instead (`quantised`). Of a model that
is too large for it, the device takes what it has room for, and the other matrices lie in host memory (`offloaded`).
Ranks hold a part of each matrix (`sharded`).

One matrix is put in place after the other, and frees what it had: there may not be memory for two models.
"""

from collections.abc import Sequence

import torch
from rich.filesize import decimal
from torch import Tensor

from seedflood.config import RunSettings
from seedflood.errors import ModelError
from seedflood.training.models import BaseModel
from seedflood.training.ranks import Ranks
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


def lay_down(base: BaseModel, slots: Sequence[LiveSlot], run: RunSettings, kind: Quantisation | None) -> int:
    """Puts the weights of a host that is one process where they belong. kind: of matrices in few bits, which are not
    folded any more and cannot be read. Returns how many bytes do not lie on the device. Raises ModelError."""
    if kind is None and base.device == base.destination:
        return 0
    give_back_memory()
    device, offloaded = base.destination, 0
    matrices = _by_use(base, slots)
    room = room_for_weights(device) - _needed(base, matrices, run, kind)
    for slot in matrices:
        weight = slot.parameter.detach()
        size = weight.nbytes if kind is None else stored_bytes(kind, weight.shape)
        place = device if size <= room else HOST
        if place == device:
            room -= size
        else:
            offloaded += size
        if kind is None and place == device:
            continue
        store_slot(base.model, slot, _stored(weight, _taken_master(base, slot), kind, device, place))
    _move_the_rest(base)
    return offloaded


def _by_use(base: BaseModel, slots: Sequence[LiveSlot]) -> list[LiveSlot]:
    """The matrices: the head, which products read a piece of the logits at a time, before all others, and what only
    single rows are looked up in after them."""
    head = base.model.get_output_embeddings()

    def turn(slot: LiveSlot) -> int:
        if head is not None and head.weight is slot.parameter:
            return 0
        return 2 if slot.slot.has_tokens else 1

    return sorted((slot for slot in slots if slot.slot.is_matrix), key=turn)


def _needed(base: BaseModel, matrices: Sequence[LiveSlot], run: RunSettings, kind: Quantisation | None) -> int:
    """The bytes that the device needs for other things than these matrices. Raises ModelError if it has no room for
    them."""
    everything: int = sum(one.nbytes for one in base.model.parameters())
    others = everything - sum(slot.parameter.nbytes for slot in matrices)
    room = room_for_weights(base.destination)
    if others > room:
        raise ModelError(
            f"what must lie on the device (experts, above all) takes {decimal(others)}, and {base.destination} "
            f"has room for {decimal(int(room))}: take a device with more memory, or a smaller model."
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


def deal_out(base: BaseModel, slots: Sequence[LiveSlot], ranks: Ranks, kind: Quantisation | None) -> None:
    """Keeps this rank's part of each matrix, on the device. kind: of matrices in few bits."""
    give_back_memory()
    for number, slot in enumerate(slots):
        if slot.slot.is_matrix:
            weight, master = slot.parameter.detach(), _taken_master(base, slot)
            if kind is None:
                store_slot(base.model, slot, ShardedMatrix(weight, master, ranks, number))
            else:
                codes = ShardedCodes(weight if master is None else master, ranks, number, kind)
                codes.dtype = weight.dtype
                store_slot(base.model, slot, codes)
    _move_the_rest(base)


def _taken_master(base: BaseModel, slot: LiveSlot) -> Tensor | None:
    return None if base.master is None else base.master.pop(slot.slot.name)


def _move_the_rest(base: BaseModel) -> None:
    """What is still in host memory, to the device."""
    base.device = base.destination
    base.model.to(base.device)
