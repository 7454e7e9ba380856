"""A course as operators run it: two runs, one command, and hosts that are killed in each of them and in between."""

import json
from pathlib import Path
from typing import Any

import pytest
from forks import run_command
from processes import Host, Hosts, ring

from seedflood.config import load_course, spell

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(900)]

PRETRAINING = {
    "name": "pretrain",
    "mode": "gasloc",
    "task": "lm",
    "max_length": 16,
    "initial": "random",
    "steps": 400,
    "local_steps": 10,
}
SAME_MODEL = {"name": "pretrain", "steps": 60, "estimate": "gradient"}
DATA = {"data": "embedded", "evaluate_examples": 40}
FINETUNING = {
    "node": DATA,
    "run": {
        "name": "finetune",
        "model": "previous",
        "clients": 3,
        "steps": 150,
        "batch_size": 8,
        "objective": {"task": "lm", "max_length": 16},
        "seedflood": {"estimate": "gradient", "learning_rate": 0.01},
    },
}


def make(hosts: Hosts, run: dict[str, Any], node: dict[str, Any]) -> list[Host]:
    made = hosts.make(3, ring(3), run, {"then": "finetune.toml"} | node)
    for host in made:
        (host.folder / "finetune.toml").write_text(spell(FINETUNING))
    return made


def results(host: Host) -> list[dict[str, Any]]:
    """Of the runs that the last process of the host has ended."""
    assert host.process is not None
    assert host.process.stdout is not None
    return [json.loads(line) for line in host.process.stdout.read().splitlines()]


def state(host: Host, position: int) -> Path:
    return load_course(host.folder / "peers.toml")[position].state


def test_a_run_that_has_ended_is_continued_by_one_command_on_each_host(hosts: Hosts):
    made = hosts.make(3, ring(3), {"steps": 20, "estimate": "gradient"}, {"evaluate_examples": 40})
    for host in made:
        host.start()
    assert [host.end() for host in made] == [0, 0, 0]
    assert run_command("continue", *(host.folder / "peers.toml" for host in made), "--steps", 10).returncode == 0
    for host in made:
        host.start()
    assert [host.end() for host in made] == [0, 0, 0]
    for first, second in map(results, made):
        assert second["steps"] == 10
        assert second["loss_before"] == pytest.approx(first["loss_after"], abs=1e-4)


def test_hosts_pre_train_and_then_fine_tune_what_came_of_it(hosts: Hosts):
    made = make(hosts, PRETRAINING, DATA)
    for host in made:
        host.start()
    assert [host.end() for host in made] == [0, 0, 0]
    first, second = zip(*map(results, made), strict=True)
    assert [one["run"] for one in (first[0], second[0])] == ["pretrain", "finetune"]
    assert len({one["origin"] for one in (*first, *second)}) == 3, "one key for both runs"
    assert len({one["digest"] for one in first}) == 1
    assert len({one["digest"] for one in second}) == 1
    assert all(one["perplexity_after"] < 0.2 * one["perplexity_before"] for one in first)
    for trained, tuned in zip(first, second, strict=True):
        assert tuned["perplexity_before"] < 0.2 * trained["perplexity_before"], "it does not go on from there"
        assert tuned["perplexity_after"] < 0.9 * tuned["perplexity_before"]


def test_hosts_that_are_killed_go_on_where_the_course_was(hosts: Hosts):
    a, b, c = made = make(hosts, SAME_MODEL, {})
    for host in made:
        host.start()
    b.wait_for("progress", step=20)
    b.kill()
    b.start()
    c.wait_for("finished")
    c.kill()  # before or after it went on: it does not matter
    c.start()
    a.wait_for("goes on to the next run")
    a.wait_for("progress", step=10)
    a.kill()
    trained = len([line for line in a.events if line.get("event") == "finished"])
    a.start()
    assert [host.end() for host in made] == [0, 0, 0]
    assert len([line for line in a.events if line.get("event") == "finished"]) == trained + 1, (
        "nothing is trained again"
    )
    last = [results(host)[-1] for host in made]
    assert {one["run"] for one in last} == {"finetune"}
    assert len({one["digest"] for one in last}) == 1
    assert not any(host.has_said("the journal lacks a past life of this node") for host in made)


def test_a_host_that_lost_what_the_others_ended_with_says_what_to_copy(hosts: Hosts):
    a, b, c = made = make(hosts, SAME_MODEL, {"patience_seconds": 1.0})
    for host in made:
        host.start()
    for host in made:
        host.wait_for("goes on to the next run")
    b.kill()
    for path in (b.folder / "state").iterdir():
        if path.name != "identity.pem":
            _remove(path)
    b.start()
    assert b.end() == 76
    assert "copy what another host has" in b.last_words
    for host in (a, c):
        host.kill()


def _remove(path: Path) -> None:
    for below in path.iterdir() if path.is_dir() else ():
        _remove(below)
    path.rmdir() if path.is_dir() else path.unlink()
