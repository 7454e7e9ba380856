"""Daemons that write texts, score them and learn from them: the same promises as with rows that tell what is right."""

import asyncio
import json
import random
import threading
from itertools import islice

import pytest

from seedflood import embedded
from seedflood.config import load_settings
from seedflood.errors import ConfigError
from seedflood.training.objectives.writing import Text

RUN = {"task": "reward", "estimate": "gradient", "max_new_tokens": 1, "group": 8, "batch_size": 4, "steps": 24}
RUN |= {"window": "strict"}  # so that every host measures every step


@pytest.fixture
def rows(tmp_path):
    """Beginnings of reviews, after which the model writes "but" or "even" (though) about as often."""
    texts = (row["text"].partition(" , ") for row in embedded.texts("train"))
    prompts = islice((f"{head} ," for head, _, rest in texts if rest.startswith(("but", "even"))), 64)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": prompt, "answer": "even"}) + "\n" for prompt in prompts))
    return str(path)


@pytest.mark.parametrize(("ahead", "kl"), [(0, 0.0), pytest.param(2, 0.05, marks=pytest.mark.long)])
async def test_hosts_that_write_and_score_their_own_texts_end_with_one_digest_and_more_reward(cluster, rows, ahead, kl):
    run = {**RUN, "clients": 3, "refresh_period": 12, "learning_rate": 0.1, "ahead": ahead, "kl": kl}
    await cluster.start("a", [], run, {"data": rows, "evaluate_examples": 16})
    await cluster.start("b", ["a"], run, {"data": rows, "dtype": "bfloat16", "micro_batch": 3})
    c = await cluster.start("c", ["a", "b"], run, {"data": rows})
    results = await cluster.finish()
    first = results[0]
    assert len({result["digest"] for result in results}) == 1
    assert all(result["updates"] == 3 * 24 for result in results)
    assert first["reward_before"] < 0.75 < first["reward_after"]
    assert first["loss_after"] == pytest.approx(1 - first["reward_after"], abs=1e-5)
    assert first["evaluated"] == {"rows": 16, "texts": 128}
    said = [sample["after"] for sample in first["samples"]]
    assert said == ["even [reward 1]"] * 3
    view = c.engine.view(0.0)
    assert 0 <= view.figures["texts_that_differ_in_reward"] <= 1
    assert view.figures["nats_per_token"] >= 0
    assert view.words["best_text"].endswith("(reward 1)")
    assert first["perplexity_after"] < 1.5 * first["perplexity_before"]


async def test_a_rate_whose_first_step_promises_too_much_of_the_reward_is_halved_before_it(cluster, rows):
    run = {**RUN, "clients": 2, "steps": 1, "learning_rate": 10.0}
    await cluster.start("a", [], run, {"data": rows})
    await cluster.start("b", ["a"], run, {"data": rows})
    results = await cluster.finish()
    assert len({(result["digest"], result["rate_halvings"]) for result in results}) == 1
    assert results[0]["rate_halvings"] > 0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"seedflood": {"estimate": "two-sided"}}, 'set estimate = "gradient"'),
        ({"objective": {"max_new_tokens": 256}}, "set it below max_length"),
        ({"objective": {"group": 1}}, "group"),
        ({"objective": {"temperature": 0}}, "temperature"),
        ({"mode": "gasloc"}, 'set task = "lm"'),
        ({"objective": {"label_words": ["a", "b"]}}, "take label_words out"),
        ({"objective": {"score": "mine.py:best"}}, "name its whole path"),
        ({"objective": {"score_sha256": "0" * 64}}, "take score_sha256 out"),
        ({"objective": {"task": "lm", "score": "numeric"}}, 'score is for task = "reward", but task is "lm"'),
        ({"objective": {"task": "lm", "group": 4}}, 'group is for task = "reward"'),
        ({"objective": {"task": "lm", "ahead": 2}}, 'ahead is for task = "reward"'),
        ({"objective": {"ahead": 3}}, "ahead"),
        ({"objective": {"ahead": 1}, "seedflood": {"local_steps": 2}}, "set local_steps = 1"),
    ],
)
def test_settings_with_which_nothing_can_be_rewarded_are_refused(changes, sentence):
    objective = {"task": "reward", **changes.get("objective", {})}
    with pytest.raises(ConfigError, match=sentence):
        load_settings(None, {"run": {**changes, "objective": objective}, "node": {"data": "rows.jsonl"}})


@pytest.mark.parametrize("dtype", ["int8", "nf4"])
def test_a_host_that_saves_memory_holds_no_second_model(dtype):
    run = {"objective": {"task": "reward", "kl": 0.1}}
    with pytest.raises(ConfigError, match="set another dtype, or kl = 0"):
        load_settings(None, {"run": run, "node": {"dtype": dtype, "data": "rows.jsonl"}})


