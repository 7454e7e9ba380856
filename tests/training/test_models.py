import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from families import FAMILIES, MIXTURES, family_model
from reference import VOCABULARY, tiny_base, tiny_model, tiny_replica, tiny_settings, tiny_tokenizer
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Glm4MoeConfig, Glm4MoeForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from seedflood.config import NodeSettings, RunSettings
from seedflood.errors import ConfigError, DiskFullError, ModelError
from seedflood.training.card import Learned, model_card
from seedflood.training.models import (
    digest_weights,
    export_model,
    find_size,
    load_model,
    prepare_model,
    with_tokens,
)
from seedflood.training.seedflood.adapter import make_adapter
from seedflood.training.seedflood.lending import Handover, LendingTrainer, prepare_given
from seedflood.training.seedflood.replica import Replica


def test_the_base_digest_does_not_depend_on_the_dtype_of_the_file_or_the_device():
    half = tiny_model("opt").to(torch.float16)
    digests = set()
    for dtype in ("float32", "bfloat16", "auto"):
        model = tiny_model("opt")
        model.load_state_dict(half.state_dict())
        digests.add(prepare_model(model, tiny_tokenizer(), dtype=dtype).digest)
    assert len(digests) == 1


def test_the_base_digest_tells_every_weight_name_and_shape():
    weights = {"a": torch.zeros(2, 3), "b": torch.ones(4)}
    others = [
        {"a": torch.zeros(3, 2), "b": torch.ones(4)},
        {"a": torch.zeros(2, 3), "c": torch.ones(4)},
        {"a": torch.zeros(2, 3), "b": torch.tensor([1.0, 1.0, 1.0, 1.0000001])},
    ]
    assert digest_weights(weights) not in {digest_weights(other) for other in others}
    assert digest_weights(dict(reversed(weights.items()))) == digest_weights(weights)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_in_half_precision_a_model_computes_as_transformers_loads_it(family, dtype, tmp_path):
    """Rotary frequencies are not rounded, above all."""
    family_model(family).save_pretrained(tmp_path)
    expected = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=getattr(torch, dtype))
    model = prepare_model(family_model(family), tiny_tokenizer(), dtype=dtype).model
    given = prepare_given(AutoModelForCausalLM.from_pretrained(tmp_path, dtype=getattr(torch, dtype))).model
    buffers = dict(expected.named_buffers())
    for ours in (dict(model.named_buffers()), dict(given.named_buffers())):
        assert {name: one.dtype for name, one in ours.items()} == {name: one.dtype for name, one in buffers.items()}
        assert all(torch.equal(ours[name], one) for name, one in buffers.items())
    tokens_BT = torch.arange(1, 25).unsqueeze(0)
    logits = [one(input_ids=tokens_BT, use_cache=False).logits for one in (model, given, expected)]
    assert torch.equal(logits[0], logits[2])
    assert torch.equal(logits[1], logits[2])


def routed(tmp_path):
    """A folder of a mixture that chooses experts by a bias which is no parameter. transformers keeps it in float32."""
    config = Glm4MoeConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        moe_intermediate_size=8,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        n_routed_experts=4,
        num_experts_per_tok=2,
        first_k_dense_replace=1,
    )
    model = Glm4MoeForCausalLM(config)
    model.model.layers[1].mlp.gate.e_score_correction_bias.copy_(torch.tensor([0.301, -0.2, 0.1, 0.05]))
    model.save_pretrained(tmp_path / "routed")
    tiny_tokenizer().save_pretrained(tmp_path / "routed")
    return tmp_path / "routed"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_files_hold_beside_parameters_is_exported_and_in_the_digest(dtype, tmp_path):
    folder = routed(tmp_path)
    base = load_model(str(folder), dtype=dtype)
    name = "model.layers.1.mlp.gate.e_score_correction_bias"
    exported = Replica(base, tiny_settings()).export(tmp_path / "export")
    written = load_file(exported / "model.safetensors")
    assert torch.equal(written[name], load_file(folder / "model.safetensors")[name])
    assert load_model(str(exported)).digest == base.digest
    changed = load_file(folder / "model.safetensors")
    changed[name][0] += 0.5
    save_file(changed, folder / "model.safetensors", {"format": "pt"})
    assert load_model(str(folder)).digest != base.digest


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_script_may_give_a_model_with_more_than_parameters(dtype, tmp_path):
    folder = routed(tmp_path)
    run = tiny_settings(model=str(folder), task="own", estimate="gradient")
    node = NodeSettings(data="embedded", device="cpu", state=tmp_path / "state")
    given = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    lent = LendingTrainer(run, node, given, Handover())
    assert lent.replica.base.digest == load_model(str(folder)).digest


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_mixture_that_was_loaded_takes_as_much_memory_as_its_weights(tmp_path):
    """transformers puts experts of files together, and glibc used to keep what that takes."""
    config = Qwen3MoeConfig(
        vocab_size=64,
        hidden_size=512,
        moe_intermediate_size=512,
        num_experts=16,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
    )
    Qwen3MoeForCausalLM(config).to(torch.bfloat16).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    program = [sys.executable, Path(__file__).with_name("memory_of_loading.py"), tmp_path]
    loaded = subprocess.run(program, check=True, capture_output=True, text=True)
    assert 1 <= float(loaded.stdout.splitlines()[-1]) < 1.3


