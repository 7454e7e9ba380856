"""A model that is too large for its device computes, folds and exports what one does that is not. All on devices that
are not there."""

import copy
import importlib.util
import weakref
from math import inf
from types import SimpleNamespace

import pytest
import torch
from elsewhere import elsewhere
from families import MIXTURES, family_model
from reference import LABELS, TEXTS, objective_of, some_updates, tiny_batch, tiny_model, tiny_settings, tiny_tokenizer

from seedflood.config import NodeSettings
from seedflood.errors import ModelError
from seedflood.training import devices
from seedflood.training.models import load_model, prepare_model
from seedflood.training.seedflood import experts, fetched, offloaded, placing, trainer
from seedflood.training.seedflood.layers import attach
from seedflood.training.seedflood.offloaded import HOST, WEIGHTS_SHARE, OffloadedMatrix, room_for_weights
from seedflood.training.seedflood.quantised import stored_bytes
from seedflood.training.seedflood.replica import Replica

pytestmark = pytest.mark.usefixtures("drawn_once")

DEVICE = torch.device("cuda:1")
KINDS = [
    "int8",
    pytest.param("nf4", marks=pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="no nf4")),
]
FAMILIES = [("opt", True), ("gpt2", True), ("gemma3", False), ("llama", False)]


def base_of(family, tied=True, dtype="float32", room=inf):
    return prepare_model(tiny_model(family, tied=tied), tiny_tokenizer(), device=str(DEVICE), dtype=dtype, room=room)


@pytest.fixture
def with_room(monkeypatch):
    """A replica on a device with so many bytes of room for matrices."""

    def make(family, tied, dtype, room, **how):
        base = base_of(family, tied, dtype, 0 if how or room < inf else inf)
        monkeypatch.setattr(placing, "_needed", lambda *_: 0)
        monkeypatch.setattr(placing, "room_for_weights", lambda _device: room)
        return Replica(base, tiny_settings(refresh_period=3), **how)

    return make


def places_of(replica):
    """Of the matrices, by name."""
    found = {}
    for slot in replica.slots:
        if slot.slot.is_matrix:
            lies = getattr(slot.stored, "_own_MK", getattr(slot.stored, "_code_MY", slot.parameter))
            found[slot.slot.name] = lies.device
    return found


def test_some_of_what_is_free_is_left_for_other_things_than_weights(monkeypatch):
    monkeypatch.setattr(offloaded, "memory_free", lambda device: 1000)
    assert room_for_weights(DEVICE) == WEIGHTS_SHARE * 1000 < 1000
    monkeypatch.setattr(offloaded, "memory_free", lambda device: None)
    assert room_for_weights(DEVICE) == inf


def test_what_torch_keeps_for_this_process_counts_as_free(monkeypatch):
    module = SimpleNamespace(
        get_device_properties=lambda _: SimpleNamespace(is_integrated=False),
        mem_get_info=lambda _: (100, 1000),
        memory_reserved=lambda _: 50,
        memory_allocated=lambda _: 20,
    )
    monkeypatch.setattr(torch, "get_device_module", lambda _: module)
    assert devices.memory_free(DEVICE) == 130
    monkeypatch.setattr(module, "mem_get_info", None)
    monkeypatch.delattr(module, "memory_reserved")
    assert devices.memory_free(DEVICE) is None


@pytest.mark.parametrize(("dtype", "room"), [("float32", 8_000), ("bfloat16", 0)])
@pytest.mark.parametrize(("family", "tied"), FAMILIES)
def test_offloaded_weights_compute_and_fold_what_others_do(with_room, family, tied, dtype, room):
    updates = some_updates(12, steps=6, scalar_max=1 << 20)
    with elsewhere():
        whole = Replica(base_of(family, tied, dtype), tiny_settings(refresh_period=3))
        part = with_room(family, tied, dtype, room)
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


@pytest.mark.parametrize("tied", [True, False])
def test_the_device_keeps_the_head_first_and_tokens_that_are_only_looked_up_last(with_room, tied):
    with elsewhere():
        whole = Replica(base_of("llama", tied), tiny_settings())
        sizes = {slot.slot.name: slot.parameter.nbytes for slot in whole.slots if slot.slot.is_matrix}
        for room in (sizes["lm_head.weight"], sum(sizes.values()) - 1):
            part = with_room("llama", tied, "float32", room)
            places = places_of(part)
            assert places["lm_head.weight"] == DEVICE
            left = {name for name, place in places.items() if place == HOST}
            assert part.offloaded_bytes == sum(sizes[name] for name in left)
            assert tied or "model.embed_tokens.weight" in left
            assert len(left) == (1 if room > sizes["lm_head.weight"] else len(sizes) - 1)
            expected, got = (one.measure_gradient(0, LABELS, tiny_batch()) for one in (whole, part))
            assert torch.equal(got.slope_F, expected.slope_F)


