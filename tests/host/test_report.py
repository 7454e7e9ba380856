import json

import pytest

from seedflood.host.report import Report
from seedflood.operations.rise import Best
from seedflood.training.generation import Sample


@pytest.fixture
def report(tmp_path):
    return Report(tmp_path / "result.json", ("perplexity", "loss"))


def test_every_figure_of_the_objective_is_told_though_nothing_was_evaluated(report):
    assert report.figures() == dict.fromkeys(
        ("perplexity_before", "perplexity_after", "loss_before", "loss_after"),
    )


def test_figures_of_the_base_model_are_those_of_an_earlier_life(report):
    report.before = {"perplexity": 8.0, "loss": 2.0, "rows": 3}
    report.keep()
    later = Report(report.path, report.names)
    assert later.recall()
    later.after = {"perplexity": 4.0, "loss": 1.0, "rows": 3}
    assert later.figures() == {
        "perplexity_before": 8.0,
        "perplexity_after": 4.0,
        "loss_before": 2.0,
        "loss_after": 1.0,
    }


def test_the_best_evaluation_is_known_to_later_lives(report):
    report.before, report.best = {"loss": 2.0, "rows": 3}, Best(40, 0.5)
    report.keep()
    later = Report(report.path, report.names)
    later.recall()
    assert later.best == Best(40, 0.5)


def test_what_the_base_model_wrote_is_known_to_later_lives(report):
    report.before = {"loss": 2.0, "rows": 3}
    report.sampled(0, "before", Sample("2+2?", "4.", "a film"))
    later = Report(report.path, report.names)
    later.recall()
    later.sampled(0, "after", Sample("2+2?", "4.", "4."))
    assert later.samples["0"] == {"prompt": "2+2?", "wanted": "4.", "before": "a film", "after": "4."}


def test_an_earlier_version_has_kept_no_best_evaluation(report):
    report.path.write_text('{"before": {"loss": 2.0, "rows": 3}, "result": null}')
    assert report.recall()
    assert report.best is None


def test_a_host_that_only_served_since_tells_what_its_run_has_cost(report):
    result = {"digest": "ab", "spent_seconds": 3.5, "tokens": 9, "loss_after": None}
    assert report.end(result) == result
    later = Report(report.path, report.names)
    later.keep()
    later.after = {"loss": 1.0}
    nothing = {"digest": "ab", "spent_seconds": 0.0, "tokens": 0, "loss_after": 1.0}
    assert later.end(dict(nothing)) == {**result, "loss_after": 1.0}
    assert json.loads(report.path.read_text())["result"]["tokens"] == 9
    other = {"digest": "cd", "spent_seconds": 0.0, "tokens": 0}
    assert Report(report.path, report.names).end(dict(other)) == other


def test_a_result_never_holds_what_json_cannot_say(report, capsys):
    result = {"loss": float("nan"), "distance": float("inf"), "rows": [1, -float("inf")], "name": "alpha", "share": 0.5}
    report.before = {"loss": float("nan"), "rows": 3}
    report.publish(report.end(result))
    expected = {"loss": None, "distance": None, "rows": [1, None], "name": "alpha", "share": 0.5}
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == expected
    assert json.loads(report.path.read_text(), parse_constant=pytest.fail)["result"] == expected
