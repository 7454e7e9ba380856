import json

import pytest
import torch
from reference import tiny_base, tiny_model, tiny_tokenizer

from seedflood.errors import ConfigError, ModelError
from seedflood.training.models import digest_weights, export_model, load_model, prepare_model


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


@pytest.mark.parametrize("tied", [True, False])
def test_tied_parameters_count_once(tied):
    count = sum(parameter.numel() for parameter in tiny_model("opt", tied=tied).parameters())
    assert tiny_base(tied=tied).parameters_count == count


def test_a_missing_model_is_told_in_one_sentence(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match='Model "nobody/nothing" is neither a folder nor in the local cache') as caught:
        load_model("nobody/nothing")
    assert "\n" not in str(caught.value)


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


def test_an_unknown_device_is_refused():
    with pytest.raises(ModelError, match='"gpu" is no device'):
        prepare_model(tiny_model("opt"), None, device="gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_without_a_device_is_refused():
    with pytest.raises(ModelError, match="torch finds no CUDA device"):
        prepare_model(tiny_model("opt"), None, device="cuda")


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
    with pytest.raises(ModelError, match="No space left on device"):
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
