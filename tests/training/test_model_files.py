"""The files beside the weights of an export."""

import json
import shutil

import pytest
import torch
from marked_texts import tokenizer_of
from reference import TEXTS, tiny_base, tiny_batch, tiny_settings
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from seedflood.config import NodeSettings, RunSettings
from seedflood.errors import DiskFullError, ModelError
from seedflood.training import models
from seedflood.training.loading import load_base
from seedflood.training.model_files import older_rope
from seedflood.training.models import export_model, load_model, try_export
from seedflood.training.seedflood.replica import Replica

TURNS = "{% for one in messages %}{{ one.role }}: {{ one.content }}<|im_end|>{% endfor %}"


@pytest.fixture
def folder(tmp_path):
    """A small Llama as an older transformers would have written it."""
    tokenizer = tokenizer_of(TURNS)
    shape = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(**shape, vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id)
    for one in (LlamaForCausalLM(config), tokenizer):
        one.save_pretrained(tmp_path / "base")
    said = json.loads((tmp_path / "base/config.json").read_text())
    del said["rope_parameters"], said["dtype"]
    older = {"rope_theta": 500000.0, "rope_scaling": None, "torch_dtype": "bfloat16", "transformers_version": "4.40.0"}
    (tmp_path / "base/config.json").write_text(json.dumps(said | older))
    said = json.loads((tmp_path / "base/tokenizer_config.json").read_text())
    del said["backend"]
    older = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (tmp_path / "base/tokenizer_config.json").write_text(json.dumps(said | older))
    (tmp_path / "base/special_tokens_map.json").write_text('{"eos_token": "</s>"}')
    (tmp_path / "base/tokenizer.model").write_bytes(b"\x0a\x0b")
    return tmp_path / "base"


def told(folder, name="config.json"):
    return json.loads((folder / name).read_text())


def change(folder, name, **values):
    known = told(folder, name) if (folder / name).exists() else {}
    (folder / name).write_text(json.dumps(known | values))


def exported(folder, task="lm", **how):
    base = load_base(RunSettings.of(model=str(folder), task=task), NodeSettings(device="cpu"))
    return export_model(base, base.model.state_dict(keep_vars=True), folder.parent / "out", **how)


def test_everything_beside_the_weights_is_as_the_base_model_has_it(folder):
    """transformers 5 writes it in words that version 4, and others, do not know."""
    before = {path.name: path.read_bytes() for path in folder.iterdir() if "token" in path.name}
    before["chat_template.jinja"] = (folder / "chat_template.jinja").read_bytes()
    out = exported(folder)
    assert before == {name: (out / name).read_bytes() for name in before}
    kept = told(folder) | {"torch_dtype": "float32", "dtype": "float32", "tie_word_embeddings": False}
    assert told(out) == kept


def test_what_version_5_has_written_is_told_in_the_words_of_version_4_too(folder):
    said = told(folder)
    del said["rope_theta"], said["rope_scaling"]
    scaled = {"rope_type": "linear", "factor": 4.0, "rope_theta": 500000.0}
    (folder / "config.json").write_text(json.dumps(said | {"rope_parameters": scaled}))
    change(folder, "tokenizer_config.json", tokenizer_class="TokenizersBackend", backend="tokenizers", is_local=True)
    before = load_model(str(folder))
    out = exported(folder)
    assert told(out)["rope_parameters"] == scaled
    assert told(out)["rope_theta"] == 500000.0
    assert told(out)["rope_scaling"] == {"type": "linear", "factor": 4.0}
    template = (folder / "chat_template.jinja").read_text()
    assert told(out, "tokenizer_config.json")["chat_template"] == template
    assert told(out, "tokenizer_config.json")["tokenizer_class"] == "PreTrainedTokenizerFast"
    after = load_model(str(out))
    assert after.model.config.rope_parameters == before.model.config.rope_parameters | {"type": "linear"}
    assert after.tokenizer("a b").input_ids == before.tokenizer("a b").input_ids


