"""Weights that a model does not take."""

import json
import shutil

import pytest
import torch
from reference import tiny_base
from safetensors.torch import load_file, save_file

from seedflood.errors import ModelError
from seedflood.training.leftovers import check_leftovers
from seedflood.training.models import digest_model, export_model, load_model

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

Q = "model.layers.0.self_attn.q_proj"


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A small Llama in a folder."""
    base = tiny_base("llama", tied=False)
    return export_model(base, dict(base.model.named_parameters()), tmp_path_factory.mktemp("plain") / "model")


@pytest.fixture
def changed(plain, tmp_path):
    """A function that makes a copy of it with other weights, and another configuration."""

    def make(change, **config):
        folder = tmp_path / "model"
        shutil.copytree(plain, folder)
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        said = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(said | config))
        return str(folder)

    return make


@pytest.mark.parametrize(
    "name",
    [
        f"{Q}.bias",
        "lm_head.bias",
        "model.layers.1.self_attn.q_norm.weight",
        f"{Q}.lora_A.weight",
        "language_model.model.norm.weight",
        "score.weight",
        "model.layers.2.mlp.up_proj.weight",
    ],
)
def test_weights_that_the_model_does_not_take_are_refused_by_name(changed, name):
    """They were dropped without a word: what was trained was not the model of the folder."""
    with pytest.raises(ModelError, match=rf"holds weights that LlamaForCausalLM .* does not take \({name}, 1 in all\)"):
        load_model(changed(lambda weights: weights.update({name: torch.ones(16)})))


def test_a_configuration_of_fewer_layers_than_the_weights_have_is_refused(changed):
    with pytest.raises(ModelError, match=r"does not take \(model.layers.1.input_layernorm.weight, 9 in all\)"):
        load_model(changed(lambda weights: None, num_hidden_layers=1))


@pytest.mark.parametrize("scales", ["weight_scale", "weight_scale_inv", "input_scale", None])
@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2, torch.int8])
def test_a_bare_folder_of_few_bits_is_refused_whatever_its_scales_are_called(changed, scales, kind):
    """Without a word of them in config.json, they were taken as they are: perplexity 376 for 664."""

    def quantise(weights):
        for name in [name for name in weights if "proj" in name]:
            scale = weights[name].abs().max() / 100
            weights[name] = (weights[name] / scale).to(kind)
            if scales is not None:
                weights[name.replace("weight", scales)] = scale

    with pytest.raises(ModelError, match=r"The weights of .* are quantised.*: name the model that they were made of"):
        load_model(changed(quantise))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("v_head.summary.weight", "a value head"),
        ("vision_tower.encoder.layers.0.weight", "what sees and hears"),
        ("model.visual.blocks.0.attn.qkv.weight", "what sees and hears"),
        ("multi_modal_projector.linear.weight", "what sees and hears"),
        ("mtp.layers.0.mlp.up_proj.weight", "what predicts later tokens"),
    ],
)
def test_parts_that_a_language_model_does_without_are_named(changed, plain, caplog, name, told):
    loaded = load_model(changed(lambda weights: weights.update({name: torch.ones(16)})))
    assert f"{told} ({name}, 1 in all)" in caplog.text
    assert digest_model(loaded.model) == load_model(str(plain)).digest


@pytest.mark.parametrize(
    "name",
    [
        "transformer.h.0.attn.bias",
        "transformer.h.0.attn.masked_bias",
        "transformer.h.3.attn.attention.bias",
        "gpt_neox.layers.0.attention.masked_bias",
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.layers.0.self_attn.rotary_emb.cos_cached",
        "embeddings.position_ids",
    ],
)
def test_constants_that_older_versions_have_saved_are_no_weights(caplog, name):
    check_leftovers([name], "a folder", "GPT2LMHeadModel")
    assert not caplog.records


@pytest.mark.parametrize("name", ["model.layers.0.self_attn.o_proj.bias", "transformer.h.0.attn.c_attn.bias"])
def test_biases_are_no_constants(name):
    with pytest.raises(ModelError, match="does not take"):
        check_leftovers([name], "a folder", "GPT2LMHeadModel")


def test_weights_of_another_shape_are_told_by_name(changed):
    with pytest.raises(ModelError, match=r"holds model.norm.weight of shape \(8,\), and its config.json wants \(16,\)"):
        load_model(changed(lambda weights: weights.update({"model.norm.weight": torch.ones(8)})))


def test_a_file_of_few_bits_beside_the_weights_is_not_looked_at(changed, plain):
    folder = changed(lambda weights: None)
    weights = {"model.norm.weight": torch.ones(16).to(torch.float8_e4m3fn)}
    save_file(weights, f"{folder}/model.fp8.safetensors", {"format": "pt"})
    assert load_model(folder).digest == load_model(str(plain)).digest
