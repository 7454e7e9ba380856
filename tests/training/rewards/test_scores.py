"""Scores by name."""

import hashlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.errors import ConfigError
from seedflood.training.rewards import local
from seedflood.training.rewards.scorer import FAULTY_MAX, LOST_MAX, Guarded, ScoreError
from seedflood.training.rewards.scores import KINDS, columns_of, make_scorer

ROW = {"answer": "yes", "numbers": [1, 2], "target": 3, "metadata": {"source_dataset": "chain_sum"}}
SPECS = {
    "exact": "yes",
    "numeric": "3",
    "regex:^y": "yes",
    "choice:yes,no": "Yes, it is",
    "json": "[]",
    "json:a,b": '{"a": 1, "b": 2}',
    "length:3": "abc",
    "countdown": "2+1",
    "gym:chain_sum": "yes",
}


@pytest.mark.parametrize(("spec", "text"), SPECS.items())
def test_every_score_knows_a_right_text(spec, text, caplog):
    row = {**ROW, "answer": 3} if spec == "numeric" else ROW
    assert make_scorer(spec)("prompt", text, row) == 1.0
    assert make_scorer(spec)("prompt", "~", row) < 0.5
    assert caplog.messages == []


def test_every_kind_is_among_these():
    assert {spec.partition(":")[0] for spec in SPECS} == {*KINDS}


@pytest.fixture(scope="module")
def scores():
    return {spec: make_scorer(spec) for spec in SPECS}


@given(st.sampled_from([*SPECS]), st.text(max_size=30), st.dictionaries(st.sampled_from([*ROW]), st.text(max_size=5)))
def test_a_score_is_a_number_within_its_range_whatever_is_written_and_whatever_the_row(scores, spec, text, row):
    score = scores[spec]
    values = {score("prompt", text, row) for _ in range(2)}
    assert len(values) == 1
    assert 0 <= values.pop() <= 1


@given(st.floats())
def test_only_numbers_from_0_to_1_count(value):
    assert Guarded("a", lambda *_: value)("", "", {}) == (value if 0 <= value <= 1 else 0.0)


def test_a_fault_counts_as_nothing_and_is_told_once_per_kind(caplog):
    faults = iter([KeyError("a"), math.nan, KeyError("b"), ValueError("c"), 2.0, -0.5, math.nan])

    def score(*_):
        if isinstance(fault := next(faults), Exception):
            raise fault
        return fault

    guarded = Guarded("a", score)
    assert [guarded("", "", {}) for _ in range(7)] == [0.0] * 7
    assert [line.removesuffix("; such a text counts as 0") for line in caplog.messages] == [
        "score a: KeyError ('a')",
        "score a: not a number (nan)",
        "score a: ValueError (c)",
        "score a: out of range (2)",
    ]


def test_a_score_that_loops_on_text_after_text_ends_the_run_and_one_that_loops_now_and_then_does_not():
    loops = iter([True] * (LOST_MAX - 1) + [False] + [True] * LOST_MAX)

    def score(*_):
        if next(loops):
            raise ScoreError("took too long", is_lost=True)
        return 1.0

    guarded = Guarded("a", score)
    assert [guarded("", "", {}) for _ in range(2 * LOST_MAX - 1)] == [0.0] * (LOST_MAX - 1) + [1.0] + [0.0] * (
        LOST_MAX - 1
    )
    with pytest.raises(ConfigError, match=f'^score = "a" gave no number for {LOST_MAX} texts in a row .took too long'):
        guarded("", "", {})


@pytest.mark.parametrize("good", [0, 1])
def test_a_score_that_has_never_given_a_number_ends_the_run_and_one_that_has_does_not(good):
    guarded = Guarded("a", lambda prompt, completion, row: row["a"])
    for text in range(FAULTY_MAX - 1):
        assert guarded("", "", {"a": 0.5} if text < good else {}) == (0.5 if text < good else 0.0)
    if good:
        assert [guarded("", "", {}) for _ in range(FAULTY_MAX)] == [0.0] * FAULTY_MAX
    else:
        with pytest.raises(ConfigError, match=rf"gave no number for {FAULTY_MAX} texts in a row .KeyError"):
            guarded("", "", {})


@pytest.mark.parametrize("spec", SPECS)
def test_a_row_without_a_column_that_a_score_needs_is_told(spec, caplog):
    score = make_scorer(spec)
    for column in columns_of(spec):
        score("", SPECS[spec], {name: value for name, value in ROW.items() if name != column})
    assert len(caplog.messages) == bool(columns_of(spec))


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("best", 'There is no score "best": use one of exact, '),
        ("regex", "needs a pattern, as in regex:"),
        ("regex:(", 'The score "regex:(" has no valid pattern (missing ), unterminated subpattern at position 0)'),
        ("choice", "needs the words to choose from, as in choice:yes,no: add them."),
        ("choice:a,,b", "needs the words"),
        ("json:,", "needs keys"),
        ("length", "needs a number of characters"),
        ("length:0", "needs a number of characters"),
        ("gym:none", 'reasoning-gym has no task "none"'),
    ],
)
def test_what_cannot_score_is_refused(spec, sentence):
    with pytest.raises(ConfigError) as caught:
        make_scorer(spec)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("spec", ["regex:a", "json", "gym:chain_sum"])
def test_what_may_search_a_text_for_ever_runs_in_a_process_of_its_own(spec):
    assert isinstance(make_scorer(spec).score, local.LocalScore)


@pytest.mark.parametrize(
    ("spec", "row"), [("regex:^(a+)+$", {}), ("json", {"schema": {"type": "string", "pattern": "^(a+)+$"}})]
)
def test_a_pattern_that_looks_for_ever_stops_nothing_else(monkeypatch, caplog, spec, row):
    """Python's `re` holds all threads of its process."""
    monkeypatch.setattr(local, "LIMITS", local.LIMITS._replace(cpu_seconds=1))
    score = make_scorer(spec)
    assert score("", f'"{"a" * 40}!"' if row else f"{'a' * 40}!", row) == 0.0
    assert caplog.messages == [f"score {spec}: took too long (more than 1 s of a CPU); such a text counts as 0"]
    assert score("", '"aa"' if row else "aa", row) == 1.0


@pytest.mark.parametrize("task", ["countdown", "puzzle24", "spiral_matrix", "n_queens", "polynomial_multiplication"])
def test_a_task_that_runs_what_a_model_wrote_is_refused(task):
    with pytest.raises(ConfigError, match="runs what a model wrote"):
        make_scorer(f"gym:{task}")


@pytest.mark.long
def test_tasks_of_reasoning_gym_score_their_own_rows_as_json_spells_them():
    import reasoning_gym

    for task in ("chain_sum", "leg_counting", "family_relationships"):
        score = make_scorer(f"gym:{task}")
        for entry in reasoning_gym.create_dataset(task, size=3, seed=1):
            row = json.loads(json.dumps(entry, default=str))
            assert score(row["question"], entry["answer"], row) == 1.0


def test_a_file_scores_if_it_is_the_one_that_the_run_names(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def best(prompt, completion, row): return len(completion) / 10")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(ConfigError, match="has the SHA-256"):
        make_scorer(f"{path}:best")
    assert make_scorer(f"{path}:best", digest)("", "abc", {}) == 0.3
