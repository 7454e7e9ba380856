"""Hosts that train by GASLoC as processes: one is killed, one is told to go, and both come back."""

import json
import signal
from pathlib import Path

import pytest
from processes import Host, Hosts, ring

from seedflood.embedded import grammar

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

RUN = {
    "mode": "gasloc",
    "task": "lm",
    "template": "{sentence}",
    "max_length": 16,
    "initial": "random",
    "steps": 1500,
    "local_steps": 10,
}


def own_steps(host: Host) -> int:
    """The steps of the run, but for those of rounds that the host came too late for."""
    behind = [line for line in host.events if line["event"] == "behind the others"]
    return host.step - RUN["local_steps"] * sum(line["goes_on_with"] - line["round"] for line in behind)


def test_hosts_that_were_killed_or_told_to_go_go_on_from_their_checkpoints(hosts: Hosts, tmp_path: Path):
    rows = tmp_path / "rows"
    rows.mkdir()
    for split, some in zip(("train", "validation"), grammar.rows(7, (400, 40)), strict=True):
        (rows / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    node = {"data": str(rows), "evaluate_examples": 40}
    _, b, c = made = hosts.make(3, ring(3), RUN, node)
    for host in made:
        host.start()
    b.wait_for("progress", step=100)
    b.kill()
    taken = own_steps(b)
    assert b.start().wait_for("checkpoint loaded")["step"] >= taken - 2 * RUN["local_steps"], "all but the last rounds"
    c.wait_for("progress", step=c.step + 100)
    c.signal(signal.SIGTERM)
    assert c.end() == 0
    taken = own_steps(c)
    assert c.start().wait_for("checkpoint loaded")["step"] >= taken - RUN["local_steps"]
    assert [host.end() for host in made] == [0, 0, 0]
    results = [host.result() for host in made]
    assert [result["steps"] for result in results] == [1500] * 3
    assert all(result["perplexity_before"] > 200 > 20 > result["perplexity_after"] for result in results)
    assert all(result["exchanges"] > 50 for result in results)
