"""Several whole nodes train together over real gRPC."""

import asyncio
import threading

import pytest
import torch

from seedflood.errors import BindError, JournalError, ModelError, RunMismatchError
from seedflood.host.seedflood import driver, history
from seedflood.offline.learned import rebuild
from seedflood.protocol.seedflood.opening import WAITING_ROUNDS
from seedflood.protocol.seedflood.phase import Phase
from seedflood.storage.seedflood.journal import BundleJournal


@pytest.mark.parametrize("window", ["strict", "bounded"])
async def test_a_ring_of_four_ends_with_one_digest(cluster, window):
    await cluster.ring(4, {"steps": 12, "window": window})
    results = await cluster.finish()
    assert len({result["digest"] for result in results}) == 1
    assert all(result["steps"] == 12 for result in results)
    assert all(link["bytes_sent"] > 0 for result in results for link in result["links"])


async def test_strict_windows_apply_every_update_of_every_node(cluster):
    daemons = await cluster.ring(3, {"steps": 8})
    await cluster.finish()
    for daemon in daemons:
        assert {daemon.node.frontier.mark(origin) for origin in daemon.node.membership.origins()} == {8}


async def test_five_local_steps_share_one_bundle(cluster):
    daemons = await cluster.ring(3, {"steps": 20, "local_steps": 5, "refresh_period": 40})
    results = await cluster.finish()
    assert len({result["digest"] for result in results}) == 1
    assert daemons[0].engine.journal.count() == 3 * 4


async def test_replicas_agree_across_epochs(cluster):
    await cluster.ring(3, {"steps": 12, "refresh_period": 4})
    results = await cluster.finish()
    assert len({result["digest"] for result in results}) == 1


async def test_a_node_without_neighbours_waits_and_goes_on_when_they_come(cluster):
    first = await cluster.start("a", [], {"clients": 2, "steps": 6})
    assert first.node.phase is Phase.JOINING
    await cluster.start("b", ["a"], {"clients": 2, "steps": 6})
    results = await cluster.finish()
    assert results[0]["digest"] == results[1]["digest"]


async def test_a_node_that_leaves_is_not_waited_for_and_one_that_returns_catches_up(cluster):
    run = {"clients": 3, "steps": 40, "batch_size": 2}
    a, b = await cluster.start("a", [], run), await cluster.start("b", ["a"], run)
    c = await cluster.start("c", ["a", "b"], run)
    await cluster.until(lambda: a.node.step >= 5)
    c.drain()
    await c.close()
    seen = a.node.step
    await cluster.until(lambda: min(a.node.step, b.node.step) > seen + 5)
    with cluster.held(a, b):
        c = await cluster.start("c", ["a", "b"], run)
        await cluster.until(lambda: c.node.is_ready)
    results = await cluster.finish(a, b, c)
    assert len({result["digest"] for result in results}) == 1
    assert a.node.frontier.mark(c.node.origin) == 40


async def test_a_late_node_joins_a_bounded_run_and_ends_equal(cluster):
    run = {"clients": 3, "steps": 60, "window": "bounded", "batch_size": 2}
    soon = {"patience_seconds": 1.0}
    a, b = await cluster.start("a", [], run, soon), await cluster.start("b", ["a"], run, soon)
    await cluster.until(lambda: min(a.node.step, b.node.step) >= 20)
    with cluster.held(a, b):
        c = await cluster.start("c", ["b"], run, soon)
        await cluster.until(lambda: c.node.phase is not Phase.JOINING)
    results = await cluster.finish(a, b, c)
    assert len({result["digest"] for result in results}) == 1


async def test_nodes_of_different_runs_name_both_and_end(cluster):
    a = await cluster.start("a", [], {"clients": 2, "steps": 6})
    b = await cluster.start("b", ["a"], {"clients": 2, "steps": 6, "rank": 4, "learning_rate": 0.5})
    with pytest.raises(RunMismatchError) as fault:
        await b.ended
    runs = [daemon.settings.run.run_id().hex()[:16] for daemon in (a, b)]
    assert all(run in str(fault.value) for run in runs)


async def test_a_used_port_is_a_bind_error(cluster):
    a = await cluster.start("a", [], {"clients": 2})
    with pytest.raises(BindError, match="in use"):
        await cluster.start("b", [], {"clients": 2}, {"listen": f"127.0.0.1:{a.port}"})


async def test_a_missing_model_is_a_model_error(cluster, tmp_path):
    with pytest.raises(ModelError):
        await cluster.start("a", [], {"model": str(tmp_path / "nothing")})


async def test_peers_can_be_changed_while_running(cluster):
    run = {"clients": 2, "steps": 6}
    a, b = await cluster.start("a", [], run), await cluster.start("b", [], run)
    b.dial([f"127.0.0.1:{a.port}"])
    results = await cluster.finish()
    assert results[0]["digest"] == results[1]["digest"]


