"""A model that is too large for its device computes, folds and exports what one does that is not. All on devices that
are not there."""

import copy
import importlib.util
from math import inf

import pytest
import torch
from elsewhere import elsewhere
from hypothesis import given
from hypothesis import strategies as st
from reference import LABELS, TEXTS, objective_of, some_updates, tiny_batch, tiny_model, tiny_settings, tiny_tokenizer

from seedflood.config import NodeSettings
from seedflood.training import devices
from seedflood.training.models import load_model, prepare_model
from seedflood.training.seedflood import fetched, offloaded, placing, trainer
from seedflood.training.seedflood.offloaded import HOST, WEIGHTS_SHARE, find_places, room_for_weights
from seedflood.training.seedflood.quantised import stored_bytes
from seedflood.training.seedflood.replica import Replica

pytestmark = pytest.mark.usefixtures("drawn_once")

WORDS = "lm_head.weight"
"""The least name of the tied embeddings of OPT."""

DEVICE, OTHER = torch.device("cuda:1"), torch.device("cuda:0")
KINDS = [
    "int8",
    pytest.param("nf4", marks=pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="no nf4")),
]
FAMILIES = [("opt", True), ("gpt2", True), ("gemma3", False), ("llama", False)]


def base_of(family, tied=True, dtype="float32", room=inf):
    return prepare_model(tiny_model(family, tied=tied), tiny_tokenizer(), device=str(DEVICE), dtype=dtype, room=room)


@pytest.fixture
def with_room(monkeypatch):
    """A replica on a device with so many bytes of room, and on other devices with theirs."""

    def make(family, tied, dtype, rooms, **how):
        monkeypatch.setattr(placing, "room_for_weights", lambda device: rooms[device])
        spare = [device for device in rooms if device != DEVICE]
        base = base_of(family, tied, dtype, 0 if how else rooms[DEVICE])
        return Replica(base, tiny_settings(refresh_period=3), spare=spare, **how)

    return make


def places_of(replica):
    """Of the matrices, by name."""
    return {
        slot.slot.name: slot.parameter.device if slot.stored is None else slot.stored.place
        for slot in replica.slots
        if slot.slot.is_matrix
    }


@given(st.lists(st.integers(0, 50)), st.lists(st.integers(-20, 120), max_size=4))
def test_no_device_gets_more_than_it_has_room_for_and_the_first_ones_get_all_they_can(sizes, rooms):
    named = {torch.device("cuda", index): float(room) for index, room in enumerate(rooms)}
    places = find_places(sizes, named)
    taken = {
        device: sum(size for size, place in zip(sizes, places, strict=True) if place == device) for device in named
    }
    assert all(taken[device] <= max(0, room) for device, room in named.items())
    left = dict(named)
    for size, place in zip(sizes, places, strict=True):
        before = list(named) if place == HOST else list(named)[: list(named).index(place)]
        assert all(left[device] < size for device in before)
        if place != HOST:
            left[place] -= size
            assert left[place] >= 0


def test_some_of_what_is_free_is_left_for_other_things_than_weights(monkeypatch):
    monkeypatch.setattr(offloaded, "memory_free", lambda device: 1000)
    assert room_for_weights(DEVICE) == WEIGHTS_SHARE * 1000 < 1000
    monkeypatch.setattr(offloaded, "memory_free", lambda device: None)
    assert room_for_weights(DEVICE) == inf


