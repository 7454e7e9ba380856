"""The plan of the tour, and the curves that come of it."""

import pytest

from seedflood.cluster.local import _write_settings
from seedflood.cluster.tour import curves_of, plan_tour
from seedflood.config import load_course
from seedflood.embedded import grammar


@pytest.fixture
def course(tmp_path):
    plan = plan_tour(
        nodes=3, topology="ring", model="embedded", texts="embedded", task="embedded", data=None, steps=(90, 30), seed=4
    )
    hosts = _write_settings(plan, tmp_path)
    return [load_course(host.folder / "peers.toml") for host in hosts]


def test_all_hosts_have_the_same_two_runs(course):
    assert len({tuple(stage.runs[stage.position] for stage in host) for host in course}) == 1
    first, second = (stage.settings.run for stage in course[0])
    assert (first.mode, first.steps, first.gasloc.initial) == ("gasloc", 100, "random"), "whole rounds"
    assert (second.mode, second.steps, second.model, second.clients) == ("seedflood", 30, "previous", 3)
    assert first.seed == second.seed == 4


def test_the_first_host_alone_evaluates_on_the_way(course):
    every = [[stage.settings.node.evaluate_every > 0 for stage in host] for host in course]
    assert every == [[True, True], [False, False], [False, False]]


def test_curves_stand_over_tokens_of_all_hosts_and_over_steps():
    before = {
        "nodes": [{"tokens": 1000, "steps": 10}, {"tokens": 1000, "steps": 10}],
        "evaluations": [{"run": 0, "step": 0, "perplexity": 200.0}, {"run": 0, "step": 10, "perplexity": 9.0}],
    }
    after = {"earlier": [before], "evaluations": [{"run": 1, "step": 0, "accuracy": 0.5, "loss": 0.7}]}
    assert curves_of(after) == (
        {"perplexity": [(0.0, 200.0), (2000.0, 9.0)]},
        {"accuracy": [(0.0, 0.5)], "loss": [(0.0, 0.7)]},
    )


def test_texts_that_come_with_the_package_have_no_sentence_of_the_task():
    from seedflood import embedded

    texts = {split: [row["text"] for row in embedded.texts(split)] for split in embedded.SPLITS}
    sentences = {row["sentence"] for split in embedded.SPLITS for row in embedded.rows(split)}
    verdicts = {verdict.template.partition("}")[2].split("{")[0] for verdict in grammar.VERDICTS}
    assert len(texts["train"]) > 10_000
    assert not sentences & {text for rows in texts.values() for text in rows}
    bare = {text.split(ending)[0] for rows in texts.values() for text in rows for ending in verdicts if ending in text}
    assert not sentences & bare
    assert embedded.texts("validation") == embedded.texts("validation")
