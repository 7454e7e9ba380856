"""What people see of a cluster while it runs."""

import pytest

from seedflood.cluster import local
from seedflood.cluster.tour import plan_tour


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