@pytest.mark.parametrize("room", [0, 8_000])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("family", "tied"), FAMILIES)
def test_offloaded_weights_compute_and_fold_what_others_do(with_room, family, tied, dtype, room):
    updates = some_updates(12, steps=6, scalar_max=1 << 20)
    with elsewhere():
        whole = Replica(base_of(family, tied, dtype), tiny_settings(refresh_period=3))
        part = with_room(family, tied, dtype, {DEVICE: room})
        assert {one.device for one in part.model.parameters()} == {DEVICE}
        for one in (whole, part):
            one.apply(updates)
            one.open_epoch(2)
            one.apply(some_updates(2, steps=1))  # late, for an epoch that was folded
        for labelled in (True, False):
            batch = tiny_batch(labelled=labelled)
            objective = objective_of(batch)
            expected, got = (one.measure(6, 3, objective, batch) for one in (whole, part))
            assert got == expected
            expected, got = (
                one.measure_gradient(6, objective, batch, micro_batch=1, is_checkpointed=True) for one in (whole, part)
            )
            assert torch.equal(got.slope_F, expected.slope_F)
        assert part.digest() == whole.digest()
        weights, exported = whole.weights(), part.weights()
    assert HOST in places_of(part).values()
    assert exported.keys() == weights.keys()
    assert all(torch.equal(exported[name], weight) for name, weight in weights.items())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_device_comes_first_then_others_then_the_host(with_room, dtype):
    with elsewhere():
        whole = Replica(base_of("opt", True, dtype), tiny_settings())
        matrices = {slot.slot.name: slot.parameter.nbytes for slot in whole.slots if slot.slot.is_matrix}
        everything = sum(one.nbytes for one in whole.model.parameters())
        vectors, words = everything - sum(matrices.values()), matrices[WORDS]
        part = with_room("opt", True, dtype, {DEVICE: vectors + words, OTHER: 6_000})
        places = places_of(part)
        assert places[WORDS] == DEVICE
        assert sorted(map(str, set(places.values()))) == ["cpu", "cuda:0", "cuda:1"]
        assert part.offloaded_bytes == sum(size for name, size in matrices.items() if places[name] != DEVICE)
        expected, got = (one.measure_gradient(0, LABELS, tiny_batch()) for one in (whole, part))
        assert torch.equal(got.slope_F, expected.slope_F)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_few_bits_lie_elsewhere_too(with_room, dtype, kind):
    with elsewhere():
        whole, part = (with_room("llama", True, dtype, {DEVICE: room}, quantize=kind) for room in (inf, 4_000))
        sizes = {}
        for slot in part.slots:
            if slot.slot.is_matrix:
                sizes[slot.slot.name] = slot.stored._code_MY.nbytes + slot.stored._scale_MY.nbytes
                assert sizes[slot.slot.name] == stored_bytes(kind, slot.slot.shape)
        places = places_of(part)
        assert set(places_of(whole).values()) == {DEVICE}
        assert set(places.values()) == {DEVICE, HOST}
        assert part.offloaded_bytes == sum(size for name, size in sizes.items() if places[name] == HOST)
        for one in (whole, part):
            one.apply(some_updates(12, steps=6, scalar_max=1 << 20))
            one.open_epoch(2)
        for labelled in (True, False):
            batch = tiny_batch(labelled=labelled)
            expected, got = (one.measure_gradient(6, objective_of(batch), batch) for one in (whole, part))
            assert torch.equal(got.slope_F, expected.slope_F)


def test_a_large_matrix_is_copied_a_part_at_a_time(with_room, monkeypatch):
    with elsewhere():
        whole = Replica(base_of("opt"), tiny_settings())
        part = with_room("opt", True, "float32", {DEVICE: 0})
        monkeypatch.setattr(fetched, "PART_ELEMENTS_MAX", 16 * 5)
        expected, got = (one.measure_gradient(0, TEXTS, tiny_batch(labelled=False)) for one in (whole, part))
    torch.testing.assert_close(got.slope_F, expected.slope_F, rtol=1e-4, atol=1e-6)


def test_the_host_waits_for_the_device_only_to_look_up_rows(with_room):
    waits = []
    with elsewhere() as watch:
        for rooms in ({DEVICE: inf}, {DEVICE: 0}):
            replica = with_room("llama", False, "bfloat16", rooms)
            watch.waits.clear()
            replica.measure_gradient(0, LABELS, tiny_batch())
            waits.append(dict(watch.waits))
    assert waits[1] == waits[0] | {"offloaded.lookup": 2}, "of the tokens, and of the words of the labels"


def test_a_trainer_offloads_what_does_not_fit_also_when_it_is_made_again(monkeypatch, tmp_path):
    read = load_model("embedded")  # files are read without the device that is not there

    def load_base(_run, _node, *, room):
        return prepare_model(copy.deepcopy(read.model), read.tokenizer, device=str(DEVICE), dtype="float32", room=room)

    for module in (trainer, placing):
        monkeypatch.setattr(module, "room_for_weights", lambda device: 200_000)
    monkeypatch.setattr(trainer, "find_device", torch.device)
    monkeypatch.setattr(trainer, "load_base", load_base)
    run = tiny_settings(task="embedded", model="embedded")
    node = NodeSettings(state=tmp_path, data="embedded", device=str(DEVICE), dtype="float32", evaluate_examples=8)
    with elsewhere():
        made = trainer.Trainer(run, node)
        before = places_of(made.replica)
        assert {HOST, DEVICE} == set(before.values())
        assert 4 * made.parameters[0] - 200_000 <= made.replica.offloaded_bytes < 4 * made.parameters[0]
        made.rebuild([], [])
        assert places_of(made.replica) == before


def test_on_a_host_that_names_its_device_other_ones_are_left_alone(monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "device_names", lambda: ["cpu", "cuda:0", "cuda:1"])
    assert devices.other_devices(DEVICE) == [OTHER]