async def test_a_single_node_trains_alone(cluster):
    await cluster.start("a", [], {"clients": 1, "steps": 5})
    (result,) = await cluster.finish()
    assert result["steps"] == 5
    assert result["links"] == []


async def test_nothing_is_left_running_after_close(cluster):
    await cluster.ring(3, {"steps": 4})
    await cluster.finish()
    await cluster.close()
    cluster.daemons.clear()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not [task for task in others if "seedflood" in repr(task.get_coro())]


async def test_a_disk_fault_ends_the_node_before_anything_of_it_is_sent(cluster, monkeypatch):
    a, b = await cluster.ring(2, {"steps": 50})
    await cluster.until(lambda: a.node.step >= 3)
    held = b.node.frontier.mark(a.node.origin)

    def full(*_: object, **__: object) -> int:
        raise JournalError("the disk is full")

    monkeypatch.setattr(a.engine.journal, "append", full)
    with pytest.raises(JournalError):
        await a.ended
    await a.close()
    assert b.node.frontier.mark(a.node.origin) <= held + 2
    assert a.engine.journal.path.exists()


async def test_a_fault_of_the_model_ends_the_node(cluster, monkeypatch):
    a, _ = await cluster.ring(2, {"steps": 50})
    await cluster.until(lambda: a.node.step >= 3)

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(a.engine.trainer, "measure", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        await a.ended


async def test_a_node_rebuilt_from_its_journal_has_the_weights_of_the_live_one_across_epochs(cluster):
    (a, *_) = await cluster.ring(2, {"steps": 12, "refresh_period": 4})
    await cluster.finish()
    await cluster.close()
    rebuilt = rebuild(a.settings).trainer
    live = a.engine.trainer.replica.weights()
    assert rebuilt.digest() == a.engine.trainer.digest()
    for name, weight in rebuilt.replica.weights().items():
        torch.testing.assert_close(weight, live[name], rtol=0, atol=1e-6)


async def test_a_long_journal_is_opened_while_the_loop_turns(cluster, monkeypatch):
    """On the loop the opening would wait for itself: probes and the watchdog killed a node with a long journal."""
    loop, turned = asyncio.get_running_loop(), threading.Event()
    open_journal = BundleJournal.open

    def open_slowly(*args, **options):
        loop.call_soon_threadsafe(turned.set)
        assert turned.wait(timeout=30), "the loop stands still"
        return open_journal(*args, **options)

    monkeypatch.setattr(BundleJournal, "open", open_slowly)
    daemon = await cluster.start("a", [], {"clients": 2, "steps": 6})
    assert daemon.node.phase is Phase.JOINING


async def test_a_node_that_starts_again_reads_its_journal_page_by_page_on_the_loop_and_is_as_before(
    cluster, monkeypatch
):
    run = {"clients": 3, "steps": 60}
    await cluster.ring(3, run)
    digest = (await cluster.finish())[0]["digest"]
    await cluster.close()
    read = []
    updates = history.pages

    def noted(*args):
        for page in updates(*args):
            read.append((threading.current_thread(), len(page)))
            yield page

    monkeypatch.setattr(history, "PAGE_BUNDLES", 7)
    monkeypatch.setattr(driver, "pages", noted)
    again = await cluster.start("n0", [], run)
    assert again.node.frontier.count() == 3 * 60
    assert (await again._compute.run(again.engine.trainer.digest)).hex() == digest
    assert {thread for thread, _ in read} == {threading.current_thread()}
    assert sum(size for _, size in read) == 3 * (60 - WAITING_ROUNDS)
    assert max(size for _, size in read) <= 7


@pytest.mark.long
async def test_beside_a_relay_nobody_stays_for_a_host_that_was_stopped(cluster):
    run, patient = {"clients": 2, "steps": 40}, {"patience_seconds": 3600.0}
    a = await cluster.start("a", [], run, patient)
    relay = await cluster.start("relay", ["a"], run, patient | {"role": "relay"})
    b = await cluster.start("b", ["a"], run, patient)
    await cluster.until(lambda: b.node.step >= 4)
    b.drain()
    await b.close()
    async with asyncio.timeout(60):
        ended, _ = await cluster.finish(a, relay)
    assert ended["steps"] == 40


@pytest.mark.parametrize("node", [{"then": "serve"}, {}])
async def test_a_daemon_that_is_stopped_while_its_results_are_made_ends_with_them(cluster, node):
    a = await cluster.start("a", [], {"clients": 1, "steps": 4}, node)
    conclude = a.engine.conclude

    def stop_and_conclude(then):
        def stop():
            a.drain()
            assert not a.ended.done()
            then()

        conclude(stop)

    a.engine.conclude = stop_and_conclude
    async with asyncio.timeout(60):
        await a.ended
    assert a.result is not None
