import json

import datasets
import pytest

from seedflood.errors import ConfigError, DataError
from seedflood.training.guessing import guess_objective


@pytest.fixture
def guess(tmp_path):
    def guess(*rows, hosts=1, **said):
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows for _ in "ab"))
        return guess_objective(str(tmp_path / "rows.jsonl"), said, hosts)

    return guess


@pytest.mark.parametrize(
    ("row", "said", "found"),
    [
        ({"prompt": "a", "answer": "b"}, {}, {"template": "{prompt}", "label_column": "answer"}),
        ({"question": "a", "answer": 4}, {}, {"template": "{question}", "label_column": "answer"}),
        ({"a": "x", "b": "y"}, {"template": "{a}", "label_column": "b"}, {}),
        ({"problem": "a"}, {"score": "length:8"}, {"template": "{problem}"}),
        (
            {"messages": [{"role": "user", "content": "a"}], "answer": "b"},
            {},
            {"template": "{messages}", "label_column": "answer"},
        ),
    ],
)
def test_prompts_and_what_is_right_are_found_if_answers_are_rewarded(guess, row, said, found):
    assert guess({**row, "n": 1}, {**row, "n": 2}, task="reward", **said) == found


def test_rows_without_what_a_score_needs_are_refused_by_line(guess):
    with pytest.raises(DataError, match=r'line \d: no column "answer", which score = "exact" needs'):
        guess({"prompt": "a"}, {"prompt": "b"}, task="reward")


@pytest.mark.parametrize(
    ("row", "task"),
    [
        ({"messages": []}, {"task": "chat"}),
        ({"messages": [], "prompt": "a", "id": 3}, {"task": "chat"}),
        ({"conversations": []}, {"task": "chat", "label_column": "conversations"}),
        ({"dialogue": [{"role": "user", "content": "a"}]}, {"task": "chat", "label_column": "dialogue"}),
        ({"turns": [{"from": "human", "value": "a"}], "tags": ["b"]}, {"task": "chat", "label_column": "turns"}),
        ({"prompt": "a", "completion": "b", "label": "c"}, {"task": "completion"}),
        (
            {"instruction": "a", "input": "", "output": "b"},
            {"task": "completion", "template": "{instruction}\n{input}\n", "label_column": "output"},
        ),
        (
            {"instruction": "a", "response": "b"},
            {"task": "completion", "template": "{instruction}\n", "label_column": "response"},
        ),
        (
            {"prompt": "a", "response": "b"},
            {"task": "completion", "template": "{prompt}\n", "label_column": "response"},
        ),
        ({"text": "a"}, {"task": "lm"}),
        ({"text": "a", "url": "b"}, {"task": "lm"}),
    ],
)
def test_columns_tell_the_task(guess, row, task):
    assert guess({**row, "n": 1}, {**row, "n": 2}) == task


def test_rows_of_alpaca_may_lack_an_input_and_bring_what_was_said_before(guess):
    rows = [{"instruction": "a", "output": "b"}, {"instruction": "a", "input": "c", "output": "b"}]
    assert guess(*rows) == {"task": "completion", "template": "{instruction}\n{input}\n", "label_column": "output"}
    told = guess(*({**row, "system": "s", "history": [["q", "r"]]} for row in rows))
    assert told["template"] == "{system}\n{history}{instruction}\n{input}\n"


def test_messages_before_an_instruction_are_not_taken_for_the_chat(guess):
    history = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "r"}]
    rows = [{"instruction": f"a {place}", "output": "b", "history": history} for place in range(40)]
    with pytest.raises(DataError, match='column "history" is not text'):
        guess(*rows)


SAYS = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


@pytest.mark.parametrize(
    "row",
    [
        {"chosen": SAYS, "rejected": SAYS},
        {"prompt": SAYS, "completion": "c"},
        {"prompt": SAYS, "score": 1.5},
        {"question": "a", "response": SAYS},
        {"turns": SAYS, "others": SAYS},
        {"turns": [*SAYS, "c"]},
    ],
)
def test_half_of_a_chat_or_one_of_two_is_not_taken_for_a_chat(guess, row):
    with pytest.raises(ConfigError):
        guess({**row, "n": 1}, {**row, "n": 2})


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"chosen": SAYS, "rejected": SAYS}, "say --task chat --set run.objective.label_column=chosen"),
        ({"prompt": SAYS, "chosen": SAYS, "rejected": SAYS}, "put prompt and chosen into one column, messages"),
        ({"prompt": "a", "chosen": "b", "rejected": "c"}, "--task completion --set run.objective.label_column=chosen"),
        ({"chosen": "b", "rejected": "c"}, "--task lm --set 'run.objective.template=\"{chosen}\"'"),
    ],
)
def test_of_two_answers_the_worse_one_is_never_proposed(guess, row, what):
    """Rows of DPO."""
    with pytest.raises(ConfigError) as refused:
        guess({**row, "n": 1}, {**row, "n": 2}, max_length=99)
    assert what in str(refused.value)
    assert "=rejected" not in str(refused.value)


