"""Which process of a host this one is, and what a host over several cannot do."""

import pytest

from seedflood.config import RankPlace, RunSettings, Settings, check_ranks, find_rank
from seedflood.errors import ConfigError

TWO = RankPlace(0, 2)


def settings(run=None, **node):
    return Settings.model_validate({"run": RunSettings.place(run or {}), "node": node})


@pytest.mark.parametrize(
    ("environment", "place"),
    [({}, (0, 1)), ({"RANK": "1", "WORLD_SIZE": "2"}, (1, 2)), ({"RANK": "0", "WORLD_SIZE": "1"}, (0, 1))],
)
def test_the_environment_says_which_process_this_is(monkeypatch, environment, place):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert find_rank() == place


@pytest.mark.parametrize(("rank", "count"), [("2", "2"), ("x", "2"), ("0", ""), (None, "2")])
def test_an_environment_that_makes_no_sense_is_refused(monkeypatch, rank, count):
    monkeypatch.delenv("RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", count)
    with pytest.raises(ConfigError, match="torchrun"):
        find_rank()


@pytest.mark.parametrize(
    ("asked", "run", "node"),
    [
        ('mode = "gasloc"', {"mode": "gasloc", "task": "lm"}, {}),
        ('role = "relay"', {}, {"role": "relay"}),
        ('task = "reward"', {"task": "reward", "estimate": "gradient", "score": "exact"}, {}),
        ('task = "own"', {"task": "own"}, {}),
        ('dtype = "int8"', {}, {"dtype": "int8"}),
        ("audit = 0.5", {"window": "strict"}, {"audit": 0.5}),
        ('device = "cuda:1"', {}, {"device": "cuda:1"}),
    ],
)
def test_what_several_processes_cannot_do_is_refused(asked, run, node):
    check_ranks(settings(run, **node), RankPlace(0, 1))
    with pytest.raises(ConfigError, match=f"cannot do {asked}: start it as one process"):
        check_ranks(settings(run, **node), TWO)


def test_several_processes_can_be_a_host():
    check_ranks(settings({"estimate": "gradient"}, device="cpu", micro_batch=1), TWO)
