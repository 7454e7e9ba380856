"""Every family that docs/reference/models.md names is trained exactly."""

import re
from functools import cache
from pathlib import Path

import pytest
import torch
from families import FAMILIES, GROUPED, MIXTURES, family_model
from reference import TEXTS, VOCABULARY, dense_slopes, some_updates, tiny_batch, tiny_settings, tiny_tokenizer
from transformers import AutoModelForCausalLM

from seedflood.errors import ModelError
from seedflood.training.generation import Wish, write_on
from seedflood.training.models import distinct_parameters, prepare_model
from seedflood.training.seedflood.adapter import make_adapter
from seedflood.training.seedflood.replica import Replica

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
TOKENS_BT = torch.randint(1, VOCABULARY, (3, 9), generator=torch.Generator().manual_seed(5))


@cache
def trained(family):
    """A replica with two epochs, of which the later one is open. No test changes it."""
    replica = Replica(prepare_model(family_model(family), tiny_tokenizer()), tiny_settings())
    replica.apply(some_updates(40, steps=20, scalar_max=1 << 20))
    replica.open_latest()
    return replica


@torch.inference_mode()
def logits_of(model):
    return model(input_ids=TOKENS_BT, use_cache=False).logits


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gradient_of_the_increments_is_that_of_dense_weights(family):
    replica, plain = trained(family), family_model(family)
    plain.load_state_dict(replica.weights())
    plain.set_experts_implementation("eager")  # that of float64
    batch = tiny_batch(labelled=False)
    actual_F = replica.measure_gradient(10, TEXTS, batch).slope_F.to(torch.float64)
    expected_F = dense_slopes(plain.to(torch.float64), replica.subspace, 1, batch)
    assert float((actual_F - expected_F).norm()) < 1e-5 * float(expected_F.norm())


@pytest.mark.parametrize("family", FAMILIES)
def test_live_folded_and_exported_models_are_equal(family, tmp_path):
    replica, plain = trained(family), family_model(family)
    untrained, live = logits_of(plain), logits_of(replica.model)
    plain.load_state_dict(replica.weights())
    exported = AutoModelForCausalLM.from_pretrained(replica.export(tmp_path / "model"), dtype=torch.float32)
    assert float((live - untrained).abs().max()) > 0.05
    torch.testing.assert_close(live, logits_of(plain), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(logits_of(exported), logits_of(plain), rtol=0, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("family", FAMILIES)
def test_a_gpu_computes_what_a_processor_computes(family):
    on_gpu = Replica(
        prepare_model(family_model(family), tiny_tokenizer(), device="cuda", dtype="float32"), tiny_settings()
    )
    on_gpu.apply(some_updates(40, steps=20, scalar_max=1 << 20))
    on_gpu.open_latest()
    batch = tiny_batch(labelled=False)
    actual_F, expected_F = (one.measure_gradient(10, TEXTS, batch).slope_F for one in (on_gpu, trained(family)))
    assert float((actual_F - expected_F).norm()) < 1e-4 * float(expected_F.norm())
    for name, weight in trained(family).weights().items():
        torch.testing.assert_close(on_gpu.weights()[name].cpu(), weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_adapter_computes_what_the_replica_computes(family, tmp_path):
    peft = pytest.importorskip("peft")
    replica = trained(family)
    folder = make_adapter(replica, "base").write(tmp_path / "adapter")
    loaded = logits_of(peft.PeftModel.from_pretrained(family_model(family), folder))
    live = logits_of(replica.model)
    assert float((loaded - live).norm()) < 1e-5 * float(live.norm())


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_generation_with_a_cache_is_the_whole_pass(family):
    replica = trained(family)
    replica.model.generation_config.eos_token_id = None
    tokens = replica.base.tokenizer("a film was good .")["input_ids"]
    written = write_on(replica.base, "a film was good .", Wish(12), lambda _: None)
    whole = list(tokens)
    for _ in range(12):
        logits_TV = replica.causal.logits(replica.causal.hidden_states(torch.tensor([whole])))[0]
        whole.append(int(logits_TV[-1].argmax()))
    assert tokens + written == whole


@pytest.mark.parametrize("family", FAMILIES)
def test_all_is_trained_but_the_experts_of_mixtures(family):
    left = {name for name, _ in distinct_parameters(family_model(family))}
    left -= {slot.slot.name for slot in trained(family).slots}
    if family not in MIXTURES:
        assert not left
    assert all(re.search(r"experts|router|gate|sinks|mlp", name) for name in left), left


def test_the_table_of_families_is_that_of_the_tests():
    page = (Path(__file__).parents[3] / "docs" / "reference" / "models.md").read_text()
    whole = re.search(r"\*\*trained whole:\*\* ([^-]+)", page)
    in_part = re.search(r"\*\*all but the experts:\*\* ([^#]+)", page)
    assert re.findall(r"`(\w+)`", whole[1]) == [kind for name, (kind, _) in FAMILIES.items() if name not in MIXTURES]
    assert re.findall(r"`(\w+)`", in_part[1]) == [FAMILIES[name][0] for name in MIXTURES]


def test_a_model_that_computes_with_a_parameter_beside_its_layer_is_refused(monkeypatch):
    mamba = {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 4, "mamba_dt_rank": 4}
    shape = GROUPED | mamba | {"num_experts": 2, "num_experts_per_tok": 2, "use_mamba_kernels": False}
    monkeypatch.setitem(FAMILIES, "Jamba", ("jamba", shape))
    with pytest.raises(ModelError, match=r"Cannot train model\.layers\.0\.mamba\.dt_proj: the model computes with its"):
        Replica(prepare_model(family_model("Jamba"), tiny_tokenizer()), tiny_settings())
