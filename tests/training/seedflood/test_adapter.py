"""An adapter is loaded by PEFT onto the base model, and computes what the replica computes."""

import json

import pytest
import torch
from reference import FAMILIES, VOCABULARY, some_updates, tiny_model, tiny_replica
from safetensors.torch import load_file, save_file

from seedflood.errors import ConfigError, ModelError
from seedflood.training.adapting import CONFIG_FILE, WEIGHTS_FILE, add_adapter
from seedflood.training.seedflood.adapter import make_adapter

peft = pytest.importorskip("peft")

pytestmark = pytest.mark.filterwarnings(
    "ignore:Model has `tie_word_embeddings=True`",
    "ignore:fan_in_fan_out is set to",
    "ignore:`is_gradient_checkpointing` is deprecated",
)
TOKENS_BT = torch.randint(1, VOCABULARY, (3, 9), generator=torch.Generator().manual_seed(5))

CARD = "| run | ab |"
"""Only what tells its run is replaced."""


def trained(family="opt", *, epochs=2, tied=True, **changes):
    """Epochs of four steps and rank 4; the matrices of a tiny model have 12 to 48 rows or columns."""
    replica = tiny_replica(family, tied=tied, refresh_period=4, **changes)
    replica.apply(some_updates(40 * epochs, steps=4 * epochs, scalar_max=1 << 20))
    replica.open_latest()
    return replica


@torch.inference_mode()
def live_logits(replica):
    return replica.causal.logits(replica.causal.hidden_states(TOKENS_BT))


@torch.inference_mode()
def base_logits(family="opt", *, tied=True):
    return tiny_model(family, tied=tied)(input_ids=TOKENS_BT, use_cache=False).logits


@torch.inference_mode()
def loaded_logits(adapter, folder, family="opt", *, tied=True):
    model = peft.PeftModel.from_pretrained(tiny_model(family, tied=tied), adapter.write(folder, CARD))
    return model(input_ids=TOKENS_BT, use_cache=False).logits


@torch.inference_mode()
def own_logits(adapter, folder, family="opt", *, tied=True):
    """Without PEFT."""
    add_adapter(model := tiny_model(family, tied=tied), adapter.write(folder, CARD))
    return model(input_ids=TOKENS_BT, use_cache=False).logits


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_an_adapter_computes_what_the_replica_computes(family, tied, tmp_path):
    replica = trained(family, tied=tied)
    adapter = make_adapter(replica, "base")
    expected = live_logits(replica)
    for logits in (loaded_logits, own_logits):
        loaded = logits(adapter, tmp_path / "adapter", family, tied=tied)
        torch.testing.assert_close(loaded, expected, rtol=0, atol=1e-5)
    assert (base_logits(family, tied=tied) - expected).abs().max() > 0.05
    assert (adapter.config["r"], adapter.error, adapter.is_tied) == (8, 0.0, tied)


@pytest.mark.parametrize("family", ["opt", "gpt2", "llama"])
def test_more_epochs_than_a_matrix_has_columns_are_joined_exactly(family, tmp_path):
    replica = trained(family, epochs=14)
    adapter = make_adapter(replica, "base")
    loaded = loaded_logits(adapter, tmp_path / "adapter", family)
    torch.testing.assert_close(loaded, live_logits(replica), rtol=0, atol=1e-5)
    assert adapter.config["r"] == 16
    assert adapter.error == 0.0


def test_a_rank_that_is_too_small_keeps_the_largest_singular_values_and_says_what_is_lost(tmp_path):
    replica = trained()
    exact = make_adapter(replica, "base")
    errors, distances = [], []
    for rank in (1, 3, 5):
        adapter = make_adapter(replica, "base", rank=rank)
        assert adapter.config["r"] == rank
        errors.append(adapter.error)
        distances.append((loaded_logits(adapter, tmp_path / "adapter") - live_logits(replica)).norm())
    assert 1 > errors[0] > errors[1] > errors[2] > exact.error
    assert distances[0] > distances[2]
    changes = [replica.change(index) for index in range(len(replica.slots))]
    cut = [
        torch.linalg.svdvals(one)[5:]
        for slot, one in zip(replica.slots, changes, strict=True)
        if len(one.shape) == 2 and "positions" not in slot.slot.name
    ]
    expected = torch.cat(cut).norm() / torch.cat([one.flatten() for one in changes]).norm()
    assert errors[2] == pytest.approx(float(expected), rel=1e-4)


