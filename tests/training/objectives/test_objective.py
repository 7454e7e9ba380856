import math
from dataclasses import replace

import pytest
import torch
from reference import LABELS, TEXTS, tiny_batch, tiny_model

from seedflood.training.causal import CausalModel
from seedflood.training.objectives.objective import Score


def make(accuracy, loss, count):
    sums = {"accuracy": torch.tensor(accuracy), "loss": torch.tensor(loss, dtype=torch.float64)}
    return Score(sums, torch.tensor(count), "loss")


def test_scores_of_pieces_add_up_figure_by_figure():
    whole = make([1, 2], [2.0, 6.0], [2, 2]) + make([1, 0], [1.0, 0.0], [1, 1])
    assert whole.values() == [1.0, 2.0]
    assert whole.means() == {"accuracy": 2 / 3, "loss": 1.0}


def test_a_score_says_what_training_brings_down():
    assert Score({"error": torch.tensor([6.0])}, torch.tensor([2]), "error").values() == [3.0]


def test_scores_of_two_objectives_do_not_add_up():
    with pytest.raises(AssertionError, match="two objectives"):
        make([1], [1.0], [1]) + Score({"error": torch.tensor([1.0])}, torch.tensor([1]), "error")


@pytest.mark.parametrize(("objective", "labelled"), [(LABELS, True), (TEXTS, False)])
def test_what_is_counted_is_known_before_it_is_measured(objective, labelled):
    batch = tiny_batch(7, labelled=labelled)
    score = objective.measure(CausalModel(tiny_model("opt")), batch)
    assert score.count_P.tolist() == [objective.count(batch)]


@pytest.mark.parametrize(("objective", "labelled"), [(LABELS, True), (TEXTS, False)])
def test_variants_are_scored_apart(objective, labelled):
    model, batch = CausalModel(tiny_model("opt")), tiny_batch(6, labelled=labelled)
    batch = replace(batch, lengths_B=batch.lengths_B[:3].repeat(2))  # variants are as long as each other
    whole = objective.measure(model, batch, 2)
    halves = [objective.measure(model, batch.rows(torch.arange(start, start + 3))) for start in (0, 3)]
    assert whole.values() == pytest.approx([half.values()[0] for half in halves], rel=1e-5)
    assert whole.values()[0] != pytest.approx(whole.values()[1], rel=1e-3)
    assert whole.sums["accuracy"].tolist() == [int(half.sums["accuracy"][0]) for half in halves]


def test_accuracy_counts_right_labels():
    batch = tiny_batch(6)
    score = LABELS.measure(CausalModel(tiny_model("opt")), batch)
    turned = LABELS.measure(CausalModel(tiny_model("opt")), replace(batch, label_B=1 - batch.label_B))
    assert score.means()["accuracy"] + turned.means()["accuracy"] == pytest.approx(1)


def test_perplexity_is_the_exponential_of_the_loss():
    score = TEXTS.measure(CausalModel(tiny_model("opt")), tiny_batch(labelled=False))
    figures = TEXTS.figures(score)
    assert figures["perplexity"] == pytest.approx(math.exp(figures["loss"]))
    assert set(figures) == {"accuracy", "loss", "perplexity"}


def test_the_perplexity_of_a_model_that_diverged_is_a_number_or_none():
    assert math.isfinite(TEXTS.figures(make([0], [1e6], [1]))["perplexity"])
    assert math.isnan(TEXTS.figures(make([0], [math.nan], [1]))["perplexity"])


def test_labels_are_not_measured_on_texts():
    with pytest.raises(AssertionError, match="needs labels"):
        LABELS.measure(CausalModel(tiny_model("opt")), tiny_batch(labelled=False))
