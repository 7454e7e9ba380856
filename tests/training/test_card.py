import tomllib

import pytest

from seedflood.config import CARD_FILE, RunSettings
from seedflood.training.card import Learned, model_card, named_objective


def card_of(run, **figures):
    return model_card(
        Learned(run, bytes(32), b"d" * 32, {"training rows of this host": 7}, figures), "adapter", "Note."
    )


def test_a_card_tells_what_is_known_and_leaves_out_what_is_not():
    card = card_of(RunSettings.of(name="mine"), loss_after=0.25, perplexity_after=None)
    assert "\n# mine\n" in card
    assert "Note." in card
    assert "| training rows of this host | 7 |" in card
    assert "| loss after | 0.25 |" in card
    assert "perplexity" not in card


def test_the_settings_on_a_card_are_those_of_the_run():
    run = RunSettings.of(model="facebook/opt-125m", rank=4, steps=12, task="prompted", template='"{a}" is')
    told = card_of(run).partition("```toml\n")[2].partition("```")[0]
    assert RunSettings(**tomllib.loads(told)["run"]).run_id() == run.run_id()


@pytest.mark.parametrize(
    ("model", "is_linked"),
    [
        ("facebook/opt-125m", True),
        ("embedded", False),
        ("run-0123456789abcdef", False),
        ("/models/x", False),
        ("./x", False),
    ],
)
def test_a_base_model_of_the_hub_is_linked(model, is_linked):
    assert (f"\nbase_model: {model}\n" in card_of(RunSettings.of(model=model))) is is_linked


def test_a_card_says_what_the_base_model_of_a_continued_run_is():
    card = card_of(RunSettings.of(model="run-0123456789abcdef"))
    assert "\n| base model | run-0123456789abcdef |\n" in card
    assert "have trained together of `run-0123456789abcdef` on" in card


@pytest.mark.parametrize("settings", ["run.objective = 5", "run = [", "a = " + "[" * 5000 + "]" * 5000, ""])
def test_a_strange_card_tells_no_objective(settings, tmp_path):
    (tmp_path / CARD_FILE).write_text(f"# x\n\n```toml\n{settings}\n```\n")
    assert named_objective(tmp_path) == {}


def test_a_card_names_the_task_though_it_is_the_default(tmp_path):
    (tmp_path / CARD_FILE).write_text(card_of(RunSettings.of()))
    assert named_objective(tmp_path) == {"task": RunSettings.of().objective.task}
