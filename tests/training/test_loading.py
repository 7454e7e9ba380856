import pytest

from seedflood import embedded
from seedflood.config import NodeSettings, RunSettings
from seedflood.training.evaluation import evaluate
from seedflood.training.loading import load_base, load_rows
from seedflood.training.models import load_model

RUN = RunSettings.of(model="embedded", task="embedded")


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_the_embedded_model_and_task_are_known_by_name(offline):
    base = load_base(RUN, NodeSettings(device="cpu"))
    assert base.digest == load_model(str(embedded.MODEL_FOLDER)).digest
    task = load_rows(RUN, NodeSettings(), base)
    assert len(task.validation_examples) == len(embedded.rows("validation"))
    assert 0.4 < evaluate(base.causal, task).figures["accuracy"] < 0.6


def test_a_host_may_have_the_model_in_a_folder_of_its_own(offline):
    run = RunSettings.of(model="nobody/nothing", task="embedded")
    base = load_base(run, NodeSettings(device="cpu", model_path=embedded.MODEL_FOLDER))
    assert base.digest == load_model("embedded").digest


def test_the_embedded_task_may_have_other_rows_from_a_folder(offline, tmp_path):
    row = '{"sentence": "a fine film", "label": 1}\n'
    for name in ("train", "validation"):
        (tmp_path / f"{name}.jsonl").write_text(row)
    base = load_base(RUN, NodeSettings(device="cpu"))
    assert len(load_rows(RUN, NodeSettings(data=str(tmp_path)), base).validation_examples) == 1
