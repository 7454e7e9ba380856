"""What people see of a cluster while it runs."""

import asyncio

import pytest

from seedflood.cluster import local
from seedflood.cluster.tour import plan_tour
from seedflood.errors import SeedfloodError


@pytest.fixture
def cluster(tmp_path):
    what = {"model": "embedded", "texts": "embedded", "task": "embedded", "data": None}
    plan = plan_tour(nodes=2, topology="ring", steps=(800, 40), seed=1, **what)
    return local._Cluster(plan, local._write_settings(plan, tmp_path))


def progress(step, steps, sent):
    facts = {"event": "progress", "step": step, "steps": steps, "loss": 2.0, "peers": 1, "spent_seconds": 3.0}
    return {**facts, "sent_bytes": sent}


def test_the_line_of_a_course_is_about_the_run_that_goes_on(cluster):
    for host in cluster.hosts:
        cluster._learn(host, progress(800, 800, 5000))
    assert "run 1: training" in cluster._line()
    assert "step 800/800" in cluster._line()
    for host in cluster.hosts:
        cluster._learn(host, {"event": "goes on to the next run"})
        cluster._learn(host, {"event": "started"})
    assert "run 2: evaluating" in cluster._line()
    assert "step 0/40" in cluster._line()
    assert {host.sent_bytes for host in cluster.hosts} == {0}


def test_hosts_that_are_ready_train_even_if_they_have_told_no_progress_yet(cluster):
    for host in cluster.hosts:
        cluster._learn(host, {"event": "started"})
        cluster._learn(host, {"event": "ready", "step": 0})
    assert "training" in cluster._line()


async def test_a_node_that_is_killed_is_said_to_be(cluster, monkeypatch):
    start = asyncio.create_subprocess_exec

    async def start_and_kill(*command, **options):
        process = await start(*command, **options)
        process.kill()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_and_kill)
    with pytest.raises(SeedfloodError, match=r"failed: it was ended by SIGKILL \(by hand, or for lack of memory\)"):
        await cluster._watch(cluster.hosts[0])
