"""Figures of an objective that is no classification reach everything that shows them."""

import json
import math

import pytest

from seedflood import embedded
from seedflood.host.places import RESULT_FILE
from seedflood.operations.history import History
from seedflood.operations.hub import RISEN
from seedflood.training.evaluation import Evaluation
from seedflood.training.seedflood.trainer import Trainer

NAMES = ["perplexity", "loss", "accuracy"]


@pytest.fixture
async def finished(cluster, tmp_path):
    """A node that has learned the sentences of the embedded task as plain texts, and serves."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for split in embedded.SPLITS:
        lines = [json.dumps({"sentence": row["sentence"]}) for row in embedded.rows(split)[:32]]
        (folder / f"{split}.jsonl").write_text("\n".join(lines))
    run = {"task": "lm", "template": "{sentence}", "clients": 1, "steps": 4, "train_examples": 32}
    node = {"data": str(folder), "evaluate_examples": None, "then": "serve"}
    daemon = await cluster.start("a", [], run, node)
    await cluster.until(lambda: daemon.result is not None)
    return daemon


async def test_language_modelling_shows_its_perplexity(finished, http):
    figures = [f"{name}_{when}" for name in NAMES for when in ("before", "after")]
    assert [key for key in finished.result if key.endswith(("_before", "_after"))] == figures
    assert finished.result["perplexity_after"] > 1
    kept = json.loads((finished.settings.node.state / RESULT_FILE).read_text())
    assert list(kept["before"]) == [*NAMES, "rows"]
    async with http.get(f"http://{finished.address}/api/status") as answer:
        history = (await answer.json())["history"]
    assert list(history["figures"]) == NAMES
    assert [step for step, _ in history["figures"]["perplexity"]] == [0, 4]
    last = {name: points[-1][1] for name, points in history["figures"].items()}
    async with http.get(f"http://{finished.address}/metrics") as answer:
        text = await answer.text()
    assert f'seedflood_figure{{name="perplexity"}} {last["perplexity"]}' in text


async def test_a_restarted_node_knows_the_curves_of_all_figures(finished):
    told = [event for event in finished.hub.events if event["event"] == "evaluated"]
    history = History()
    history.recall(json.dumps({"node": "a", "run": "r", **event}, separators=(",", ":")).encode() for event in told)
    assert {name: curve.points() for name, curve in history.figures.items()} == {
        name: curve.points() for name, curve in finished.hub.history.figures.items()
    }


async def test_a_run_is_evaluated_on_the_way_though_nobody_asked_for_it(cluster):
    node = {"evaluate_examples": 1, "then": "serve"}
    daemon = await cluster.start("a", [], {"clients": 1, "steps": 300}, node)
    await cluster.until(lambda: daemon.result is not None)
    first, *between, last = (event["step"] for event in daemon.hub.events if event["event"] == "evaluated")
    assert (first, last) == (0, 300)
    assert between
    assert all(step % 15 == 0 for step in between)


async def test_a_run_without_validation_rows_is_never_evaluated(cluster):
    node = {"evaluate_examples": 0, "evaluate_every": 1, "then": "serve"}
    daemon = await cluster.start("a", [], {"clients": 1, "steps": 4}, node)
    await cluster.until(lambda: daemon.result is not None)
    assert not [event for event in daemon.hub.events if event["event"] == "evaluated"]
    assert (daemon.result["accuracy_before"], daemon.result["accuracy_after"]) == (None, None)


async def test_a_run_that_unlearns_says_so_in_every_life(cluster, http):
    run = {"clients": 1, "steps": 400, "learning_rate": 30.0}
    node = {"evaluate_every": 10, "evaluate_examples": 32}

    def told(daemon):
        return [event for event in daemon.hub.events if event["event"] == RISEN]

    a = await cluster.start("a", [], run, node)
    await cluster.until(lambda: told(a))
    (event,) = told(a)
    assert event["level"] == "error"
    assert event["loss"] > event["best_loss"] + 0.1
    async with http.get(f"http://{a.address}/api/status") as answer:
        rise = (await answer.json())["progress"]["rise"]
    assert (rise["best_step"], rise["best_loss"]) == (event["best_step"], event["best_loss"])
    async with http.get(f"http://{a.address}/metrics") as answer:
        assert "seedflood_loss_risen 1.0" in await answer.text()
    a.drain()
    await a.close()
    a = await cluster.start("a", [], run, node)
    before = len(told(a))
    await cluster.until(lambda: len(told(a)) > before)
    assert told(a)[-1]["best_loss"] == event["best_loss"], "the best one of an earlier life"


async def test_what_is_shown_of_a_run_that_went_wrong_is_json(cluster, http, monkeypatch):
    wrong = Evaluation({"accuracy": 0.5, "loss": math.nan}, "loss", 8)
    monkeypatch.setattr(Trainer, "evaluate", lambda trainer: wrong)
    node = {"evaluate_examples": None, "evaluate_every": 0, "then": "serve"}
    daemon = await cluster.start("a", [], {"clients": 1, "steps": 4}, node)
    await cluster.until(lambda: daemon.result is not None)
    async with http.get(f"http://{daemon.address}/api/status") as answer:
        status = json.loads(await answer.text(), parse_constant=pytest.fail)
    assert status["history"]["figures"] == {"accuracy": [[0, 0.5], [4, 0.5]]}
    evaluated = [event for event in status["events"] if event["event"] == "evaluated"]
    assert [(event["accuracy"], event["loss"]) for event in evaluated] == [(0.5, None), (0.5, None)]
    kept = json.loads((daemon.settings.node.state / RESULT_FILE).read_text(), parse_constant=pytest.fail)
    assert kept["result"]["loss_after"] is None
    async with http.get(f"http://{daemon.address}/metrics") as answer:
        assert 'seedflood_figure{name="accuracy"} 0.5' in await answer.text()
