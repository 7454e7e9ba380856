import shutil

import pytest
from reference import VOCABULARY, tiny_base, tiny_settings

from seedflood import embedded
from seedflood.config import NodeSettings, RunSettings
from seedflood.errors import ModelError
from seedflood.training.evaluation import evaluate
from seedflood.training.files import read_file
from seedflood.training.loading import load_base, load_rows
from seedflood.training.models import digest_model, load_model, with_tokens
from seedflood.training.tasks import task_of_rows

RUN = RunSettings.of(model="embedded", task="embedded")


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_the_embedded_model_and_task_are_known_by_name(offline):
    base = load_base(RUN, NodeSettings(device="cpu"))
    assert base.digest == with_tokens(load_model(str(embedded.MODEL_FOLDER)).digest, base.tokenizer)
    task = load_rows(RUN, NodeSettings(), base)
    assert len(task.validation_examples) == len(embedded.rows("validation"))
    assert 0.4 < evaluate(base.causal, task).figures["accuracy"] < 0.6


def test_a_host_may_have_the_model_in_a_folder_of_its_own(offline):
    run = RunSettings.of(model="nobody/nothing", task="embedded")
    base = load_base(run, NodeSettings(device="cpu", model_path=embedded.MODEL_FOLDER))
    assert base.digest == load_base(RUN, NodeSettings(device="cpu")).digest


def test_a_host_whose_tokenizer_makes_other_tokens_has_another_base_model(offline, tmp_path):
    shutil.copytree(embedded.MODEL_FOLDER, tmp_path / "model")
    (tmp_path / "model/tokenizer_config.json").unlink()  # of that, transformers makes a tokenizer of another class
    other, base = (load_base(RUN, NodeSettings(device="cpu", model_path=one)) for one in (tmp_path / "model", None))
    assert digest_model(other.model) == digest_model(base.model)
    assert other.digest != base.digest


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
        task_of_rows(tiny_settings(**PROMPTED), base.tokenizer, read_file(rows).rows, VOCABULARY).validation_examples  # noqa: B018


def test_a_token_for_padding_that_the_model_does_not_know_is_not_used(rows):
    base = tiny_base()
    base.tokenizer.add_special_tokens({"pad_token": "[more]"})
    base.tokenizer.add_tokens([f"more{n}" for n in range(VOCABULARY)])
    base.tokenizer.pad_token = f"more{VOCABULARY - 1}"
    task = load_rows(tiny_settings(**PROMPTED), NodeSettings(data=str(rows)), base)
    evaluate(base.causal, task)