@pytest.mark.parametrize("tied", [True, False])
def test_tied_parameters_count_once(tied):
    count = sum(parameter.numel() for parameter in tiny_model("opt", tied=tied).parameters())
    assert tiny_base(tied=tied).parameters_count == count


@pytest.mark.parametrize("family", MIXTURES)
def test_the_experts_of_a_layer_are_counted_without_the_weights(family, tmp_path):
    model = family_model(family)
    model.config.save_pretrained(tmp_path)
    experts = [one.numel() for name, one in model.named_parameters() if "layers.0." in name and one.dim() == 3]
    assert find_size(str(tmp_path)).experts == sum(experts) > 0


@pytest.mark.parametrize("tied", [True, False])
def test_parameters_are_counted_without_the_weights(tied, tmp_path):
    model = tiny_model("opt", tied=tied)
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    sides = sum(sum(parameter.shape) for parameter in model.parameters() if parameter.dim() == 2)
    assert find_size(str(tmp_path)) == (sum(parameter.numel() for parameter in model.parameters()), sides, 0)
    (tmp_path / "config.json").write_text("{")
    assert find_size(str(tmp_path)) is None, "loading says what is wrong"


def test_a_missing_model_is_told_in_one_sentence(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match='Model "nobody/nothing" is neither a folder nor in the local cache') as caught:
        load_model("nobody/nothing")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["./model", "{}/model"])
def test_a_path_that_leads_nowhere_is_not_looked_for_on_the_hub(tmp_path, name):
    with pytest.raises(ModelError, match=r"there is no folder .*/model: correct the model's name"):
        load_model(name.format(tmp_path))


def test_a_folder_without_a_model_is_told_in_one_sentence(tmp_path):
    with pytest.raises(ModelError, match="Cannot load a model from folder") as caught:
        load_model(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_broken_weights_file_is_told_in_one_sentence(tmp_path):
    base = tiny_base()
    folder = export_model(base, dict(base.model.named_parameters()), tmp_path / "model")
    (folder / "model.safetensors").write_bytes(b"not safe at all")
    with pytest.raises(ModelError, match="Cannot load a model from folder"):
        load_model(str(folder))


def test_a_model_that_changes_its_logits_after_the_head_is_refused():
    model = tiny_model("llama")
    model.register_forward_hook(lambda module, inputs, output: output | {"logits": output.logits.square()})
    with pytest.raises(ModelError, match="changes its logits after the head"):
        prepare_model(model, None)


def test_a_folder_that_holds_something_else_is_not_overwritten(tmp_path):
    (tmp_path / "thesis.tex").write_text("all of it")
    base = tiny_base()
    with pytest.raises(ConfigError, match="holds something else"):
        export_model(base, dict(base.model.named_parameters()), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_failed_export_leaves_the_model_that_was_there(tmp_path, monkeypatch):
    base = tiny_base()
    weights = dict(base.model.named_parameters())
    folder = export_model(base, weights, tmp_path / "model", card="| run | ab |")
    before = (folder / "model.safetensors").read_bytes()

    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(base.tokenizer, "save_pretrained", fail)
    with pytest.raises(DiskFullError, match="no space to export"):
        export_model(base, weights, folder, card="| run | ab |")
    assert (folder / "model.safetensors").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_that_brings_code_is_refused_and_its_code_is_not_run(tmp_path):
    base = tiny_base()
    folder = export_model(base, dict(base.model.named_parameters()), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    classes = {"AutoConfig": "theirs.Settings", "AutoModelForCausalLM": "theirs.Model"}
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "theirs", "auto_map": classes}))
    (folder / "theirs.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Settings: pass\nclass Model: pass\n"
    )
    with pytest.raises(ModelError, match="brings code of its own") as caught:
        load_model(str(folder))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "ran").exists()


