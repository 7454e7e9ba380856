import shutil
import subprocess
import sys

import datasets
import pytest
import torch
from marked_texts import tokenizer_of
from reference import VOCABULARY, tiny_base, tiny_settings
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from seedflood import embedded
from seedflood.config import NodeSettings, RunSettings
from seedflood.errors import DataError, ModelError
from seedflood.training import loading
from seedflood.training.evaluation import evaluate
from seedflood.training.files import read_file
from seedflood.training.guessing import guess_objective
from seedflood.training.loading import load_base, load_rows
from seedflood.training.models import digest_model, export_model, load_model, with_tokens
from seedflood.training.rows import Splits
from seedflood.training.shards import Shard
from seedflood.training.tasks import task_of_rows

RUN = RunSettings.of(model="embedded", task="embedded")


def task_of(settings, tokenizer, file):
    """All rows of a file, to evaluate on."""
    table = read_file(file)
    return task_of_rows(settings, tokenizer, Splits(table, table), Shard(), VOCABULARY)


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_the_embedded_model_and_task_are_known_by_name(offline):
    base = load_base(RUN, NodeSettings(device="cpu"))
    assert base.digest == with_tokens(load_model(str(embedded.MODEL_FOLDER)).digest, base.tokenizer)
    task = load_rows(RUN, NodeSettings(), base)
    assert len(task.validation_examples) == len(embedded.rows("validation"))
    assert 0.4 < evaluate(base.causal, task).figures["accuracy"] < 0.6


LOADING_IN_THREADS = """
from concurrent.futures import ThreadPoolExecutor
from seedflood.training.models import load_model
with ThreadPoolExecutor(4) as threads:
    bases = list(threads.map(load_model, ["embedded"] * 12))
assert len({base.digest for base in bases}) == 1
"""


def test_threads_of_one_process_may_load_models_at_once(offline):
    subprocess.run([sys.executable, "-c", LOADING_IN_THREADS], check=True)  # alone: failing, it spoils its process


def test_a_host_may_have_the_model_in_a_folder_of_its_own(offline):
    run = RunSettings.of(model="nobody/nothing", task="embedded")
    base = load_base(run, NodeSettings(device="cpu", model_path=embedded.MODEL_FOLDER))
    assert base.digest == load_base(RUN, NodeSettings(device="cpu")).digest


def test_nodes_that_one_command_starts_take_the_gpus_in_turn(offline, monkeypatch):
    asked, base = [], load_base(RUN, NodeSettings(device="cpu"))
    monkeypatch.setattr("torch.accelerator.is_available", lambda: True)
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr("torch.accelerator.device_count", lambda: 2)
    monkeypatch.setattr(loading, "load_model", lambda name, **how: asked.append(how["device"]) or base)
    for rank in "012":
        monkeypatch.setenv("LOCAL_RANK", rank)
        load_base(RUN, NodeSettings())
    load_base(RUN, NodeSettings(device="cuda"))
    monkeypatch.delenv("LOCAL_RANK")
    load_base(RUN, NodeSettings())
    assert asked == ["cuda", "cuda:1", "cuda", "cuda", "cuda"]


def test_a_model_without_a_tokenizer_is_refused(offline, tmp_path):
    """transformers makes up one that knows no word."""
    shutil.copytree(embedded.MODEL_FOLDER, tmp_path / "model")
    for file in (tmp_path / "model").glob("*token*"):
        file.unlink()
    with pytest.raises(ModelError, match="tokenizer"):
        load_model(str(tmp_path / "model"))


def test_a_host_whose_tokenizer_makes_other_tokens_has_another_base_model(offline, tmp_path):
    shutil.copytree(embedded.MODEL_FOLDER, tmp_path / "model")
    (tmp_path / "model/tokenizer_config.json").unlink()  # of that, transformers makes a tokenizer of another class
    other, base = (load_base(RUN, NodeSettings(device="cpu", model_path=one)) for one in (tmp_path / "model", None))
    assert digest_model(other.model) == digest_model(base.model)
    assert other.digest != base.digest


TURNS = (
    "{% for one in messages %}{{ one.role }}: {{ one.content }}"
    "{% if one.role == 'assistant' %}<|im_end|>{% endif %}\n{% endfor %}"
)


@pytest.mark.parametrize(
    ("task", "ends"), [("chat", ["</s>", "<|im_end|>"]), ("reward", ["</s>", "<|im_end|>"]), ("lm", ["</s>"])]
)
def test_a_model_that_learned_chats_is_exported_with_the_end_of_their_turns(tmp_path, task, ends):
    """Else servers go on beyond an answer: a model that was not made for chats ends its texts by another token."""
    tokenizer = tokenizer_of(TURNS)
    shape = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(**shape, vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id)
    for one in (LlamaForCausalLM(config), tokenizer):
        one.save_pretrained(tmp_path / "base")
    base = load_base(RunSettings.of(model=str(tmp_path / "base"), task=task), NodeSettings(device="cpu"))
    export_model(base, dict(base.model.state_dict()), tmp_path / "learned")
    told = GenerationConfig.from_pretrained(tmp_path / "learned").eos_token_id
    assert sorted(told if isinstance(told, list) else [told]) == sorted(tokenizer.convert_tokens_to_ids(ends))


