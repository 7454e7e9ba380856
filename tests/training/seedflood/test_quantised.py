"""A host with quantised weights learns what the others learn, and computes with what it has of the base model."""

import copy
import importlib.util
import re
from pathlib import Path
from typing import get_args

import pytest
import torch
from elsewhere import elsewhere
from families import MIXTURES, family_model
from reference import (
    TEXTS,
    dense_slopes,
    objective_of,
    some_updates,
    tiny_base,
    tiny_batch,
    tiny_model,
    tiny_replica,
    tiny_settings,
    tiny_tokenizer,
)

from seedflood.config import NodeSettings
from seedflood.errors import ModelError
from seedflood.training import models
from seedflood.training.generation import Wish, write_on
from seedflood.training.models import prepare_model
from seedflood.training.seedflood import quantised as quantised_module
from seedflood.training.seedflood.quantised import Quantisation, check_quantisation, quantise
from seedflood.training.seedflood.replica import Replica
from seedflood.training.seedflood.trainer import Trainer

pytestmark = pytest.mark.usefixtures("drawn_once")

KINDS = [
    "int8",
    pytest.param("nf4", marks=pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="no nf4")),
]
FAMILIES = ("opt", "gpt2", "gemma3")
"""Linear layers and shifted embeddings; Conv1D; scaled embeddings."""


def all_rows(matrix):
    return torch.cat([rows_XN for _, rows_XN in matrix.base_rows()])


def quantised(family, kind, updates=()):
    replica = Replica(tiny_base(family), tiny_settings(), quantize=kind)
    replica.apply(updates)
    replica.open_latest()
    return replica


def plain_of(replica, family):
    """A plain model with the weights that a quantised replica stands for."""
    changes, plain = {}, tiny_model(family)
    for index, slot in enumerate(replica.slots):
        base = slot.parameter if slot.stored is None else all_rows(slot.stored)
        if slot.stored is None:  # folded already
            changes[slot.slot.name] = torch.addmv(base, slot.u_MR, slot.a[0])
        else:
            changes[slot.slot.name] = base + replica.change(index)
    with torch.no_grad():
        for name, parameter in plain.named_parameters(remove_duplicate=False):
            if name in changes:
                parameter.copy_(changes[name])
    return plain


