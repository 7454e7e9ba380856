"""What is told of the nodes of `seedflood local`."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from seedflood.cluster.display import LoggedNode, show_result


@pytest.fixture
def host():
    return LoggedNode("a", Path("a"), (4,), is_first=True)


def test_why_a_node_has_ended_is_not_hidden_by_what_comes_after_it(host):
    host.learn({"event": "a link broke", "level": "error"})
    host.learn({"event": "the score gave no number: correct it", "level": "critical"})
    host.learn({"event": "Future exception was never retrieved", "level": "error"})
    assert host.last_words == "the score gave no number: correct it"


def test_what_rows_and_scores_say_is_shown_as_it_stands():
    result = {
        "run_id": "ab" * 32,
        "name": "run",
        "seconds": 1.0,
        "digests_equal": True,
        "nodes": [{"name": "a", "steps": 4, "spent_seconds": 1.0, "digest": "ab" * 32, "links": []}],
        "samples": [{"prompt": ":smile: [red]", "wanted": "[/INST]", "before": "", "after": ":fire:"}],
        "errors": {"a": "score.py:boom: [/b]"},
    }
    told = io.StringIO()
    show_result(result, Console(file=told, width=80))
    for words in (":smile: [red]", "[/INST]", ":fire:", "score.py:boom: [/b]"):
        assert words in told.getvalue()
