"""A sweep of learning rates, with the embedded model."""

import io
import json
import math

import pytest
from rich.console import Console

from seedflood.config import NodeSettings, RunSettings, Settings
from seedflood.errors import UsageError
from seedflood.offline.tuning import FACTOR, Sweep, Try, rates_about, shorten, show_sweep, sweep
from seedflood.training.evaluation import Evaluation

RUN = {"model": "embedded", "task": "embedded", "clients": 2, "train_examples": 64, "batch_size": 8}


WRONG = [(12.5, 2.5), (1e304, math.nan)]
"""Perplexity and loss before a run that goes wrong, and after it."""


def settings_of(tmp_path, **run):
    node = NodeSettings(state=tmp_path, evaluate_examples=32)
    return Settings(run=RunSettings.of(**{**RUN, "steps": 4, **run}), node=node)


def silence(rate, done, total):
    pass


def test_a_sweep_recommends_the_rate_that_left_the_least_loss(tmp_path):
    result = sweep(settings_of(tmp_path, steps=20), [1e-9, 5e-4, 2.0], None, silence)
    assert [one.learning_rate for one in result.tries] == [1e-9, 5e-4, 2.0]
    assert result.best.learning_rate == 5e-4
    assert result.is_helpful
    assert json.loads(json.dumps(result.facts()))["learning_rate"] == 5e-4
    console = Console(width=80, record=True, file=io.StringIO())
    show_sweep(result, console)
    assert "In [run.seedflood] of peers.toml on all hosts:\nlearning_rate = 0.0005\n" in console.export_text()


def test_a_sweep_without_rates_has_the_default_in_the_middle_and_goes_on_beyond_the_best_end(tmp_path):
    told = []
    result = sweep(settings_of(tmp_path), [], None, lambda *done: told.append(done))
    rates = [one.learning_rate for one in result.tries]
    assert rates[0] < 1.5e-3 < rates[-1]
    assert len(rates) >= 3
    assert len(rates) == 7 or rates[0] < result.best.learning_rate < rates[-1]
    assert (rates[0], 4, 4) in told


def test_nothing_is_recommended_if_nothing_was_learned(tmp_path):
    result = sweep(settings_of(tmp_path), [5.0], None, silence)
    assert not result.is_helpful
    assert result.facts()["learning_rate"] is None


def test_a_rate_that_is_far_too_high_is_shown_in_a_few_characters():
    before, after = (Evaluation({"perplexity": value, "loss": loss}, "loss", 8) for value, loss in WRONG)
    result = Sweep(RunSettings.of(**RUN), (Try(5.0, before, after, 1.0),))
    console = Console(width=80, record=True, file=io.StringIO())
    show_sweep(result, console)
    assert "12.5000 → 1e+304" in console.export_text()
    told = json.loads(json.dumps(result.facts()), parse_constant=pytest.fail)
    assert told["tries"][0]["loss_after"] is None


def test_rates_lie_around_the_default_with_two_digits():
    assert rates_about(2.3e-4) == [7.3e-5, 2.3e-4, 7.3e-4]
    assert FACTOR > 3


def test_rates_of_another_algorithm_are_not_tried(tmp_path):
    settings = Settings(run=RunSettings.of(mode="gasloc", task="lm"), node=NodeSettings(state=tmp_path))
    with pytest.raises(UsageError, match='mode is "gasloc"'):
        sweep(settings, [], None, silence)


def test_a_shortened_run_has_whole_rounds():
    run = RunSettings.of(**RUN, steps=400, local_steps=8, refresh_period=800)
    assert shorten(run, 30).steps == 24
    assert shorten(run, None).steps == 96
    assert shorten(run, 4000).steps == 4000
    assert shorten(run.model_copy(update={"steps": 48}), None).steps == 48
    with pytest.raises(UsageError, match="local_steps are 8"):
        shorten(run, 7)


def test_a_shortened_run_has_not_too_many_origins():
    assert shorten(RunSettings.of(**(RUN | {"clients": 64})), None).clients == 8