def test_room_is_left_for_bases_and_for_folded_epochs(monkeypatch):
    run = tiny_settings(steps=10, refresh_period=3, rank=2)
    with elsewhere():
        for kind in (None, "int8"):
            base = base_of("opt", room=0)
            slots = attach(base.model)[1]
            matrices = [slot for slot in slots if slot.slot.is_matrix]
            vectors = sum(slot.parameter.nbytes for slot in slots if not slot.slot.is_matrix)
            sides = sum(sum(slot.slot.shape) for slot in matrices)
            folded = 0 if kind is None else 4 * 2 * 4  # four epochs, in float32
            assert placing._needed(base, slots, [], run, kind) == vectors + sides * (3 * 2 * 8 + folded)


def mixture_of(family, dtype="float32", room=inf):
    model = family_model(family)
    model.set_experts_implementation("eager")  # the usual one has no operators of a GPU here
    return prepare_model(model, tiny_tokenizer(), device=str(DEVICE), dtype=dtype, room=room)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", MIXTURES)
def test_offloaded_experts_compute_and_export_what_others_do(monkeypatch, family, dtype):
    batch = tiny_batch(labelled=False)
    # An expert that all tokens share makes a sum of three slopes, and its order changes.
    error = (1e-6 if dtype == "float32" else 0.02) if family == "Qwen2-MoE" else 0
    with elsewhere():
        whole = Replica(mixture_of(family, dtype), tiny_settings(refresh_period=3))
        monkeypatch.setattr(placing, "room_for_weights", lambda _device: 0)
        monkeypatch.setattr(placing, "_needed", lambda *_: 0)
        part = Replica(mixture_of(family, dtype, 0), tiny_settings(refresh_period=3))
        assert not any(one.dim() == 3 for one in part.model.parameters())
        for one in (whole, part):
            one.apply(some_updates(12, steps=6, scalar_max=1 << 20))
            one.open_epoch(2)
        assert part.measure(6, 3, TEXTS, batch) == whole.measure(6, 3, TEXTS, batch)
        for how in ({}, {"micro_batch": 1, "is_checkpointed": True}):
            expected, got = (one.measure_gradient(6, TEXTS, batch, **how) for one in (whole, part))
            difference = float((got.slope_F - expected.slope_F).norm())
            assert difference <= error * float(expected.slope_F.norm())
        weights, exported = whole.weights(), part.weights()
    assert exported.keys() == weights.keys()
    assert all(torch.equal(exported[name], weight) for name, weight in weights.items())


def test_the_experts_of_one_layer_are_there_at_a_time(monkeypatch):
    fetch, alive, most = experts.ExpertTensor.fetch, [], 0

    def watched(self):
        nonlocal most
        fetched_EXY = fetch(self)
        alive.append(weakref.ref(fetched_EXY))
        most = max(most, sum(one() is not None for one in alive))
        return fetched_EXY

    monkeypatch.setattr(experts.ExpertTensor, "fetch", watched)
    monkeypatch.setattr(placing, "room_for_weights", lambda _device: 0)
    monkeypatch.setattr(placing, "_needed", lambda *_: 0)
    with elsewhere():
        part = Replica(mixture_of("Qwen3-MoE", room=0), tiny_settings())
        alive.clear()
        most = 0
        part.measure_gradient(0, TEXTS, tiny_batch(labelled=False))
    layers, tensors, passes = 2, 2, 2
    assert len(alive) == layers * tensors * passes
    assert most == tensors
    assert not any(one() is not None for one in alive)


def test_masters_of_experts_go_unless_rounding_has_lost_something():
    """They do not change. In most files weights have half precision, so nothing is lost."""
    for is_lossless in (True, False):
        model = family_model("Mixtral")
        if is_lossless:
            model.to(torch.bfloat16).to(torch.float32)
        before = {name: one.detach().clone() for name, one in model.named_parameters()}
        replica = Replica(prepare_model(model, tiny_tokenizer(), dtype="bfloat16"), tiny_settings())
        kept = {name for name in replica.base.master if ".experts." in name}
        assert len(kept) == (0 if is_lossless else 4)
        exported = replica.weights()
        assert all(torch.equal(exported[name], one) for name, one in before.items())