def test_for_servers_that_take_nothing_else_there_are_linear_layers_alone():
    replica = trained("qwen2")
    adapter = make_adapter(replica, "base", is_linear_only=True)
    assert {name.rpartition(".lora_")[2] for name in adapter.tensors} == {"A.weight", "B.weight"}
    assert {name.split(".")[-3] for name in adapter.tensors} == {
        *("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    }
    assert (adapter.config["bias"], adapter.config["modules_to_save"]) == ("none", None)
    assert 0 < adapter.error < 1


def test_a_run_without_updates_has_an_adapter_that_changes_nothing(tmp_path):
    adapter = make_adapter(tiny_replica(), "base")
    assert (adapter.config["r"], adapter.error) == (1, 0.0)
    torch.testing.assert_close(loaded_logits(adapter, tmp_path / "adapter"), base_logits(), rtol=0, atol=1e-6)


def test_an_adapter_replaces_an_adapter_and_nothing_else(tmp_path):
    adapter = make_adapter(tiny_replica(), "base")
    adapter.write(tmp_path / "adapter", CARD)
    adapter.write(tmp_path / "adapter", CARD)
    (tmp_path / "thesis.tex").write_text("all of it")
    for other in (tmp_path, tmp_path / "thesis.tex"):
        with pytest.raises(ConfigError, match="holds something else"):
            adapter.write(other)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter", "thesis.tex"]


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("opt", {"target_modules": ["q_proj", "fc1", "embed_tokens"], "bias": "all"}),
        ("opt", {"target_modules": ["q_proj"], "modules_to_save": ["final_layer_norm", "lm_head"]}),
        ("gpt2", {"target_modules": ["c_attn"], "fan_in_fan_out": True, "bias": "lora_only"}),
        ("llama", {"target_modules": "all-linear", "use_rslora": True}),
        ("llama", {"target_modules": ["q_proj", "v_proj"], "rank_pattern": {"0.self_attn.q_proj": 5}}),
        ("llama", {"target_modules": ["q_proj", "v_proj"], "alpha_pattern": {"layers.1.*v_proj": 40}}),
    ],
)
@pytest.mark.filterwarnings("ignore:Setting `save_embedding_layers`", "ignore:Could not find a config file")
def test_an_adapter_of_peft_computes_what_peft_computes(family, settings, tmp_path):
    config = peft.LoraConfig(r=3, lora_alpha=7, init_lora_weights=False, task_type="CAUSAL_LM", **settings)
    model = peft.get_peft_model(tiny_model(family), config)
    with torch.inference_mode():
        for one in (one for one in model.parameters() if one.requires_grad):
            one.add_(0.1 * torch.randn_like(one))
        expected = model.eval()(input_ids=TOKENS_BT, use_cache=False).logits
        model.save_pretrained(tmp_path)
        add_adapter(own := tiny_model(family), tmp_path)
        torch.testing.assert_close(own(input_ids=TOKENS_BT, use_cache=False).logits, expected, rtol=0, atol=1e-5)
    assert (base_logits(family) - expected).abs().max() > 0.01


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"peft_type": "IA3"}, r"not plain LoRA \(IA3\)"),
        ({"use_dora": True}, r"not plain LoRA \(use_dora\)"),
        ({"lora_bias": True}, r"not plain LoRA \(lora_bias\)"),
        ({"init_lora_weights": "pissa"}, r"not plain LoRA \(init_lora_weights = pissa\)"),
        ({"lora_alpha": None}, "is broken"),
        ({"alpha_pattern": {"(": 1}}, "is broken"),
    ],
)
def test_an_adapter_of_another_kind_is_refused(change, said, tmp_path):
    adapter = make_adapter(tiny_replica(), "base")
    adapter.write(tmp_path / "adapter")
    (tmp_path / "adapter" / CONFIG_FILE).write_text(json.dumps(adapter.config | change))
    with pytest.raises(ModelError, match=said):
        add_adapter(tiny_model("opt"), tmp_path / "adapter")


@pytest.mark.parametrize("lost", [CONFIG_FILE, WEIGHTS_FILE])
def test_a_folder_without_an_adapter_or_with_a_broken_one_is_refused(lost, tmp_path):
    folder = make_adapter(tiny_replica(), "base").write(tmp_path / "adapter")
    (folder / lost).write_text("no")
    with pytest.raises(ModelError, match=r"is broken .*: export it again"):
        add_adapter(tiny_model("opt"), folder)
    (folder / lost).unlink()
    with pytest.raises(ModelError, match="holds no adapter: it needs"):
        add_adapter(tiny_model("opt"), folder)


def test_an_adapter_of_another_base_model_is_refused_and_its_own_is_named(tmp_path):
    folder = make_adapter(tiny_replica(), "the-base").write(tmp_path / "adapter")
    with pytest.raises(ModelError, match=r"of another base model .*name with --model the one that it is of, the-base"):
        add_adapter(tiny_model("llama"), folder)
    tensors = load_file(folder / WEIGHTS_FILE)
    for name, other in {
        "base_model.model.model.decoder.layers.0.fc1.lora_A.weight": torch.zeros(1, 17),
        "base_model.model.model.decoder.layers.0.fc1.lora_B.weight": torch.zeros(24, 2),
        "base_model.model.model.decoder.layers.0.final_layer_norm.bias": torch.zeros(1),
        "base_model.model.model.decoder.layers.0.fc1.lora_magnitude_vector": torch.zeros(1),
    }.items():
        save_file(tensors | {name: other}, folder / WEIGHTS_FILE)
        with pytest.raises(ModelError, match="of another base model"):
            add_adapter(tiny_model("opt"), folder)
