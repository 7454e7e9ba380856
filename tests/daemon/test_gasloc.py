"""Whole nodes that train by GASLoC over real gRPC: from scratch, on texts of the embedded language."""

import json

import aiohttp
import numpy as np
import pytest
import pytest_asyncio
from safetensors.numpy import load_file

from clusters import Cluster
from seedflood.config import RunSettings
from seedflood.embedded import grammar
from seedflood.errors import ModelError
from seedflood.host.places import JOURNAL_FILE, SNAPSHOTS_FOLDER
from seedflood.host.results import Results
from seedflood.protocol.gasloc.matching import Lottery
from seedflood.training.gasloc.trainer import Trainer

RUN = {
    "mode": "gasloc",
    "model": "embedded",
    "task": "lm",
    "template": "{sentence}",
    "max_length": 16,
    "steps": 60,
    "batch_size": 4,
    "local_steps": 6,
    "initial": "random",
    "learning_rate": 1e-2,
    "matching": "two",
    "encoding": "float32",
}


class GaslocCluster(Cluster):
    """Hosts that pre-train on rows of the embedded language, all of them on the same ones, in other orders."""

    def run_settings(self, run):
        return RunSettings.place(RUN | run)

    def settings(self, name, peers, run, node):
        rows = self.folder / "rows"
        if not rows.exists():
            rows.mkdir()
            for split, some in zip(("train", "validation"), grammar.rows(7, (400, 40)), strict=True):
                (rows / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
        return super().settings(name, peers, run, {"data": str(rows), "evaluate_examples": None} | node)

    def parameters(self, name):
        """As the last checkpoint of a host has them."""
        newest = max((self.folder / name / SNAPSHOTS_FOLDER).glob("step-*.safetensors"))
        return load_file(newest)["values"]


@pytest_asyncio.fixture
async def cluster(tmp_path):
    one = GaslocCluster(tmp_path)
    yield one
    await one.close()


@pytest_asyncio.fixture
async def http():
    async with aiohttp.ClientSession() as session:
        yield session


def spread(daemons):
    """How far the replicas are apart, relative to their size."""
    all_ = np.stack([daemon.engine.trainer.worker.flat.values_F.numpy() for daemon in daemons])
    mean = all_.mean(axis=0)
    return float(np.sqrt(((all_ - mean) ** 2).sum(axis=1).mean()) / np.linalg.norm(mean))


async def kill(daemon):
    """From here on it says and writes nothing: a crash, but for the links, which a kernel would close."""
    daemon.failed(RuntimeError("killed"))
    await daemon.close()
    with pytest.raises(RuntimeError):
        await daemon.ended


BUSY = {"encoding": "uint8", "gamma": 0.3, "eta": 0.9, "delay_steps": 2}
HABITS = (
    pytest.param(BUSY, id="momentum, in few bytes, steps beside exchanges", marks=pytest.mark.long),
    pytest.param({"matching": "one", "encoding": "bfloat16"}, id="one partner a round"),
)


@pytest.mark.parametrize("changes", HABITS)
async def test_a_ring_learns_from_scratch_and_its_replicas_stay_together(cluster, changes):
    await cluster.ring(4, changes)
    results = await cluster.finish()
    assert [result["steps"] for result in results] == [60] * 4
    # How many depends on how slow the links look beside the steps, on a machine that does much else.
    assert all(result["exchanges"] and result["parameter_bytes_sent"] for result in results)
    assert all(result["perplexity_before"] > 200 > 40 > result["perplexity_after"] for result in results)
    assert len({result["digest"] for result in results}) == 1
    assert [result["equal_replicas"] for result in results] == [4] * 4


async def test_a_host_that_lies_at_the_end_and_comes_first_in_the_draw_is_not_followed(cluster):
    await cluster.ring(4, {"matching": "one"})
    daemons = list(cluster.daemons.values())
    lottery, rules = Lottery(daemons[0].settings.run.seed), daemons[0].node.rules
    liar = min(daemons, key=lambda one: lottery.number(rules.rounds, one.node.origin))
    honest_content = liar.engine.trainer.content

    def content():
        """What it took of others later it passes on as it is."""
        if liar.node.gasloc.agreement.choice.ours is None:
            liar.engine.trainer.worker.flat.values_F.neg_()
        return honest_content()

    liar.engine.trainer.content = content
    results = await cluster.finish()
    assert len({result["digest"] for result in results}) == 1
    assert all(result["perplexity_after"] < 40 for result in results)


async def test_a_host_that_comes_back_when_all_have_finished_takes_what_they_ended_with(cluster):
    run, serve = {"clients": 3, "steps": 120}, {"then": "serve", "patience_seconds": 2.0}
    await cluster.start("a", [], run, serve)
    await cluster.start("b", ["a"], run, serve)
    c = await cluster.start("c", ["a", "b"], run, {"patience_seconds": 1.0})
    await cluster.until(lambda: c.node.gasloc.round >= 3)
    await kill(c)
    others = [cluster.daemons[name] for name in "ab"]
    await cluster.until(lambda: all(one.node.phase == "finished" for one in others))
    again = await cluster.start("c", ["a", "b"], run)
    await cluster.until(lambda: again.node.phase == "finished")
    assert len({one.engine.trainer.digest() for one in (again, *others)}) == 1


async def test_a_host_that_is_killed_goes_on_from_its_checkpoint_and_holds_nobody_up(cluster):
    run = {"clients": 3, "steps": 120}
    await cluster.start("a", [], run)
    await cluster.start("b", ["a"], run)
    c = await cluster.start("c", ["a", "b"], run)
    await cluster.until(lambda: c.node.gasloc.round >= 3)
    await kill(c)
    a = cluster.daemons["a"]
    seen = a.node.gasloc.round
    await cluster.until(lambda: a.node.gasloc.round > seen + 2)
    again = await cluster.start("c", ["a", "b"], run)
    await cluster.until(lambda: again.node.gasloc.course.is_restored)
    assert again.engine.trainer.worker.step > 0
    results = await cluster.finish()
    assert [result["steps"] for result in results] == [120] * 3
    assert again.engine.trainer.outer.round > 0
    assert spread(list(cluster.daemons.values())) < 0.05


async def test_a_host_whose_journal_is_damaged_goes_on_from_its_checkpoint_and_holds_nobody_up(cluster):
    run = {"clients": 3, "steps": 120}
    await cluster.start("a", [], run)
    await cluster.start("b", ["a"], run)
    c = await cluster.start("c", ["a", "b"], run)
    await cluster.until(lambda: c.node.gasloc.round >= 5)
    await kill(c)
    reached = c.node.gasloc.round
    journal = c.settings.node.state / JOURNAL_FILE
    journal.write_bytes(journal.read_bytes()[:10_000])
    again = await cluster.start("c", ["a", "b"], run)
    assert again.engine.journal.damaged is not None
    await cluster.until(lambda: again.node.gasloc.has_spoken)
    assert again.node.gasloc.is_amnesic
    assert again.node.gasloc.round >= reached - 1
    results = await cluster.finish()
    assert [result["steps"] for result in results] == [120] * 3
    assert spread(list(cluster.daemons.values())) < 0.05


async def test_a_host_that_leaves_finds_its_parameters_again(cluster):
    run = {"clients": 2, "steps": 600}
    await cluster.start("a", [], run)
    b = await cluster.start("b", ["a"], run)
    await cluster.until(lambda: b.node.gasloc.exchange.mixed >= 2)
    b.drain()
    await b.close()
    step, values = b.engine.trainer.worker.step, cluster.parameters("b")
    assert np.array_equal(values, b.engine.trainer.worker.flat.values_F.numpy())
    restored = await cluster.start("b", [], run, {"patience_seconds": 1000.0})
    await cluster.until(lambda: restored.node.gasloc.course.is_restored)
    assert restored.engine.trainer.worker.step == step
    assert np.array_equal(restored.engine.trainer.worker.flat.values_F.numpy(), values)


async def test_a_late_host_begins_with_a_copy_of_a_neighbour(cluster):
    run = {"clients": 2, "steps": 240}
    a = await cluster.start("a", [], run, {"patience_seconds": 1.0})
    await cluster.until(lambda: a.node.gasloc.round >= 10)
    b = await cluster.start("b", ["a"], run)
    await cluster.until(lambda: b.node.is_ready)
    assert b.node.gasloc.round >= 10
    assert b.engine.trainer.worker.step >= 40
    assert not any((b.settings.node.state / "gasloc" / "incoming").iterdir())
    results = await cluster.finish()
    assert results[1]["tokens"] < results[0]["tokens"]


async def test_a_host_may_take_fewer_steps_between_two_exchanges_than_the_others(cluster):
    run = {"clients": 2}
    await cluster.start("a", [], run)
    await cluster.start("b", ["a"], run, {"local_steps": 3})
    results = await cluster.finish()
    assert results[1]["tokens"] < 0.75 * results[0]["tokens"]
    assert results[0]["exchanges"] == results[1]["exchanges"] > 0
    assert len({result["digest"] for result in results}) == 1


SINGLE = {"local_steps": 1, "matching": "full"}


async def test_d_adam_is_a_setting(cluster):
    await cluster.ring(3, SINGLE | {"learning_rate": 1e-2, "steps": 30})
    results = await cluster.finish()
    assert all(result["rounds"] == 30 and result["exchanges"] for result in results)
    assert all(result["perplexity_after"] < 100 for result in results)


async def test_long_rounds_show_progress_on_the_way(cluster, monkeypatch):
    said = []
    monkeypatch.setattr(
        Results, "log_progress", lambda results, step, *_: said.append((step, results._trainer.worker.step))
    )
    run = {"clients": 1, "steps": 30, "local_steps": 30}
    await cluster.start("a", [], run)
    await cluster.finish()
    assert len({taken for step, taken in said if step == 0}) > 1, "within the one round"
    assert said[-1][0] == 30


async def test_operators_see_what_is_learned_and_exchanged(cluster, http):
    a = await cluster.start("a", [], {"clients": 2})
    async with http.get(f"http://{a.address}/api/status") as answer:
        said = await answer.json()
    assert [one["kind"] for one in said["blockers"]] in (["no link"], ["own replica"])
    await cluster.start("b", ["a"], {"clients": 2})
    await cluster.finish()
    async with http.get(f"http://{a.address}/api/status") as answer:
        said = await answer.json()
    shown = {"round", "exchanges", "tokens", "tokens_per_second", "consensus_distance", "bytes_sent"}
    assert shown <= said["figures"].keys()
    assert said["node"]["run"]["algorithm"] == {"local_steps": 6, "matching": "two", "encoding": "float32"}
    assert said["history"]["loss"]
    assert {"perplexity", "loss"} <= said["history"]["figures"].keys()


async def test_hosts_of_unlike_settings_never_link(cluster):
    a = await cluster.start("a", [], {"clients": 2})
    b = await cluster.start("b", ["a"], {"clients": 2, "eta": 0.5})
    await cluster.until(lambda: b.ended.done())
    assert "another run" in str(b.ended.exception())
    assert len(a.links.open) == 0


async def test_a_refused_export_is_told_before_the_run_or_keeps_its_result(cluster, monkeypatch, tmp_path):
    def refuse(*_):
        raise ModelError("Cannot export this model.")

    run, node = {"clients": 1, "steps": 6}, {"export": tmp_path / "out"}
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "try_export", refuse)
        with pytest.raises(ModelError, match="Cannot export this model"):
            await cluster.start("a", [], run, node)
    monkeypatch.setattr(Trainer, "export", refuse)
    a = await cluster.start("a", [], run, node)
    (result,) = await cluster.finish()
    assert isinstance(a.engine.results.unexported, ModelError)
    assert json.loads((tmp_path / "a/result.json").read_text())["result"]["digest"] == result["digest"]