def test_experts_of_a_layer_that_do_not_fit_are_refused_and_nothing_was_moved(monkeypatch):
    monkeypatch.setattr(placing, "room_for_weights", lambda _device: 1000)
    with elsewhere():
        base = mixture_of("Mixtral", room=1000)
        with pytest.raises(
            ModelError, match=r"experts of one layer, above all\) takes .*, and cuda:1 has room for 1.0"
        ):
            Replica(base, tiny_settings())
        assert {one.device for one in base.model.parameters()} == {HOST}


@pytest.mark.parametrize("product", [torch.nn.functional.linear, lambda x, weight: x @ weight.T])
def test_a_model_that_computes_with_a_matrix_by_itself_is_refused(monkeypatch, product):
    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * product(x, self.up_proj.weight))

    with elsewhere():
        base = base_of("llama", room=0)
        monkeypatch.setattr(placing, "room_for_weights", lambda _device: 0)
        monkeypatch.setattr(placing, "_needed", lambda *_: 0)
        monkeypatch.setattr(type(base.model.model.layers[0].mlp), "forward", forward)
        with pytest.raises(ModelError, match="quantised or offloaded: it computes with one by itself"):
            Replica(base, tiny_settings())


def test_the_base_model_is_not_kept_beside_one_that_does_not_fit(monkeypatch, tmp_path):
    run = tiny_settings(task="reward", estimate="gradient", score="exact", kl=0.1)
    monkeypatch.setattr(trainer, "load_base", None)
    with elsewhere(), pytest.raises(ModelError, match=r"cuda:1 has no room for both: .*, or kl = 0"):
        trainer.make_replica(run, base_of("llama", room=0), NodeSettings(state=tmp_path))


def test_a_model_of_which_nothing_is_a_parameter_any_more_knows_its_device(monkeypatch):
    monkeypatch.setattr(placing, "room_for_weights", lambda _device: 0)
    monkeypatch.setattr(placing, "_needed", lambda *_: 0)
    with elsewhere():
        base = prepare_model(family_model("OLMo"), tiny_tokenizer(), device=str(DEVICE), dtype="float32", room=0)
        part = Replica(base, tiny_settings())
        assert not sum(one.numel() for one in part.model.parameters())
        assert part.base.causal.device == part.causal.device == DEVICE
        assert part.measure_gradient(0, LABELS, tiny_batch()).slope_F.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_few_bits_lie_elsewhere_too(with_room, dtype, kind):
    with elsewhere():
        whole, part = (with_room("llama", True, dtype, room, quantize=kind) for room in (inf, 4_000))
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
        part = with_room("opt", True, "float32", 0)
        monkeypatch.setattr(fetched, "PART_ELEMENTS_MAX", 16 * 5)
        expected, got = (one.measure_gradient(0, TEXTS, tiny_batch(labelled=False)) for one in (whole, part))
    torch.testing.assert_close(got.slope_F, expected.slope_F, rtol=1e-4, atol=1e-6)


def test_the_sum_over_parts_is_not_rounded_for_each(monkeypatch):
    x_BM, weight_MK = torch.randn(5, 640), torch.randn(640, 64)
    matrix = OffloadedMatrix(weight_MK.to(torch.bfloat16), weight_MK, HOST)
    monkeypatch.setattr(fetched, "PART_ELEMENTS_MAX", 64 * 20)
    got_BK = matrix.add_parts(torch.zeros(5, 64, dtype=torch.bfloat16), x_BM.to(torch.bfloat16), is_transposed=False)
    expected_BK = x_BM.to(torch.bfloat16).double() @ weight_MK.to(torch.bfloat16).double()
    assert float((got_BK - expected_BK).norm()) < 0.003 * float(expected_BK.norm())


def test_the_host_waits_for_the_device_only_to_look_up_rows(with_room):
    waits = []
    with elsewhere() as watch:
        for room in (inf, 0):
            replica = with_room("llama", False, "bfloat16", room)
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
    monkeypatch.setattr(placing, "_needed", lambda *_: 0)
    monkeypatch.setattr(trainer, "find_device", torch.device)
    monkeypatch.setattr(trainer, "load_base", load_base)
    run = tiny_settings(task="embedded", model="embedded")
    node = NodeSettings(state=tmp_path, data="embedded", device=str(DEVICE), dtype="float32", evaluate_examples=8)
    with elsewhere():
        made = trainer.Trainer(run, node)
        before = places_of(made.replica)
        assert {HOST, DEVICE} == set(before.values())
        matrices = sum(
            4 * slot.slot.shape[0] * slot.slot.shape[1] for slot in made.replica.slots if slot.slot.is_matrix
        )
        assert matrices - 200_000 <= made.replica.offloaded_bytes < matrices
        made.rebuild([], [])
        assert places_of(made.replica) == before
