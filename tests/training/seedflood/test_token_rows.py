"""Embeddings of tokens by rows, where several tokens share a row of A: 48 tokens, 16 rows."""

import numpy
import pytest
import torch
from reference import (
    FAMILIES,
    VOCABULARY,
    dense_slopes,
    objective_of,
    rows_basis,
    tiny_base,
    tiny_batch,
    tiny_model,
    tiny_replica,
    tiny_settings,
)

from seedflood.protocol.seedflood.bundles import Update
from seedflood.training.seedflood import subspace as subspace_module
from seedflood.training.seedflood.adapter import make_adapter
from seedflood.training.seedflood.compression import quantise
from seedflood.training.seedflood.replica import Replica

peft = pytest.importorskip("peft")

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:Model has `tie_word_embeddings=True`",
        "ignore:fan_in_fan_out is set to",
        "ignore:`is_gradient_checkpointing` is deprecated",
    ),
    pytest.mark.usefixtures("drawn_once"),
]
TOKENS_BT = torch.arange(VOCABULARY).view(4, -1)
KINDS = [(family, tied) for family in FAMILIES for tied in (True, False)]


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    for name in ("ROWS_PER_RANK", "FEW_PER_RANK"):
        monkeypatch.setattr(subspace_module, name, 4)


def updated(replica):
    """Two epochs, one of them folded."""
    rng = numpy.random.default_rng(1)
    replica.apply(
        Update(origin, step, quantise(replica.compression, rng.normal(size=replica.subspace.size))[0])
        for step in range(12)
        for origin in (1, 2)
    )
    replica.open_latest()
    return replica


def a_replica(family, tied):
    return tiny_replica(family, tied=tied, estimate="gradient", window="bounded", learning_rate=1e-2)


@torch.inference_mode()
def logits(model):
    return model(input_ids=TOKENS_BT, use_cache=False).logits


@pytest.mark.parametrize(("family", "tied"), KINDS)
def test_the_live_path_computes_with_the_weights_that_the_coefficients_mean(family, tied):
    replica, plain = updated(a_replica(family, tied)), tiny_model(family, tied=tied)
    assert replica.subspace.sparse.rows == 16
    before, words = logits(plain), plain.get_input_embeddings().weight
    expected = words.detach().clone()
    for basis, a in replica.parts(len(replica.slots) - 1):
        expected += (rows_basis(basis).float() @ a) @ basis.v_NR.T
    plain.load_state_dict(replica.weights())
    torch.testing.assert_close(words.detach(), expected, rtol=0, atol=1e-5)
    live = logits(replica.model)
    torch.testing.assert_close(live, logits(plain), rtol=1e-4, atol=1e-4)
    assert float((live - before).abs().max()) > 0.05


def test_columns_of_a_slot_by_rows_are_all_drawn():
    gradients, drawn = a_replica("opt", tied=True), tiny_replica("opt", window="bounded")
    bases = [one.subspace.basis(1, len(one.slots) - 1).v_NR for one in (gradients, drawn)]
    assert torch.equal(*bases)


@pytest.mark.parametrize(("family", "tied"), KINDS)
def test_slopes_are_those_of_a_plain_model(family, tied):
    replica, plain = updated(a_replica(family, tied)), tiny_model(family, tied=tied)
    plain.load_state_dict(replica.weights())
    for batch in (tiny_batch(), tiny_batch(labelled=False)):
        slope_F = replica.measure_gradient(11, objective_of(batch), batch).slope_F.double()
        expected_F = dense_slopes(plain.double(), replica.subspace, replica.epoch, batch)
        assert float((slope_F - expected_F).norm()) < 1e-4 * float(expected_F.norm())


@pytest.mark.parametrize("family", FAMILIES)
def test_quantised_weights_and_an_adapter_hold_the_same_change(family, tmp_path):
    replica = updated(a_replica(family, tied=True))
    stored = Replica(tiny_base(family), tiny_settings(estimate="gradient", window="bounded"), quantize="int8")
    replica.hand_over(stored)
    assert stored.digest() == replica.digest()
    changes = [(one.change(len(one.slots) - 1), one.learning_rate) for one in (replica, stored)]
    torch.testing.assert_close(*(change / rate for change, rate in changes), rtol=1e-4, atol=1e-4)
    adapter = make_adapter(replica, "base")
    loaded = peft.PeftModel.from_pretrained(tiny_model(family), adapter.write(tmp_path / "adapter", "| run | ab |"))
    torch.testing.assert_close(logits(loaded), logits(replica.model), rtol=0, atol=1e-4)
    assert adapter.error == 0
