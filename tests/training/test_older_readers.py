"""What is exported of a model that an older transformers wrote is the same model to that version, which the
configuration of the model names."""

import json
import subprocess
from pathlib import Path

import pytest
import torch
from families import FAMILIES, SHAPE
from older_environment import older_python
from older_reader import LENGTH_MAX, TOKENS_BT
from safetensors.torch import load_file, save_file

from seedflood.config import NodeSettings, RunSettings
from seedflood.training.loading import load_base
from seedflood.training.models import distinct_parameters, export_model

OLDER = ("transformers==4.40.0", "numpy<2")
"""The version that the configuration of Llama 3 names."""

READER = Path(__file__).parent / "older_reader.py"

LONG = {**SHAPE, "max_position_embeddings": 64, "rope_theta": 500_000.0}
LLAMA = {**LONG, **FAMILIES["Llama"][1]}

SPECIAL = {
    "linear": ("llama", {**LLAMA, "rope_scaling": {"type": "linear", "factor": 4.0}}),
    "dynamic": ("llama", {**LLAMA, "rope_scaling": {"type": "dynamic", "factor": 2.0}}),
    "tied": ("llama", {**LLAMA, "tie_word_embeddings": True}),
    "own-head": ("llama", LLAMA),
    "biased": ("llama", {**LLAMA, "attention_bias": True}),
    "alibi": ("falcon", {**LONG, **FAMILIES["Falcon"][1], "alibi": True}),
}
OTHERWISE = {
    "Mistral": {"sliding_window": 64},  # version 4.40 heeds it with FlashAttention alone
    "StarCoder2": {"sliding_window": 64},
    "GPT-NeoX": {"rotary_pct": 0.5, "rotary_emb_base": 50_000, "rope_theta": 50_000},
    "StableLM": {"partial_rotary_factor": 0.5},
}
MADE = {
    **{name: (kind, {**LONG, **changes, **OTHERWISE.get(name, {})}) for name, (kind, changes) in FAMILIES.items()},
    **SPECIAL,
}


def asked(python, word, folder, said=None):
    done = subprocess.run(
        [python, READER, word, folder], input=said and json.dumps(said), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def older():
    try:
        return older_python(*OLDER)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"{OLDER[0]} cannot be had here: {error}")


@torch.inference_mode()
def logits_of(model):
    return model(TOKENS_BT, use_cache=False).logits.float()


@pytest.fixture(scope="module")
def read(older, tmp_path_factory):
    """By name: what the older version says of a base model and of an export of it, trained by a little, and the logits
    that both have here."""
    home = tmp_path_factory.mktemp("older")
    asked(older, "write", home / "base", MADE)
    head = load_file(home / "base/own-head/model.safetensors")
    save_file(head, home / "base/own-head/model.safetensors", {"format": "pt"})
    change(home / "base/own-head/config.json", tie_word_embeddings=True)
    expected = {}
    for path in sorted((home / "base").iterdir()):
        change(path / "generation_config.json", temperature=0.6, top_p=0.9)
        expected[path.name] = export_changed(path, home / "export" / path.name)
    before, after = (json.loads(asked(older, "read", home / folder)) for folder in ("base", "export"))
    return {name: (before[name], after[name], *expected[name]) for name in expected}


def change(file, **values):
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def export_changed(path, target):
    base = load_base(RunSettings.of(model=str(path), task="lm"), NodeSettings(device="cpu"))
    before = logits_of(base.model)
    torch.manual_seed(1)
    with torch.no_grad():
        for _, parameter in distinct_parameters(base.model):
            parameter.add_(torch.randn_like(parameter) * 0.1)
    after = logits_of(base.model)
    export_model(base, base.model.state_dict(keep_vars=True), target)
    return before, after


def test_the_older_version_knows_most_families(read):
    assert len(read) >= 25, sorted(read)


def test_an_export_computes_there_what_it_computes_here(read):
    """rope_theta was 10000 for 500000: logits were off by more than half of their size."""
    wrong = {}
    for name, (_, told, before, after) in read.items():
        assert (before - after).abs().max() > 0.1, f"{name}: nothing was trained"
        distance = float((torch.tensor(told["logits"]) - after).abs().max())
        if distance > 1e-3 or told["missing"] or told["dtype"] != "torch.float32":
            wrong[name] = distance, told["missing"], told["dtype"]
    assert not wrong


def test_a_base_model_computes_here_what_it_computes_there(read):
    """But for a head that version 4 passes over, since the configuration says that it is tied."""
    wrong = {}
    for name, (told, _, before, _) in read.items():
        distance = float((torch.tensor(told["logits"]) - before).abs().max())
        if (distance > 1e-3) != (name == "own-head"):
            wrong[name] = distance
    assert not wrong


@pytest.mark.parametrize("key", ["class", "model_max_length", "tokens", "special", "chat", "eos"])
def test_its_tokenizer_and_its_ends_are_those_of_the_base_model(read, key):
    for name, (before, after, *_) in read.items():
        assert after[key] == before[key], name
        assert after["model_max_length"] == LENGTH_MAX


def test_its_configuration_is_that_of_the_base_model_but_for_a_head_of_its_own(read):
    for name, (before, after, *_) in read.items():
        ignored = {"_name_or_path", "dtype", "architectures"}
        differing = {
            key
            for key in before["config"].keys() | after["config"].keys()
            if before["config"].get(key) != after["config"].get(key)
        }
        assert differing - ignored == ({"tie_word_embeddings"} if name == "own-head" else set()), name
