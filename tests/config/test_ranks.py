"""Which process of a host this one is, and what a host over several cannot do."""

import pytest

from seedflood.config import RankPlace, RunSettings, Settings, check_ranks, find_rank
from seedflood.errors import ConfigError

TWO = RankPlace(0, 2)


def settings(run=None, **node):
    return Settings.model_validate({"run": RunSettings.place(run or {}), "node": node})


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({}, (0, 1)),
        ({"TORCHELASTIC_RUN_ID": "none", "RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
        ({"RANK": "1", "WORLD_SIZE": "2"}, (0, 1)),
        ({"WORLD_SIZE": ""}, (0, 1)),
    ],
    ids=["alone", "torchrun", "a pod of a cluster", "nonsense"],
)
def test_a_process_is_a_rank_if_torchrun_has_started_it(monkeypatch, environment, place):
    for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert find_rank() == place


@pytest.mark.parametrize(
    ("asked", "run", "node"),
    [
        ('mode = "gasloc"', {"mode": "gasloc", "task": "lm"}, {}),
        ('role = "relay"', {}, {"role": "relay"}),
        ("kl = 0.1", {"task": "reward", "estimate": "gradient", "score": "exact", "kl": 0.1}, {}),
        ('task = "own"', {"task": "own"}, {}),
        ('device = "cuda:1"', {}, {"device": "cuda:1"}),
    ],
)
def test_what_several_processes_cannot_do_is_refused(asked, run, node):
    check_ranks(settings(run, **node), RankPlace(0, 1))
    with pytest.raises(ConfigError, match=f"cannot do {asked}: start it as one process"):
        check_ranks(settings(run, **node), TWO)


def test_several_processes_can_be_a_host():
    check_ranks(settings({"estimate": "gradient"}, device="cpu", micro_batch=1), TWO)
    check_ranks(settings({"window": "strict"}, audit=0.5), TWO)
    check_ranks(settings({"task": "reward", "estimate": "gradient", "score": "exact", "ahead": 2}), TWO)
    check_ranks(settings({}, dtype="int8"), TWO)