@pytest.mark.parametrize("changes", [{"objective": {"ahead": 1}}, {"seedflood": {"local_steps": 2}}])
def test_nobody_audits_texts_of_another_replica(changes):
    run = {**changes, "objective": {"task": "reward", **changes.get("objective", {})}}
    with pytest.raises(ConfigError, match="by which replica"):
        load_settings(None, {"run": run, "node": {"audit": 0.03, "data": "rows.jsonl"}})


async def test_a_host_that_is_stopped_while_it_writes_waits_for_no_other_text_and_measures_the_step_again(
    cluster, rows
):
    run, node = {**RUN, "clients": 2, "steps": 4, "learning_rate": 0.1}, {"data": rows}
    a = await cluster.start("a", [], run, node)
    b = await cluster.start("b", ["a"], run, node)
    texts, begun, leaving, close = [], threading.Event(), threading.Event(), b.engine.close

    def score(*asked):
        texts.append(asked)
        begun.set()
        assert leaving.wait(20)
        return 0.0

    async def closing():
        await close()
        leaving.set()

    b.engine.trainer.task.objective.score, b.engine.close = score, closing
    with cluster.held(a):
        assert await asyncio.to_thread(begun.wait, 20)
        b.drain()
        await b.close()
        assert b.is_compute_idle
        assert len(texts) == 1
        again = await cluster.start("b", ["a"], run, node)
        await cluster.until(lambda: again.node.is_ready and len(a.links.open) == 1)
    results = await cluster.finish()
    assert len({result["digest"] for result in results}) == 1
    assert all(result["updates"] == 2 * 4 for result in results)


@pytest.mark.parametrize(("reward", "times"), [(0.0, [1, 2]), (1.0, [])])
async def test_who_learns_nothing_because_all_texts_are_worth_nothing_is_told(
    cluster, rows, monkeypatch, reward, times
):
    run, told = {**RUN, "clients": 1, "steps": 3}, []
    a = await cluster.start("a", [], run, {"data": rows})
    monkeypatch.setattr(a.engine.trainer.task.objective, "score", lambda *_: reward)
    monkeypatch.setattr(a.engine._hub, "log", lambda event, *level, **facts: told.append((event, facts.get("times"))))
    await cluster.finish()
    assert [count for event, count in told if event.startswith("score: all texts")] == times


def make_rewards_up(daemon):
    drawn = random.Random(1)
    daemon.engine.trainer.task.objective.score = lambda *_: float(drawn.random() < 0.5)


def have_texts_that_the_model_did_not_write(daemon):
    """Every other one is a word that hardly ever stands there."""
    objective = daemon.engine.trainer.task.objective
    answer = objective.answer

    def forged(*asked):
        return [
            one._replace(written=Text([5], [1.0]), reward=0.0) if number % 2 else one
            for number, one in enumerate(answer(*asked))
        ]

    objective.answer = forged


@pytest.mark.long
@pytest.mark.parametrize("lie", [make_rewards_up, have_texts_that_the_model_did_not_write])
async def test_who_tells_of_other_texts_or_rewards_is_named_by_all_others_and_nobody_else_is(cluster, rows, lie):
    run = {**RUN, "clients": 3, "steps": 40, "learning_rate": 1e-4}
    node = {"data": rows, "evaluate_examples": 0}
    a = await cluster.start("a", [], run, {**node, "audit": 1.0, "shard": "1/3"})
    b = await cluster.start("b", ["a"], run, {**node, "dtype": "bfloat16", "shard": "2/3"})
    c = await cluster.start("c", ["a", "b"], run, {**node, "shard": "3/3"})
    lie(c)
    await cluster.finish()
    assert a.engine.auditor.audits.count > 20
    assert len(a.engine.auditor.audits._seen[b.node.origin]) > 5
    assert set(a.engine.auditor.audits.named) == {c.node.origin}
    (found,) = (a.settings.node.state / "findings").iterdir()
    assert json.loads(found.read_text())["audits"] <= 20


def test_a_run_by_reward_has_gradients_and_few_prompts_unless_it_says_something_else():
    run = load_settings(None, {"run": {"objective": {"task": "reward"}}}).run
    assert (run.seedflood.estimate, run.batch_size) == ("gradient", 4)
    told = {"objective": {"task": "reward"}, "batch_size": 16, "seedflood": {"rank": 16}}
    run = load_settings(None, {"run": told}).run
    assert (run.seedflood.estimate, run.seedflood.rank, run.batch_size) == ("gradient", 16, 16)
