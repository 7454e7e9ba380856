"""What becomes of a node whose model cannot be exported."""

import json

import pytest

from seedflood.config import Settings
from seedflood.errors import ModelError
from seedflood.host import process
from seedflood.host.process import start_daemon
from seedflood.training.seedflood.trainer import Trainer

RUN = {"clients": 1, "steps": 3}
REFUSED = ModelError("Cannot export this model.")


def refuse(*_):
    raise REFUSED


def faulty(*_):
    raise RuntimeError("nobody has thought of it")


async def test_what_would_refuse_the_export_ends_a_node_before_it_begins(cluster, monkeypatch, tmp_path):
    monkeypatch.setattr(Trainer, "try_export", refuse)
    with pytest.raises(ModelError, match="Cannot export this model"):
        await cluster.start("a", [], RUN, {"export": tmp_path / "out"})
    await cluster.start("b", [], RUN)
    assert (await cluster.finish())[0]["steps"] == 3, "without an export nobody asks"


async def test_a_node_that_has_begun_goes_on_and_says_what_would_refuse_the_export(cluster, monkeypatch, tmp_path):
    """Others may wait for it."""
    node = {"export": tmp_path / "out"}
    a = await cluster.start("a", [], RUN, node)
    a.drain()
    await a.close()
    monkeypatch.setattr(Trainer, "try_export", refuse)
    a = await cluster.start("a", [], RUN, node)
    assert (await cluster.finish())[0]["steps"] == 3
    assert (tmp_path / "out/config.json").exists()
    assert "the model could not be exported now; the run goes on" in await events_of(cluster)


@pytest.mark.parametrize(("failing", "kind"), [(refuse, ModelError), (faulty, RuntimeError)])
async def test_a_refused_export_keeps_the_result_and_is_told_when_the_node_has_ended(
    cluster, monkeypatch, tmp_path, failing, kind
):
    monkeypatch.setattr(Trainer, "export", failing)
    a = await cluster.start("a", [], RUN, {"export": tmp_path / "out"})
    (result,) = await cluster.finish()
    assert isinstance(a.engine.results.unexported, kind)
    kept = json.loads((tmp_path / "a/result.json").read_text())["result"]
    assert kept["digest"] == result["digest"]
    assert "the model was not exported" in await events_of(cluster)


async def test_the_process_ends_with_the_fault_of_the_export(cluster, monkeypatch, tmp_path):
    monkeypatch.setattr(Trainer, "export", refuse)

    async def start(settings):
        return await cluster.start("a", [], RUN, {"export": tmp_path / "out"})

    monkeypatch.setattr(process, "start_daemon", start)
    with pytest.raises(ModelError, match="Cannot export this model"):
        await process._Process(Settings(), None)._serve_run()
    assert start_daemon is not start


async def test_a_node_that_starts_again_exports_what_it_could_not(cluster, monkeypatch, tmp_path):
    node = {"export": tmp_path / "out"}
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "export", refuse)
        a = await cluster.start("a", [], RUN, node)
        (before,) = await cluster.finish()
        await a.close()
    await cluster.start("a", [], RUN, node)
    (after,) = await cluster.finish()
    assert before["digest"] == after["digest"]
    assert before["digest"] in (tmp_path / "out/README.md").read_text()


async def events_of(cluster):
    await cluster.close()  # then all are on the disk
    cluster.daemons.clear()
    return (cluster.folder / "a/events.jsonl").read_text()