def test_pickled_weights_are_refused_and_not_run(tmp_path):
    base = tiny_base()
    folder = export_model(base, dict(base.model.named_parameters()), tmp_path / "model")
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="safetensors"):
        load_model(str(folder))


def saved(folder, *, without="", **changes):
    """A tiny model in a folder, without some of its weights, and with changes to its configuration."""
    base = tiny_base("llama", tied=False)
    weights = {name: one.contiguous() for name, one in base.model.state_dict().items() if name != without}
    export_model(base, dict(base.model.named_parameters()), folder)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return str(folder)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("lost", ["lm_head.weight", "model.layers.1.mlp.up_proj.weight"])
def test_a_folder_that_lacks_weights_is_refused_where_each_host_would_draw_others(tmp_path, lost):
    with pytest.raises(ModelError, match=f"lacks weights of LlamaForCausalLM .{lost}, 1 in all"):
        load_model(saved(tmp_path / "model", without=lost))


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_an_adapter_is_no_base_model(tmp_path):
    peft = pytest.importorskip("peft")
    model = AutoModelForCausalLM.from_pretrained(saved(tmp_path / "model"))
    peft.get_peft_model(model, peft.LoraConfig(r=2)).save_pretrained(tmp_path / "adapter")
    tiny_tokenizer().save_pretrained(tmp_path / "adapter")
    with pytest.raises(ModelError, match="holds an adapter: put it into its base model"):
        load_model(str(tmp_path / "adapter"))


def test_a_folder_of_quantised_weights_is_refused(tmp_path):
    pytest.importorskip("bitsandbytes")
    kind = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    with pytest.raises(ModelError, match="are quantised: name the model that they were made of"):
        load_model(saved(tmp_path / "model", quantization_config=kind))


def test_a_model_that_looks_at_later_tokens_is_refused():
    model = tiny_model("gemma3")
    for layer in model.model.layers:
        layer.register_forward_hook(lambda module, inputs, output: output + inputs[0].mean(1, keepdim=True))
    with pytest.raises(ModelError, match="looks at later tokens, so it is no causal language model"):
        prepare_model(model, None)


def test_weights_that_are_no_numbers_are_refused():
    model = tiny_model("llama")
    model.model.norm.weight.data[3] = float("nan")
    with pytest.raises(ModelError, match="not finite: its weights are damaged"):
        prepare_model(model, None)


def test_a_model_that_cannot_compute_is_told_in_one_sentence():
    model = tiny_model("llama")
    model.model.norm.weight = torch.nn.Parameter(torch.ones(3))
    with pytest.raises(ModelError, match=r"\(LlamaForCausalLM\) cannot compute \("):
        prepare_model(model, None)


@pytest.mark.parametrize("is_its_own", [True, False])
def test_an_adapter_that_another_base_model_was_trained_to_is_told(tmp_path, caplog, is_its_own):
    """Shapes agree: an adapter of a run that another one followed, put onto the base model of the first."""
    replica = tiny_replica()
    base = replica.base
    digest = with_tokens(base.digest, base.tokenizer) if is_its_own else bytes(32)
    learned = Learned(RunSettings(), digest, bytes(32), {}, {})
    adapter = make_adapter(replica, "its-base").write(tmp_path / "adapter", model_card(learned, "adapter"))
    folder = export_model(base, dict(tiny_base().model.named_parameters()), tmp_path / "model")
    load_model(str(folder), adapter=adapter)
    assert ("adapter was trained on another base model" in caplog.text) is not is_its_own
    assert is_its_own or "as its digest says: its-base" in caplog.text