@pytest.mark.parametrize(("kind", "error_max"), [("int8", 0.01), pytest.param("nf4", 0.1, marks=KINDS[1].marks)])
@pytest.mark.parametrize("shape", [(48, 16), (5, 200), (3000, 1500)])
def test_a_matrix_is_stored_to_a_few_parts_of_its_size(kind, error_max, shape):
    weight_MN = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 0.02
    matrix = quantise(kind, weight_MN, torch.device("cpu"))
    stored_MN = all_rows(matrix)
    assert (stored_MN - weight_MN).norm() < error_max * weight_MN.norm()
    x = torch.randn(2, shape[1])
    torch.testing.assert_close(matrix.outputs(x, slice(None)), x @ stored_MN.T, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(matrix.inputs(x @ stored_MN.T), x @ stored_MN.T @ stored_MN, rtol=1e-3, atol=1e-3)
    some = torch.tensor([4, 0, 2]) % shape[0]
    assert torch.equal(matrix.lookup(some), stored_MN[some])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_epochs_are_computed_beside_the_stored_weights(family, kind):
    updates = some_updates(60, steps=30, scalar_max=1 << 20)
    replica = quantised(family, kind, updates[:20] + updates[30:])
    replica.apply(updates[20:30])  # late
    plain, batch = plain_of(replica, family), tiny_batch(labelled=False)
    with torch.inference_mode():
        live, expected = (one(input_ids=batch.tokens_BT).logits for one in (replica.model, plain))
    torch.testing.assert_close(live, expected, rtol=1e-4, atol=1e-4)
    slope_F = replica.measure_gradient(20, TEXTS, batch).slope_F.to(torch.float64)
    expected_F = dense_slopes(plain.to(torch.float64), replica.subspace, 2, batch)
    assert float((slope_F - expected_F).norm()) < 1e-5 * float(expected_F.norm())


@pytest.mark.parametrize("kind", KINDS)
def test_digests_and_bases_do_not_depend_on_how_weights_are_stored(kind):
    updates = some_updates(40, steps=20)
    whole, other = tiny_replica("opt"), quantised("opt", kind, updates)
    whole.apply(updates)
    assert (whole.digest(), whole.base.digest) == (other.digest(), other.base.digest)
    whole, other = (
        Replica(tiny_base("opt"), tiny_settings(estimate="gradient"), quantize=quantize) for quantize in (None, kind)
    )
    for index in range(len(whole.slots)):
        assert torch.equal(whole.subspace.basis(3, index).u_MR, other.subspace.basis(3, index).u_MR)


@pytest.mark.parametrize("kind", KINDS)
def test_on_a_gpu_weights_are_quantised_before_they_are_rounded(kind):
    half = Replica(prepare_model(tiny_model("opt"), tiny_tokenizer(), dtype="bfloat16"), tiny_settings(), quantize=kind)
    for slot, other in zip(half.slots, quantised("opt", kind).slots, strict=True):
        if other.stored is not None:
            assert torch.equal(all_rows(slot.stored), all_rows(other.stored))
    half.apply(some_updates(20))
    assert half.measure_gradient(0, TEXTS, tiny_batch(labelled=False)).slope_F.isfinite().all()


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_two_sided_estimates_are_near_those_of_whole_weights(kind, labelled):
    batch = tiny_batch(labelled=labelled)
    measured = [one.measure(0, 3, objective_of(batch), batch) for one in (tiny_replica("opt"), quantised("opt", kind))]
    assert measured[0].loss != measured[1].loss
    assert measured[0].loss == pytest.approx(measured[1].loss, abs=0.02 if kind == "int8" else 0.5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", MIXTURES)
def test_experts_have_few_bits_too(family, kind):
    base = prepare_model(family_model(family), tiny_tokenizer(), dtype="float32")
    replica, plain = Replica(base, tiny_settings(), quantize=kind), family_model(family)
    assert not any(one.dim() == 3 for one in replica.model.parameters())
    stored = {slot.slot.name: all_rows(slot.stored) for slot in replica.slots if slot.stored is not None}
    stored |= {tensor.name: tensor.fetch() for tensor in replica._experts}
    with torch.no_grad():
        for name, weight in stored.items():
            parameter = plain.get_parameter(name)
            assert 0 < float((weight - parameter).norm()) < 0.1 * float(parameter.norm())
            parameter.copy_(weight)
    plain.set_experts_implementation("eager")  # that of float64
    batch = tiny_batch(labelled=False)
    actual_F = replica.measure_gradient(0, TEXTS, batch).slope_F.to(torch.float64)
    expected_F = dense_slopes(plain.to(torch.float64), replica.subspace, 0, batch)
    assert float((actual_F - expected_F).norm()) < 1e-5 * float(expected_F.norm())


@pytest.mark.parametrize("kind", KINDS)
def test_what_such_a_host_exports_is_on_the_whole_base_model(kind, tmp_path):
    node = NodeSettings(state=tmp_path, data="embedded", device="cpu", evaluate_examples=8)
    run = tiny_settings(task="embedded", model="embedded", refresh_period=10)
    exported = []
    for quantize in (None, kind):
        trainer = Trainer(run, node.model_copy(update={"dtype": quantize or "float32"}))
        trainer.replica.apply(some_updates(40, steps=20))
        trainer.complete()
        exported.append((trainer.export(tmp_path / str(quantize), "card") / "model.safetensors").read_bytes())
        assert trainer.dtype == (quantize or "float32")
    assert exported[0] == exported[1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_matrix_is_the_same_however_many_rows_are_encoded_at_once(monkeypatch, kind):
    weight_MN, cpu = torch.randn(50, 70, generator=torch.Generator().manual_seed(0)), torch.device("cpu")
    whole = quantise(kind, weight_MN, cpu)
    monkeypatch.setattr(quantised_module, "CHUNK_ELEMENTS", 7 * 70)
    assert torch.equal(all_rows(quantise(kind, weight_MN, cpu)), all_rows(whole))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [5, 6, 16, 66, 100])
def test_rows_can_be_sent_whatever_their_width(kind, width):
    matrix = quantise(kind, torch.randn(4, width), torch.device("cpu"))
    for rows in (slice(0, 4), slice(2, 3)):
        assert torch.equal(matrix.unpacked(matrix.packed(rows)), all_rows(matrix)[rows])


def test_the_device_never_gets_more_than_some_rows_of_a_matrix_in_more_bits(tmp_path, monkeypatch):
    """It may have no room for the model in half precision. So exports are made in host memory, too."""
    monkeypatch.setattr(quantised_module, "CHUNK_ELEMENTS", 4096)
    read = models._read(str(models.BUILT_IN["embedded"]))
    matrices = [one.numel() for one in read[0].parameters() if one.dim() == 2]
    monkeypatch.setattr(models, "_read", lambda _location: copy.deepcopy(read))
    node = NodeSettings(state=tmp_path, data="embedded", device="cuda:1", dtype="int8", evaluate_examples=8)
    with elsewhere() as watch:
        trainer = Trainer(tiny_settings(task="embedded", model="embedded", estimate="gradient", rank=2), node)
        assert {str(one.device) for one in trainer.replica.model.parameters()} == {"cuda:1"}
        trainer.complete()
        trainer.export(tmp_path / "model", "card")
    assert 0 < watch.largest <= 4096 < max(matrices)


def test_without_its_package_nf4_is_refused_in_one_sentence(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check_quantisation("int8")
    with pytest.raises(ModelError, match=r"install seedflood\[nf4\]"):
        check_quantisation("nf4")


def test_the_table_of_quantised_bases_has_every_kind():
    page = (Path(__file__).parents[3] / "docs" / "reference" / "models.md").read_text()
    assert tuple(re.findall(r"^\| `(\w+)` \| [\d.]+ \|", page, re.MULTILINE)) == get_args(Quantisation)


def test_a_model_writes_on_if_nothing_of_it_is_a_parameter_any_more():
    """OLMo's norms have no weights. transformers asks the parameters where a model is."""
    base = prepare_model(family_model("OLMo"), tiny_tokenizer(), device="cpu", dtype="float32")
    replica = Replica(base, tiny_settings(), quantize="int8")
    assert not list(replica.model.parameters())
    assert 1 <= len(write_on(base, "a film was good .", Wish(5), lambda _: None)) <= 5
    assert not list(replica.model.parameters())
