"""The plain torch model, trained through an objective: nothing of any algorithm's own is needed."""

import pytest
import torch
from reference import (
    FAMILIES,
    LABELS,
    TEXTS,
    make_task,
    tiny_base,
    tiny_batch,
    tiny_model,
    tiny_settings,
    tiny_tokenizer,
)

from seedflood.training.causal import CausalModel
from seedflood.training.evaluation import evaluate
from seedflood.training.formats import PromptFormat, TextFormat

ROWS = [{"text": f"film {'good' if label else 'bad'} {word}", "label": label} for word in "abcde" for label in (0, 1)]
FORMATS = {"classification": PromptFormat("{text} it was", ("bad", "good")), "texts": TextFormat()}


@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_states_and_logits_are_those_of_the_whole_model(family):
    model, tokens_BT = CausalModel(tiny_model(family)), tiny_batch().tokens_BT
    with torch.inference_mode():
        expected = model.module(input_ids=tokens_BT).logits
        hidden_BTD = model.hidden_states(tokens_BT)
        torch.testing.assert_close(model.logits(hidden_BTD), expected)
        words_L = torch.tensor([8, 3])
        torch.testing.assert_close(model.word_logits(hidden_BTD[:, 1], words_L), expected[:, 1][:, words_L])
    assert expected.shape[-1] == model.vocabulary_size


@pytest.mark.parametrize("kind", sorted(FORMATS))
def test_an_optimiser_of_torch_trains_the_plain_model_on_a_task(kind):
    base = tiny_base()
    task = make_task(tiny_settings(batch_size=8), tiny_tokenizer(), FORMATS[kind], ROWS, ROWS)
    before = evaluate(base.causal, task)
    optimizer = torch.optim.AdamW(base.model.requires_grad_(True).parameters(), lr=3e-3)
    for step in range(20):
        batch = task.batch(1, step).to(base.device)
        optimizer.zero_grad()
        score = task.objective.measure(base.causal, batch)
        (score.minimised_sums.sum() / task.objective.count(batch)).backward()
        optimizer.step()
    after = evaluate(base.causal, task)
    assert after.loss < 0.8 * before.loss
    assert after.figures.keys() == before.figures.keys() == task.objective.figures(score).keys()


@pytest.mark.parametrize(("objective", "labelled"), [(LABELS, True), (TEXTS, False)])
def test_one_step_of_gradient_descent_goes_down_the_slope(objective, labelled):
    model, batch, rate = CausalModel(tiny_model("llama")), tiny_batch(labelled=labelled), 1e-5
    before = objective.measure(model, batch)
    (before.minimised_sums.sum() / objective.count(batch)).backward()
    slope = 0.0
    with torch.no_grad():
        for parameter in model.module.parameters():
            slope += float((parameter.grad**2).sum())
            parameter -= rate * parameter.grad
        fallen = before.values()[0] - objective.measure(model, batch).values()[0]
    assert fallen == pytest.approx(rate * slope, rel=0.1)


@pytest.mark.parametrize(
    ("told", "ends"),
    [(None, set()), (7, {7}), ([7, 9], {7, 9}), (["a", 7], {7}), ("7", set()), (-1, set()), (True, set())],
)
def test_what_is_no_number_of_a_token_ends_no_text(told, ends):
    base = tiny_base()
    base.model.generation_config.eos_token_id = told
    assert base.causal.ends == ends