@pytest.mark.parametrize(("task", "ends"), [("completion", {"</s>", "<|im_end|>"}), ("lm", {"<|im_end|>"})])
def test_a_model_that_learned_completions_ends_texts_as_they_did(tmp_path, task, ends):
    """Its own end is another one, as of many models that were made for chats."""
    tokenizer = tokenizer_of(None)
    own = tokenizer.convert_tokens_to_ids("<|im_end|>")
    shape = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(**shape, vocab_size=len(tokenizer), eos_token_id=own)
    for one in (LlamaForCausalLM(config), tokenizer):
        one.save_pretrained(tmp_path / "base")
    base = load_base(RunSettings.of(model=str(tmp_path / "base"), task=task), NodeSettings(device="cpu"))
    assert base.causal.ends == set(tokenizer.convert_tokens_to_ids(sorted(ends)))


def test_the_embedded_task_may_have_other_rows_from_a_folder(offline, tmp_path):
    row = '{"sentence": "a fine film", "label": 1}\n'
    for name in ("train", "validation"):
        (tmp_path / f"{name}.jsonl").write_text(row)
    base = load_base(RUN, NodeSettings(device="cpu"))
    assert len(load_rows(RUN, NodeSettings(data=str(tmp_path)), base).validation_examples) == 1


@pytest.fixture
def rows(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "a film", "label": 0}\n{"text": "a good one", "label": 1}\n')
    return tmp_path / "rows.jsonl"


PROMPTED = {"task": "prompted", "template": "{text} it was", "label_words": ("bad", "good")}


def test_a_token_that_the_model_does_not_know_is_refused(rows):
    base = tiny_base()
    base.tokenizer.add_tokens([f"more{n}" for n in range(VOCABULARY)] + ["one"])
    with pytest.raises(ModelError, match=rf"token \d+ .one., and the model knows {VOCABULARY}: take the tokenizer"):
        load_rows(tiny_settings(**PROMPTED), NodeSettings(data=str(rows)), base).describe()
    with pytest.raises(ModelError, match="take the tokenizer that the model was trained with"):
        task_of(tiny_settings(**PROMPTED), base.tokenizer, rows).validation_examples  # noqa: B018


def named_rows(path, names):
    rows = datasets.Dataset.from_list([{"text": f"film {place}", "label": place % 2} for place in range(8)])
    rows.cast_column("label", datasets.ClassLabel(names=names)).to_parquet(path)


@pytest.mark.parametrize("names", [["good", "bad"], ["awful", "bad"]])
@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_table_that_counts_labels_in_another_order_than_the_run_is_refused(tmp_path, split, names):
    """They were learned, or evaluated, as other labels."""
    for one in ("train", "validation"):
        named_rows(tmp_path / f"{one}.parquet", names if one == split else ["bad", "good"])
    settings, base = tiny_settings(**PROMPTED), tiny_base()
    problem = (
        r'label \d in column "label" is called (good|bad), and that is number (0|1) of label_words: write the names'
    )
    with pytest.raises(DataError, match=problem):
        load_rows(settings, NodeSettings(data=str(tmp_path)), base)
    with pytest.raises(DataError, match=problem):
        guess_objective(str(tmp_path), PROMPTED)
    with pytest.raises(DataError, match=problem):
        task_of(settings, base.tokenizer, tmp_path / f"{split}.parquet")


def test_names_of_labels_that_are_no_label_words_may_be_any(tmp_path):
    for one in ("train", "validation"):
        named_rows(tmp_path / f"{one}.parquet", ["negative", "positive"])
    assert load_rows(tiny_settings(**PROMPTED), NodeSettings(data=str(tmp_path)), tiny_base()).describe()["rows"] == 8


def test_files_of_a_split_that_name_labels_differently_are_refused(tmp_path):
    for number, names in enumerate((["bad", "good"], ["awful", "good"])):
        named_rows(tmp_path / f"train-{number}.parquet", names)
    with pytest.raises(DataError, match=r"train-0.parquet and .*train-1.parquet name labels differently"):
        load_rows(tiny_settings(**PROMPTED), NodeSettings(data=str(tmp_path)), tiny_base())


def test_a_token_for_padding_that_the_model_does_not_know_is_not_used(rows):
    base = tiny_base()
    base.tokenizer.add_special_tokens({"pad_token": "[more]"})
    base.tokenizer.add_tokens([f"more{n}" for n in range(VOCABULARY)])
    base.tokenizer.pad_token = f"more{VOCABULARY - 1}"
    task = load_rows(tiny_settings(**PROMPTED), NodeSettings(data=str(rows)), base)
    evaluate(base.causal, task)
