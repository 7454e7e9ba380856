"""Whole nodes that tell gradients over real gRPC: the same promises, whatever is told and what is made of it."""

from dataclasses import replace

import pytest
import torch

from seedflood.host.seedflood.engine import TOO_LONG, UNLEARNED
from seedflood.offline.learned import rebuild, replay
from seedflood.operations.status import describe
from seedflood.protocol.seedflood.bundles import LOSS_BYTES, LOSS_MAX
from seedflood.protocol.seedflood.course import STOPPED
from seedflood.protocol.seedflood.epochs import CLOSING_ROUNDS
from seedflood.protocol.seedflood.payload import encode_loss

GRADIENT = {"estimate": "gradient", "rank": 4, "batch_size": 2}
TOLD = {
    "adam and local steps": {"local_steps": 2},
    "bounded windows": {"window": "bounded"},
}


@pytest.mark.parametrize("changes", TOLD.values(), ids=TOLD)
async def test_hosts_of_unlike_dtype_and_memory_end_with_one_digest(cluster, changes):
    run = {**GRADIENT, "clients": 4, "steps": 12, "refresh_period": 4, **changes}
    await cluster.start("a", [], run)
    await cluster.start("b", ["a"], run, {"dtype": "bfloat16", "micro_batch": 1})
    await cluster.start("c", ["a", "b"], run, {"micro_batch": 3, "dtype": "int8"})
    await cluster.start("d", ["a"], run, {"dtype": "nf4"})
    results = await cluster.finish()
    assert len({result["digest"] for result in results}) == 1
    assert all(result["updates"] == 48 for result in results)


async def test_a_node_that_leaves_and_returns_has_the_state_of_the_optimiser_again(cluster):
    run = {**GRADIENT, "clients": 2, "steps": 60, "refresh_period": 20}
    a, b = await cluster.start("a", [], run), await cluster.start("b", ["a"], run)
    await cluster.until(lambda: a.node.step >= 5)
    b.drain()
    await b.close()
    seen = a.node.step
    await cluster.until(lambda: a.node.step > seen + 5)
    b = await cluster.start("b", ["a"], run)
    results = await cluster.finish(a, b)
    assert len({result["digest"] for result in results}) == 1


async def test_a_journal_of_gradients_is_replayed_to_the_weights_of_the_live_node(cluster):
    daemons = await cluster.ring(2, {**GRADIENT, "steps": 10, "refresh_period": 4})
    results = await cluster.finish()
    settings = daemons[0].settings
    expected = daemons[0].engine.trainer.replica.weights()
    await cluster.close()
    cluster.daemons.clear()
    assert replay(settings).digest == results[0]["digest"]
    for name, weight in rebuild(settings).trainer.replica.weights().items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize(("changes", "is_halved"), [({}, False), ({"learning_rate": 100.0}, True)])
async def test_a_rate_whose_first_step_is_too_long_is_halved_before_it_and_all_say_so(cluster, changes, is_halved):
    hosts = await cluster.ring(2, {**GRADIENT, "steps": 2, **changes})
    results = await cluster.finish()
    assert len({(result["digest"], result["rate_halvings"]) for result in results}) == 1
    assert (results[0]["rate_halvings"] > 0, results[0]["control_steps"]) == (is_halved, [0] * is_halved)
    for host in hosts:
        assert (TOO_LONG in [event["event"] for event in host.hub.events]) == is_halved
        assert [step for step, _ in host.hub.history.halvings] == [0] * is_halved


@pytest.mark.parametrize(("changes", "is_halved"), [({}, False), ({"learning_rate": 100.0}, True)])
async def test_a_rate_that_is_too_high_is_halved_in_bounded_windows_too(cluster, changes, is_halved):
    hosts = await cluster.ring(3, {**GRADIENT, "batch_size": 16, "window": "bounded", "steps": 24, **changes})
    results = await cluster.finish()
    assert len({(result["digest"], result["rate_halvings"]) for result in results}) == 1
    for host, result in zip(hosts, results, strict=True):
        assert (result["rate_halvings"] > 0) == is_halved
        assert (host.hub.history.halvings != []) == is_halved
        said = {event["event"] for event in host.hub.events}
        assert (not said.isdisjoint({TOO_LONG, UNLEARNED})) == is_halved


@pytest.mark.parametrize(("lie", "changes", "is_halved"), [(LOSS_MAX, {"learning_rate": 100.0}, True), (1, {}, False)])
async def test_a_host_that_lies_about_what_it_loses_moves_nobody(cluster, lie, changes, is_halved):
    """Its losses rise from step to step: it finds no first step too long, or each one, and the end worse."""
    *_, liar = hosts = await cluster.ring(4, {**GRADIENT, "steps": 12, **changes})
    with cluster.held(liar):
        measure = liar.engine.trainer.measure

        def lied(origin, step, count):
            measured = measure(origin, step, count)
            loss = encode_loss(min(LOSS_MAX, lie * 4**step))
            return replace(measured, probes=tuple(told[:-LOSS_BYTES] + loss for told in measured.probes))

        liar.engine.trainer.measure = lied
    results = await cluster.finish()
    assert len({(result["digest"], result["rate_halvings"]) for result in results}) == 1
    assert (results[0]["rate_halvings"] > 0) == is_halved
    assert all([step for step, _ in host.hub.history.halvings] == [0] * is_halved for host in hosts)


STOPPING = {"estimate": "gradient", "learning_rate": 1e-9, "refresh_period": 10, "steps": 4000}
STOPPING |= {"window": "strict", "stop_after": 10}
"""Nothing is learned, so an epoch of ten steps is soon no better than the best one before."""


def ended(results):
    """The step at which all have ended, alike."""
    assert len({(result["digest"], result["steps"]) for result in results}) == 1
    return results[0]["steps"]


@pytest.mark.parametrize(
    "changes",
    [{}, pytest.param({"delay": 2}, marks=pytest.mark.long), pytest.param({"local_steps": 2}, marks=pytest.mark.long)],
)
async def test_a_run_that_learns_no_more_stops_on_all_hosts_at_one_step(cluster, changes):
    hosts = await cluster.ring(3, {**STOPPING, **changes})
    results = await cluster.finish()
    local_steps, delay = changes.get("local_steps", 1), changes.get("delay", 0)
    assert (ended(results) - (CLOSING_ROUNDS + delay) * local_steps) % 10 == 0
    assert ended(results) < 1000
    for host in hosts:
        assert replay(host.hub.settings).digest == results[0]["digest"]
        assert rebuild(host.hub.settings).steps == ended(results)
        assert STOPPED in [event["event"] for event in host.hub.events]
        assert describe(host.hub)["progress"]["steps"] == ended(results)


async def test_who_was_killed_or_went_stops_where_the_others_do(cluster):
    run = {**STOPPING, "clients": 3}
    a, b = await cluster.start("a", [], run), await cluster.start("b", ["a"], run)
    c = await cluster.start("c", ["a"], run)
    await cluster.until(lambda: c.node.step >= 3)
    c.failed(RuntimeError("killed"))
    await c.close()
    c = await cluster.start("c", ["a"], run)
    await cluster.until(lambda: c.node.step >= 6)
    c.drain()
    await c.close()
    with cluster.held(a, b):
        c = await cluster.start("c", ["a"], run)
        await cluster.until(lambda: c.node.is_ready)
    stopped = ended(await cluster.finish(a, b, c))
    await c.close()
    again = await cluster.start("c", ["a"], run, {"patience_seconds": 0})
    assert ended([*await cluster.finish(again), a.result]) == stopped