@pytest.mark.parametrize(
    ("config", "older"),
    [
        (
            {
                "model_type": "gemma3_text",
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                },
            },
            {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": {"type": "linear", "factor": 8.0}},
        ),
        (
            {"model_type": "gpt_neox", "rope_parameters": {"rope_theta": 5e4, "partial_rotary_factor": 0.5}},
            {
                "rope_theta": 5e4,
                "rope_scaling": None,
                "partial_rotary_factor": 0.5,
                "rotary_emb_base": 5e4,
                "rotary_pct": 0.5,
            },
        ),
        (
            {
                "model_type": "phi3",
                "original_max_position_embeddings": 32,
                "rope_parameters": {
                    "rope_type": "longrope",
                    "type": "longrope",
                    "rope_theta": 1e4,
                    "short_factor": [1.0],
                    "long_factor": [2.0],
                    "original_max_position_embeddings": 32,
                },
            },
            {
                "rope_theta": 1e4,
                "rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]},
            },
        ),
        ({"model_type": "newer", "rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, {}),
        ({"model_type": "opt"}, {}),
    ],
    ids=["windows", "GPT-NeoX", "longrope", "unknown", "none"],
)
def test_positions_are_told_in_the_words_that_each_family_had(config, older):
    assert older_rope(config) == older


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_type_of_the_weights_is_told_in_the_words_of_all_versions(folder, dtype):
    out = exported(folder, dtype=dtype)
    assert {told(out)[key] for key in ("dtype", "torch_dtype")} == {dtype}
    assert {str(one.dtype) for one in load_file(out / "model.safetensors").values()} == {f"torch.{dtype}"}


def test_what_is_no_longer_true_is_left_out(folder):
    code = {"AutoTokenizer": ["theirs.Tokenizer", None]}
    change(folder, "config.json", auto_map={"AutoConfig": "theirs.Settings"}, quantization_config=None)
    change(folder, "tokenizer_config.json", auto_map=code)
    out = exported(folder)
    assert not {"auto_map", "quantization_config"} & told(out).keys()
    assert told(out, "tokenizer_config.json") == {
        key: one for key, one in told(folder, "tokenizer_config.json").items() if key != "auto_map"
    }


def test_a_head_of_its_own_is_told_though_the_base_model_says_that_it_is_tied(folder):
    """Other readers would tie it, and lose what was trained."""
    change(folder, "config.json", tie_word_embeddings=True)
    out = exported(folder)
    assert told(out)["tie_word_embeddings"] is False
    assert "lm_head.weight" in load_file(out / "model.safetensors")


def test_a_tied_head_stays_tied_also_where_the_configuration_does_not_say_it(folder):
    change(folder, "config.json", tie_word_embeddings=True)
    weights = load_file(folder / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    out = exported(folder)
    assert told(out)["tie_word_embeddings"] is True
    assert "lm_head.weight" not in load_file(out / "model.safetensors")


@pytest.mark.parametrize("task", ["lm", "chat"])
@pytest.mark.parametrize(
    "sampling",
    [{"temperature": 0.6, "top_p": 0.9}, {"do_sample": False, "top_k": 5}, {"pad_token_id": -1, "temperature": 0.1}],
)
def test_sampling_is_exported_as_the_base_model_has_it_even_where_transformers_would_refuse_it(folder, sampling, task):
    """Llama 2 has a temperature and no `do_sample`: a finished run ended with exit code 70."""
    change(folder, "generation_config.json", **sampling)
    out = exported(folder, task)
    assert told(out, "generation_config.json").items() >= sampling.items()
    assert load_model(str(out)).model.generation_config.to_dict().items() >= sampling.items()


def test_generation_settings_that_nobody_can_read_are_passed_over_as_transformers_does(folder):
    (folder / "generation_config.json").write_text("{")
    assert told(exported(folder), "generation_config.json")["eos_token_id"] == told(folder)["eos_token_id"]


def test_generation_settings_may_stand_in_the_configuration_as_in_old_models(folder):
    (folder / "generation_config.json").unlink()
    change(folder, "config.json", temperature=0.6, do_sample=True, max_length=50)
    assert told(exported(folder)).items() >= {"temperature": 0.6, "do_sample": True, "max_length": 50}.items()


def test_a_model_that_is_in_no_folder_is_exported_in_the_words_of_both_versions(tmp_path):
    base = tiny_base("llama")
    base.tokenizer.add_special_tokens({"extra_special_tokens": ["<|turn|>"]})
    out = export_model(base, dict(base.model.named_parameters()), tmp_path / "out")
    theta = told(out)["rope_parameters"]["rope_theta"]
    assert (told(out)["rope_theta"], told(out)["rope_scaling"], told(out)["use_cache"]) == (theta, None, True)
    assert told(out, "tokenizer_config.json")["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert told(out, "tokenizer_config.json")["additional_special_tokens"] == ["<|turn|>"]
    assert load_model(str(out)).tokenizer.all_special_tokens == base.tokenizer.all_special_tokens


# Before a run


def test_an_export_of_nothing_leaves_nothing(folder, tmp_path):
    base = load_model(str(folder))
    before = sorted(tmp_path.rglob("*"))
    try_export(base, tmp_path / "new/below/model", base.parameters_count)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_export_of_nothing_changes_no_model(folder):
    base = load_model(str(folder))
    replica = Replica(base, tiny_settings())
    before, said = replica.digest(), base.model.generation_config
    try_export(base, folder.parent / "out", base.parameters_count)
    assert base.model.generation_config is said
    assert replica.digest() == before
    assert replica.measure_gradient(0, TEXTS, tiny_batch(labelled=False)).slope_F.any()
    assert load_model(str(replica.export(folder.parent / "out"))).digest == base.digest


def test_too_little_space_for_the_model_is_told_before_the_run(folder, tmp_path, monkeypatch):
    base = load_model(str(folder))
    monkeypatch.setattr(models.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 1000))
    with pytest.raises(DiskFullError, match=r"no space to export to .*: the model takes .*, and 1.0 kB are free"):
        try_export(base, tmp_path / "out", base.parameters_count)


def fail(*_, **__):
    raise ValueError("The tokenizer cannot be saved.\nIt has no file.")


@pytest.mark.parametrize("what", ["model", "tokenizer"])
def test_what_transformers_refuses_to_write_is_told_before_the_run_in_one_sentence(tmp_path, monkeypatch, what):
    base = tiny_base()
    monkeypatch.setattr(getattr(base, what), "save_pretrained", fail)
    with pytest.raises(ModelError, match=r"transformers does not write it \(The tokenizer cannot be saved.\)\.$"):
        try_export(base, tmp_path / "out", base.parameters_count)
    assert not any(tmp_path.iterdir())


def test_a_tokenizer_that_would_come_back_as_another_is_told_before_the_run(folder, tmp_path):
    base = load_model(str(folder))
    base.files = {name: content for name, content in base.files.items() if name != "chat_template.jinja"}
    with pytest.raises(ModelError, match="its tokenizer, written and read again, is another"):
        try_export(base, tmp_path / "out", base.parameters_count)


def test_a_family_whose_weights_are_stored_otherwise_than_computed_is_exported_as_it_was(tmp_path):
    """Experts lie one by one in files, and side by side in memory."""
    torch.manual_seed(0)
    mixtral = pytest.importorskip("transformers").MixtralForCausalLM
    shape = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    tokenizer = tokenizer_of(TURNS)
    config = mixtral.config_class(**shape, num_key_value_heads=1, num_local_experts=2, vocab_size=len(tokenizer))
    for one in (mixtral(config), tokenizer):
        one.save_pretrained(tmp_path / "base")
    before = load_file(tmp_path / "base/model.safetensors")
    after = load_file(exported(tmp_path / "base") / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
