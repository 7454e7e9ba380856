"""What is exported of a model that an older transformers wrote is the same model to that version, which the
configuration of the model names."""

import json
import subprocess
from pathlib import Path

import pytest
import torch
from families import FAMILIES, SHAPE
from older_environment import older_python
from older_reader import LENGTH_MAX, TEMPLATE, TOKENS_BT
from reference import tiny_tokenizer
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from seedflood.config import NodeSettings, RunSettings
from seedflood.training.loading import load_base
from seedflood.training.models import distinct_parameters, export_model

KNOWN_MIN = {"4.33.3": 8, "4.40.0": 24, "4.45.2": 25, "4.51.3": 30}
"""By version: how many of these models it knows at least. Configurations name 4.33 (Llama 2, Mistral), 4.40 (Llama 3),
4.45 (Llama 3.2, Qwen2.5) and 4.51 (Qwen3, Gemma 3)."""

OLDER = [pytest.param(one, marks=[] if one == "4.40.0" else pytest.mark.long) for one in KNOWN_MIN]

READER = Path(__file__).parent / "older_reader.py"

LONG = {**SHAPE, "max_position_embeddings": 64, "rope_theta": 500_000.0}
LLAMA = {**LONG, **FAMILIES["Llama"][1]}

SPECIAL = {
    "linear": ("llama", {**LLAMA, "rope_scaling": {"type": "linear", "factor": 4.0}}),
    "dynamic": ("llama", {**LLAMA, "rope_scaling": {"type": "dynamic", "factor": 2.0}}),
    "tied": ("llama", {**LLAMA, "tie_word_embeddings": True}),
    "own-head": ("llama", LLAMA),
    "biased": ("llama", {**LLAMA, "attention_bias": True}),
    "llama3": (
        "llama",
        {
            **LLAMA,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        },
    ),
    "yarn": (
        "qwen2",
        {**LLAMA, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}},
    ),
    "longrope": (
        "phi3",
        {
            **LLAMA,
            "original_max_position_embeddings": 32,
            "rope_scaling": {"type": "longrope", "short_factor": [1.5, 2.0], "long_factor": [2.0, 4.0]},
        },
    ),
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


@pytest.fixture(scope="module", params=OLDER)
def version(request):
    return request.param


@pytest.fixture(scope="module")
def older(version):
    try:
        return older_python(f"transformers=={version}", "numpy<2")
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"transformers {version} cannot be had here: {error}")


@torch.inference_mode()
def logits_of(model):
    return model(TOKENS_BT, use_cache=False).logits.float()


NEWER = {
    *("Llama", "Qwen2", "Gemma 3", "GPT-NeoX", "Phi", "StableLM", "GLM", "OPT"),
    *("linear", "dynamic", "llama3", "yarn", "longrope"),
}
"""Models whose configuration this version writes in words of its own."""


NOT_YET = {
    "4.33.3": {"llama3", "yarn", "longrope", "biased"},
    "4.40.0": {"llama3", "yarn", "longrope"},
    "4.45.2": {"yarn"},
    "4.51.3": set(),
}
"""By version: what came later, or was computed otherwise."""


@pytest.fixture(scope="module")
def read_newer(older, version, tmp_path_factory):
    """By name: what the older version says of an export of a base model that this version wrote, and the logits that
    it has here."""
    home = tmp_path_factory.mktemp("newer")
    expected = {}
    for name in NEWER - NOT_YET[version]:
        kind, changes = MADE[name]
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**changes), dtype=torch.float32)
        model.save_pretrained(home / "base" / name)
        tokenizer = tiny_tokenizer()
        tokenizer.chat_template = TEMPLATE
        tokenizer.save_pretrained(home / "base" / name)
        _, expected[name] = export_changed(home / "base" / name, home / "export" / name)
    told = json.loads(asked(older, "read", home / "export"))
    return {name: (one, expected[name]) for name, one in told.items()}


@pytest.fixture(scope="module")
def read(older, version, tmp_path_factory):
    """By name: what the older version says of a base model and of an export of it, trained by a little, and the logits
    that both have here."""
    home = tmp_path_factory.mktemp("older")
    asked(older, "write", home / "base", {name: MADE[name] for name in MADE.keys() - NOT_YET[version]})
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


def test_the_older_version_knows_most_families_of_its_time(read, version):
    assert len(read) >= KNOWN_MIN[version], sorted(read)


def test_an_export_computes_there_what_it_computes_here(read):
    """rope_theta was 10000 for 500000: logits were off by more than half of their size."""
    wrong = {}
    for name, (_, told, before, after) in read.items():
        assert (before - after).abs().max() > 0.1, f"{name}: nothing was trained"
        distance = float((torch.tensor(told["logits"]) - after).abs().max())
        if distance > 1e-3 or told["missing"] or told["dtype"] != "torch.float32":
            wrong[name] = distance, told["missing"], told["dtype"]
    assert not wrong


@pytest.mark.long
def test_an_export_of_a_newer_base_model_computes_there_what_it_computes_here(read_newer, version):
    assert {"GPT-NeoX", "Llama", "OPT"} <= read_newer.keys()
    wrong = {}
    for name, (told, after) in read_newer.items():
        distance = float((torch.tensor(told["logits"]) - after).abs().max())
        if distance > 1e-3 or told["missing"] or told["chat"] not in (None, "user: a[bos]"):
            wrong[name] = distance, told["missing"], told["chat"]
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
