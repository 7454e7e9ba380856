import json

import datasets
import pytest

from seedflood.errors import ConfigError
from seedflood.training.guessing import guess_objective


@pytest.fixture
def guess(tmp_path):
    def guess(*rows):
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows for _ in "ab"))
        return guess_objective(str(tmp_path / "rows.jsonl"))

    return guess


@pytest.mark.parametrize(
    ("row", "task"),
    [
        ({"messages": []}, {"task": "chat"}),
        ({"messages": [], "prompt": "a", "id": 3}, {"task": "chat"}),
        ({"conversations": []}, {"task": "chat", "label_column": "conversations"}),
        ({"prompt": "a", "completion": "b", "label": True}, {"task": "completion"}),
        ({"text": "a"}, {"task": "lm"}),
        ({"text": "a", "url": "b"}, {"task": "lm"}),
    ],
)
def test_columns_tell_the_task(guess, row, task):
    assert guess({**row, "n": 1}, {**row, "n": 2}) == task


def test_labels_that_are_words_are_asked_for(guess):
    told = guess({"review": "a", "label": "bad"}, {"review": "b", "label": "good"})
    assert told == {"task": "prompted", "template": "{review}\nLabel:", "label_words": ("bad", "good")}


def test_labels_with_names_are_asked_for_by_these(tmp_path):
    rows = datasets.Dataset.from_list([{"text": str(n), "label": n % 2} for n in range(4)])
    rows.cast_column("label", datasets.ClassLabel(names=["no", "yes"])).to_parquet(tmp_path / "rows.parquet")
    assert guess_objective(str(tmp_path / "rows.parquet"))["label_words"] == ("no", "yes")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            [{"sentence": "a", "label": 0}, {"sentence": "b", "label": 1}],
            r'--task prompted --set .*"\{sentence\} It was"',
        ),
        ([{"text": "a", "label": "0"}, {"text": "b", "label": "1"}], "no words for these: say --task prompted"),
        ([{"text": "a", "label": "x"}, {"text": "b", "label": None}], "no words for these"),
        (
            [{"question": "a", "answer": "b"}, {"question": "c", "answer": "d"}],
            "columns question, answer, which do not",
        ),
        ([{"one": "a", "two": "b", "label": 0}, {"one": "c", "two": "d", "label": 1}], "which do not tell what is"),
    ],
)
def test_what_columns_do_not_tell_must_be_said(guess, rows, words):
    with pytest.raises(ConfigError, match=words):
        guess(*rows)