@pytest.mark.parametrize(
    ("row", "said", "found"),
    [
        ({"instruction": "a", "response": "b"}, {}, {"template": "{instruction}\n", "label_column": "response"}),
        ({"instruction": "a", "output": "b"}, {"template": "{instruction} "}, {"label_column": "output"}),
        ({"prompt": "a", "completion": "b", "label": True}, {}, {}),
        ({"question": "a", "answer": "b"}, {"template": "{question}", "label_column": "answer"}, {}),
    ],
)
def test_columns_of_completions_are_found_if_the_task_is_said(guess, row, said, found):
    assert guess(row, {**row, "n": 1}, task="completion", **said) == found


def test_the_column_of_chats_is_found_if_the_task_is_said(guess):
    assert guess({"conversations": []}, {"conversations": [], "n": 1}, task="chat") == {"label_column": "conversations"}


def test_completions_that_are_called_good_or_bad_are_not_all_learned_unasked(guess):
    """Rows of KTO."""
    rows = [{"prompt": "a", "completion": "b", "label": one} for one in (True, False)]
    with pytest.raises(ConfigError, match=r"keep the good ones without it, or learn all of them by --task completion"):
        guess(*rows)
    assert guess(*rows, task="completion") == {}


def test_an_empty_completion_is_refused_before_any_host_runs_unless_it_is_left_out(guess):
    rows = [{"prompt": "a", "completion": "b"}, {"prompt": "c", "completion": " "}]
    with pytest.raises(DataError, match=r'line \d: nothing in column "completion"'):
        guess(*rows)
    assert guess(rows[0], {**rows[1], "train": False}) == {"task": "completion"}


@pytest.mark.parametrize("missing", [None, "", float("nan")])
def test_a_row_without_a_label_is_named(guess, missing):
    rows = [{"text": f"row {n}", "label": ("bad", "good")[n % 2]} for n in range(8)]
    with pytest.raises(DataError, match='nothing in column "label"'):
        guess(*rows, {"text": "one more", "label": missing})


def test_labels_that_are_words_are_asked_for(guess):
    told = guess({"review": "a", "label": "bad"}, {"review": "b", "label": "good"})
    assert told == {"task": "prompted", "template": "{review}\nLabel:", "label_words": ("bad", "good")}


def test_labels_with_names_are_asked_for_by_these(tmp_path):
    rows = datasets.Dataset.from_list([{"text": str(n), "label": n % 2} for n in range(4)])
    rows.cast_column("label", datasets.ClassLabel(names=["no", "yes"])).to_parquet(tmp_path / "rows.parquet")
    assert guess_objective(str(tmp_path / "rows.parquet"), {})["label_words"] == ("no", "yes")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            [{"sentence": "a", "label": 0}, {"sentence": "b", "label": 1}],
            "no words for these: say --task prompted --set 'run.objective.label_words=",
        ),
        ([{"text": "a", "label": "0"}, {"text": "b", "label": "1"}], "no words for these: say --task prompted"),
        ([{"text": "a", "label": "x"}, {"text": "b", "label": None}], 'nothing in column "label"'),
        (
            [{"question": "a", "answer": "b"}, {"question": "c", "answer": "d"}],
            "columns question, answer, which do not",
        ),
        (
            [{"ask": "Judge.", "about": f"row {n}", "reply": "fine"} for n in range(4)],
            r'template="{ask}\\n{about} "\' --set run.objective.label_column=reply',
        ),
        (
            [{"great film": "a", "fine": "b"}] * 2 + [{"great film": "c", "fine": "d"}],
            "the first line of a CSV file must name them",
        ),
        (
            [{"one": "a", "two": "b", "label": 0}, {"one": "c", "two": "d", "label": 1}],
            r"""--task prompted --set 'run.objective.template="{one}\\n{two}\\nLabel:"', or""",
        ),
        (
            [{"one": "a b", "two": f"c {n}", "kind": ("x", "y")[n % 2]} for n in range(8)],
            r"""{two}\\nLabel:"' --set run.objective.label_column=kind, or""",
        ),
        (
            [{"text": f"row {n}", "label": f"kind {n % 40}"} for n in range(80)],
            r"""has 40 different labels .*'run.objective.template="{text}\\nLabel: "'""",
        ),
        ([{"text": f"row {n}", "category": f"kind{n % 40}"} for n in range(160)], "has 40 different labels"),
        (
            [{"question": f"Which is {n}?", "choices": ["one", "two"], "answerKey": "AB"[n % 2]} for n in range(8)],
            r"""lists of answers in column "choices", .*'run.objective.template="{question}\\nLabel:"'""",
        ),
        (
            [{"text": "a", "label": -1}, {"text": "b", "label": 1}],
            r"numbers as labels in column .label. \(-1, 1\): write",
        ),
        ([{"text": "a", "label": "0.0"}, {"text": "b", "label": "1.0"}], '"WORD FOR 0", "WORD FOR 1"'),
        (
            [{"text": "a", "label": "Good"}, {"text": "b", "label": "good"}, {"text": "c", "label": "bad"}],
            r'differ by case or spaces alone \("Good", "good"\): spell them alike',
        ),
        ([{"text": "a", "label": "good"}, {"text": "b", "label": "good"}], 'one label in all rows, "good": add rows'),
        ([{"text": "a"}, {"text": "b", "label": "c"}, {"text": "b", "label": "d"}], 'nothing in column "label"'),
    ],
)
def test_what_columns_do_not_tell_must_be_said(guess, rows, words):
    with pytest.raises(ConfigError, match=words):
        guess(*rows)


