"""A file of llama.cpp is a base model like any other."""

import copy
import importlib.util

import pytest
import torch
from reference import TEXTS, tiny_batch, tiny_settings
from transformers import LlamaForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from seedflood.errors import ModelError
from seedflood.training.models import load_model
from seedflood.training.seedflood.replica import Replica

gguf = pytest.importorskip("gguf")

WIDTH, INNER, LAYERS, HEADS = 32, 64, 2, 4
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOKENS = ["<s>", "</s>", *LETTERS, "Ġ", "Ġa", "th"] + [f"w{k}" for k in range(17)]


THETA = 500_000.0


def write(path, *, more=None, scaling=None):
    """Writes a random Llama, its matrices in 8 bits. more: other tensors. Returns what its values are."""
    writer, torch_values = gguf.GGUFWriter(path, "llama"), {}
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(THETA)
    if scaling is not None:
        writer.add_rope_scaling_type(scaling)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_merges(["t h", "Ġ a"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    generator = torch.Generator().manual_seed(0)
    shapes = {"token_embd": (len(TOKENS), WIDTH), "output": (len(TOKENS), WIDTH), "output_norm": (WIDTH,)}
    for k in range(LAYERS):
        block = {f"blk.{k}.attn_{side}": (WIDTH, WIDTH) for side in ("q", "k", "v", "output")}
        block |= {f"blk.{k}.ffn_{side}": (INNER, WIDTH) for side in ("gate", "up")}
        shapes |= block | {f"blk.{k}.ffn_down": (WIDTH, INNER)}
        shapes |= {f"blk.{k}.attn_norm": (WIDTH,), f"blk.{k}.ffn_norm": (WIDTH,)}
    for name, shape in shapes.items():
        value = torch.randn(shape, generator=generator).numpy()
        kind = gguf.GGMLQuantizationType.Q8_0 if len(shape) == 2 else gguf.GGMLQuantizationType.F32
        stored = gguf.quants.quantize(value, kind)
        writer.add_tensor(f"{name}.weight", stored, raw_dtype=kind)
        torch_values[name] = torch.from_numpy(gguf.quants.dequantize(stored, kind).copy())
    for name, value in (more or {}).items():
        writer.add_tensor(name, value.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return torch_values


@pytest.fixture
def model(tmp_path):
    """A file, and what its values are."""
    return tmp_path / "tiny.gguf", write(tmp_path / "tiny.gguf")


def test_a_gguf_file_is_loaded_with_the_values_that_it_stands_for(model):
    path, values = model
    base = load_model(str(path))
    weights = dict(base.model.named_parameters())
    assert torch.equal(weights["model.layers.1.mlp.down_proj.weight"], values["blk.1.ffn_down"])
    assert torch.equal(weights["model.layers.0.input_layernorm.weight"], values["blk.0.attn_norm"])
    assert torch.equal(weights["lm_head.weight"], values["output"])
    assert base.tokenizer.decode(base.tokenizer("th a").input_ids) == "th a"
    assert base.digest == load_model(str(path)).digest


def test_what_is_exported_of_it_is_a_plain_model_with_the_same_digest(model, tmp_path):
    base = load_model(str(model[0]))
    digest = base.digest
    replica = Replica(base, tiny_settings())
    assert load_model(str(replica.export(tmp_path / "model"))).digest == digest
    assert replica.measure_gradient(0, TEXTS, tiny_batch(labelled=False)).slope_F.any()


def test_a_file_that_is_broken_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF and no more")
    with pytest.raises(ModelError, match=r"Cannot load a model from .*broken\.gguf") as caught:
        load_model(str(tmp_path / "broken.gguf"))
    assert "\n" not in str(caught.value)
    with pytest.raises(ModelError, match=r"there is no file .*other\.gguf"):
        load_model(str(tmp_path / "other.gguf"))


def test_without_the_package_the_extra_is_named(model, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"install seedflood\[gguf\]"):
        load_model(str(model[0]))


def test_tensors_that_transformers_has_no_name_for_are_refused(tmp_path):
    """They were left out without a word."""
    write(tmp_path / "biased.gguf", more={f"blk.{k}.attn_q.bias": torch.ones(WIDTH) for k in range(LAYERS)})
    with pytest.raises(ModelError, match=r"holds 64 numbers that LlamaForCausalLM does not take, as biases"):
        load_model(str(tmp_path / "biased.gguf"))


STRETCHED = {
    "rope_type": "llama3",
    "rope_theta": THETA,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def divisors_of(config):
    """As llama.cpp's converter writes them."""
    plain = THETA ** -(torch.arange(0, WIDTH // HEADS, 2) / (WIDTH // HEADS))
    return plain / ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))[0]


@torch.inference_mode()
def logits_of(model):
    return model(torch.arange(40).unsqueeze(0), use_cache=False).logits


def test_the_stretched_positions_of_llama_3_come_back_and_are_exported(model, tmp_path):
    """transformers passes over them: logits were those of another model."""
    plain = load_model(str(model[0])).model
    expected = copy.deepcopy(plain.config)
    expected.rope_parameters = STRETCHED
    wanted = LlamaForCausalLM(expected).eval()
    wanted.load_state_dict(plain.state_dict())
    write(tmp_path / "stretched.gguf", more={"rope_freqs.weight": divisors_of(expected)})
    base = load_model(str(tmp_path / "stretched.gguf"))
    assert (logits_of(plain) - logits_of(wanted)).abs().max() > 0.1
    torch.testing.assert_close(logits_of(base.model), logits_of(wanted))
    exported = load_model(str(Replica(base, tiny_settings()).export(tmp_path / "out")))
    torch.testing.assert_close(logits_of(exported.model), logits_of(wanted))


def test_positions_that_are_stretched_otherwise_are_refused(tmp_path):
    write(tmp_path / "odd.gguf", more={"rope_freqs.weight": torch.tensor([1.0, 7.0, 3.0, 9.0])})
    with pytest.raises(ModelError, match="stretches positions in a way that transformers does not read"):
        load_model(str(tmp_path / "odd.gguf"))
    write(tmp_path / "yarn.gguf", scaling=gguf.RopeScalingType.YARN)
    with pytest.raises(ModelError, match=r"stretches positions \(yarn\)"):
        load_model(str(tmp_path / "yarn.gguf"))
