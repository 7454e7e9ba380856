"""Runs that follow each other, as operators make them: `seedflood continue` on each host, and a start."""

from typing import Any

import pytest
from forks import run_command
from processes import Host, Hosts, ring

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(600)]

PRE_TRAINING = {
    "mode": "gasloc",
    "task": "lm",
    "max_length": 16,
    "initial": "random",
    "steps": 400,
    "local_steps": 10,
}


def end(made: list[Host]) -> list[dict[str, Any]]:
    """Starts all, waits until all have ended, and returns their results."""
    for host in made:
        host.start()
    assert [host.end() for host in made] == [0] * len(made)
    return [host.result() for host in made]


def go_on(made: list[Host], *words: object) -> list[Host]:
    """The same hosts, in the folders of the next run."""
    ran = run_command("continue", *(host.folder / "peers.toml" for host in made), *words)
    assert ran.returncode == 0, ran.stderr
    return [Host(host.folder / "next") for host in made]


@pytest.mark.parametrize("window", ["strict", "bounded"])
def test_a_run_that_has_ended_is_continued_by_one_command_on_each_host(hosts: Hosts, window: str):
    run = {"steps": 40, "refresh_period": 10, "estimate": "gradient", "window": window}
    made = hosts.make(3, ring(3), run, {"evaluate_examples": 40})
    first = end(made)
    later = go_on(made, "--steps", 10)
    hosts.hosts += later
    for before, after in zip(first, end(later), strict=True):
        assert (after["steps"], after["origin"]) == (10, before["origin"])
        assert after["loss_before"] == pytest.approx(before["loss_after"], abs=1e-4)


def test_hosts_pre_train_and_then_fine_tune_what_came_of_it(hosts: Hosts):
    made = hosts.make(3, ring(3), PRE_TRAINING, {"data": "embedded", "evaluate_examples": 40, "export": "model"})
    first = end(made)
    later = go_on(made, "--steps", 100, "--set", "run.mode=seedflood", "--set", "run.seedflood.estimate=gradient")
    hosts.hosts += later
    second = end(later)
    assert len({one["digest"] for one in second}) == 1
    for before, after in zip(first, second, strict=True):
        assert before["perplexity_after"] < 0.2 * before["perplexity_before"]
        assert after["perplexity_before"] < 0.2 * before["perplexity_before"], "it does not go on from there"
        assert after["perplexity_after"] < 0.95 * after["perplexity_before"]