@pytest.mark.parametrize("said", [{}, {"task": "prompted"}, {"label_column": "sentiment"}])
def test_a_label_column_of_another_name_is_known_by_its_few_words_and_may_be_said(guess, said):
    rows = [{"text": f"row {n}", "sentiment": ("bad", "good")[n % 2]} for n in range(8)]
    known = {"task": "prompted", "template": "{text}\nLabel:", "label_words": ("bad", "good")}
    assert guess(*rows, **said) == {**known, "label_column": "sentiment"}
    numbers = [{**row, "sentiment": len(row["sentiment"])} for row in rows]
    with pytest.raises(ConfigError, match=r"label_column=sentiment .*=\[.WORD FOR 0., .*WORD FOR 4"):
        guess(*numbers, **said)


@pytest.mark.parametrize("others", [{"textID": "a1"}, {"": "7"}, {"title": "a b"}])
def test_a_label_of_a_usual_name_is_found_beside_a_text_and_other_columns(guess, others):
    rows = [{**others, "text": f"row {n}", "sentiment": ("bad", "good")[n % 2]} for n in range(8)]
    known = {"task": "prompted", "template": "{text}\nLabel:", "label_words": ("bad", "good")}
    assert guess(*rows) == {**known, "label_column": "sentiment"}
    with pytest.raises(ConfigError, match=r"--set 'run.objective.label_words=.* or --task lm, which learns the texts"):
        guess(*({**row, "sentiment": 3.0 + n % 2} for n, row in enumerate(rows)))


def test_a_text_beside_a_column_that_describes_it_is_one_to_be_learned(guess):
    rows = [{"text": f"row {n}", "lang": ("de", "en")[n % 2]} for n in range(8)]
    assert guess(*rows) == {"task": "lm"}
    assert guess(*rows, task="prompted")["label_words"] == ("de", "en")


def test_a_label_and_a_text_are_found_among_other_columns(guess):
    rows = [{"id": f"r{n}", "review": f"row {n}", "mood": ("bad", "good")[n % 2]} for n in range(8)]
    known = {"task": "prompted", "template": "{review}\nLabel:", "label_words": ("bad", "good"), "label_column": "mood"}
    assert guess(*rows) == guess(*rows, label_column="mood") == known
    assert guess(*({**row, "text": row["review"]} for row in rows)) == {"task": "lm"}


def test_a_text_is_found_beside_other_columns_of_text(guess):
    rows = [{"id": "a1", "sentence": "a", "label": "bad"}, {"id": "b2", "sentence": "b", "label": "good"}]
    assert guess(*rows)["template"] == "{sentence}\nLabel:"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"task": "lm"}, 'no column "text"'),
        ({"task": "prompted", "template": "{txt} is", "label_words": ("no", "yes")}, 'no column "txt"'),
        ({"task": "sst2", "template": "{sentence} is"}, "label 'bad' .* is unknown"),
        ({"task": "completion"}, 'no column "prompt"'),
        ({"task": "foo"}, r'settings: \[run.objective\] "task": .*foo'),
        ({"label_column": "rating"}, r'no column "rating" \(columns: sentence, label\)'),
        ({"hosts": 4}, r"the rows to train \(2\) cannot be shared by 4 nodes: use fewer \(--nodes\)"),
    ],
)
def test_rows_that_do_not_fit_what_was_said_are_told_before_any_host_runs(guess, said, words):
    with pytest.raises((DataError, ConfigError), match=words):
        guess({"sentence": "a", "label": "bad"}, {"sentence": "b", "label": "good"}, **said)
