"""What is told of the nodes of `seedflood local`."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from seedflood.cluster.display import LoggedNode, show_result


@pytest.fixture
def host():
    return LoggedNode("a", Path("a"), 4, is_first=True)


def test_why_a_node_has_ended_is_not_hidden_by_what_comes_after_it(host):
    host.learn({"event": "a link broke", "level": "error"})
    host.learn({"event": "the score gave no number: correct it", "level": "critical"})
    host.learn({"event": "Future exception was never retrieved", "level": "error"})
    assert host.last_words == "the score gave no number: correct it"


def shown(**facts):
    node = {"name": "a", "steps": 4, "spent_seconds": 1.0, "links": []}
    result = {"run_id": "ab" * 32, "name": "run", "seconds": 1.0, "nodes": [node | facts.pop("node", {})], **facts}
    told = io.StringIO()
    show_result(result, Console(file=told, width=80))
    return " ".join(told.getvalue().split())


def test_that_the_rate_was_halved_is_told():
    node = {"digest": "ab" * 32, "rate_halvings": 2, "control_steps": [0, 130]}
    assert "halved until it was 1/4 (steps 0, 130)." in shown(digests_equal=True, node=node)
    assert "halved until it was 1/4." in shown(digests_equal=True, node=node | {"control_steps": []})


def test_an_algorithm_needs_no_digest():
    told = shown(digests_equal=False, mode="lots")
    assert "digests differ" not in told
    assert "equal" not in told


def test_what_rows_and_scores_say_is_shown_as_it_stands():
    result = {
        "digests_equal": True,
        "node": {"digest": "ab" * 32},
        "samples": [{"prompt": ":smile: [red]", "wanted": "[/INST]", "before": "", "after": ":fire:"}],
        "errors": {"a": "score.py:boom: [/b]"},
    }
    told = shown(**result)
    for words in (":smile: [red]", "[/INST]", ":fire:", "score.py:boom: [/b]"):
        assert words in told
