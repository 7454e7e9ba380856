"""What the embedded model knows, and that it can be taught the rest."""

import json

import pytest
from reference import make_task
from safetensors import safe_open

from seedflood import embedded
from seedflood.config import RunSettings
from seedflood.embedded import grammar
from seedflood.protocol.seedflood.bundles import Update
from seedflood.protocol.seedflood.seeds import probe_seed
from seedflood.training.evaluation import evaluate
from seedflood.training.formats import PromptFormat
from seedflood.training.models import load_model
from seedflood.training.seedflood.replica import Replica

CLIENTS = 4
SETTINGS = RunSettings.of(task="embedded", clients=CLIENTS)
FORM = PromptFormat(embedded.TEMPLATE, embedded.LABEL_WORDS)
SIZE_BYTES_MAX = 600 * 1024


def task_of(base, form=FORM, shard=None, validation=None):
    rows = validation or embedded.rows("validation")
    return make_task(SETTINGS, base.tokenizer, form, embedded.rows("train"), rows, shard=shard)


@pytest.fixture
def base(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return load_model(str(embedded.MODEL_FOLDER))


def test_model_is_small():
    assert sum(path.stat().st_size for path in embedded.MODEL_FOLDER.iterdir()) < SIZE_BYTES_MAX


def test_files_are_data_alone():
    assert {path.suffix for path in embedded.MODEL_FOLDER.iterdir()} == {".json", ".safetensors"}


def test_weights_are_stored_in_half_precision():
    with safe_open(embedded.MODEL_FOLDER / "model.safetensors", framework="pt") as file:
        assert {file.get_slice(name).get_dtype() for name in file.keys()} == {"F16"}  # noqa: SIM118


def test_tokenizer_knows_every_word_of_the_rows(base):
    unknown = base.tokenizer.unk_token_id
    for split in embedded.SPLITS:
        encoded = base.tokenizer([row["sentence"] for row in embedded.rows(split)])["input_ids"]
        assert not any(unknown in tokens for tokens in encoded)


def test_rows_fit_into_the_context(base):
    longest = max(len(example.tokens) for example in task_of(base).validation_examples)
    context = json.loads((embedded.MODEL_FOLDER / "config.json").read_text())["max_position_embeddings"]
    assert longest < context


def test_model_does_not_know_the_prompt_of_the_task(base):
    found = evaluate(base.causal, task_of(base))
    assert 0.4 < found.figures["accuracy"] < 0.6
    assert found.loss > 0.65


@pytest.mark.parametrize("verdict", grammar.VERDICTS, ids=lambda verdict: verdict.words[1])
def test_model_knows_sentiment(base, verdict):
    assert evaluate(base.causal, task_of(base, PromptFormat(verdict.template, verdict.words))).figures["accuracy"] > 0.9


def test_fine_tuning_together_teaches_the_prompt(base):
    replica = Replica(base, SETTINGS)
    tasks = [task_of(base, shard=f"{number}/{CLIENTS}") for number in range(1, CLIENTS + 1)]
    before = evaluate(replica.causal, tasks[0])
    for step in range(60):
        updates = []
        for origin, task in enumerate(tasks):
            seed = probe_seed(SETTINGS.seed, origin, step)
            found = replica.measure(step, seed, task.objective, task.batch(origin, step))
            updates.append(Update(origin, step, found.value))
        replica.apply(updates)
    after = evaluate(replica.causal, tasks[0])
    assert after.loss < before.loss - 0.1
    assert after.figures["accuracy"] > before.figures["accuracy"] + 0.1
