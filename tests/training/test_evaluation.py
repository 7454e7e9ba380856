import pytest
import torch
from reference import make_task, plain_loss, some_updates, tiny_model, tiny_replica, tiny_settings, tiny_tokenizer

from seedflood.training.causal import CausalModel
from seedflood.training.evaluation import evaluate
from seedflood.training.formats import PromptFormat, TextFormat
from seedflood.training.models import load_model
from seedflood.training.seedflood.replica import Replica
from seedflood.training.tasks import load_task

ROWS = [{"text": " ".join("abcde"[: 1 + index % 5]), "label": index % 2} for index in range(23)]


def make(template="{text} it was"):
    form = PromptFormat(template, ("bad", "good")) if template else TextFormat()
    return make_task(tiny_settings(), tiny_tokenizer(), form, ROWS, [row for row in ROWS if len(row["text"]) > 1])


@pytest.mark.parametrize("template", ["{text} it was", None])
@pytest.mark.parametrize("tokens_per_batch_max", [1, 40, 10**6])
def test_evaluation_is_that_of_all_rows_whatever_the_batches(template, tokens_per_batch_max):
    model, task = tiny_model("opt"), make(template)
    result = evaluate(CausalModel(model), task, tokens_per_batch_max=tokens_per_batch_max)
    batch, words = task.encoder.collate(task.validation_examples), getattr(task.objective, "words", ())
    assert result.loss == pytest.approx(plain_loss(model, batch, words), rel=1e-5)
    assert result.rows == len(task.validation_examples)
    assert 0 <= result.figures["accuracy"] <= 1


def test_a_replica_and_its_exported_model_score_alike(tmp_path):
    replica, task = tiny_replica(), make()
    replica.apply(some_updates(20))
    live = evaluate(replica.causal, task)
    exported = evaluate(load_model(str(replica.export(tmp_path / "model"))).causal, task)
    assert live.loss == pytest.approx(exported.loss, rel=1e-5)
    assert live.figures["accuracy"] == exported.figures["accuracy"]


@pytest.mark.long
@pytest.mark.shared
def test_tiny_opt_has_its_documented_zero_shot_figures(shared):
    torch.set_num_threads(1)
    base = load_model(str(shared / "models/tiny-opt"))
    settings = tiny_settings(task="sst2")
    task = load_task(settings, base.tokenizer, data=str(shared / "data/sst2"))
    for model in (base.causal, Replica(base, settings).causal):
        result = evaluate(model, task)
        assert (round(result.figures["accuracy"], 3), round(result.loss, 3), result.rows) == (0.509, 0.910, 872)
