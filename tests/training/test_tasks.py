import json
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import VOCABULARY, WORDS, make_task, tiny_base, tiny_settings, tiny_tokenizer
from tokenizers import processors
from transformers import AutoTokenizer

from seedflood.cluster.display import understood
from seedflood.config import WITHOUT_ROWS, TaskName, read_objective
from seedflood.errors import ConfigError, DataError, ModelError
from seedflood.training.formats import BUILT_IN, PromptFormat, TextFormat, choose_format
from seedflood.training.objectives.batches import TextBatch
from seedflood.training.rows import Row
from seedflood.training.tasks import load_task

FORM = PromptFormat("{text} it was", ("bad", "good"))
ROWS = [{"text": f"film {word}", "label": index % 2} for index, word in enumerate("abcde" * 8)]


def make(rows=ROWS, form=FORM, validation=ROWS[:7], shard=None, **changes):
    return make_task(tiny_settings(**changes), tiny_tokenizer(), form, rows, validation, shard=shard)


def write_data(folder, train=ROWS, validation=ROWS[:4]):
    for name, rows in (("train", train), ("validation", validation)):
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return str(folder)


def prompted(**changes):
    return tiny_settings(task="prompted", template="{text} it was", label_words=("bad", "good"), **changes)


def lines(task):
    """Which rows a host trains on."""
    return [row.line for row in task.train_rows]


def words(tokens):
    return " ".join(WORDS[token] for token in tokens)


def test_a_row_becomes_the_prompt_with_its_columns_stripped():
    example = make(validation=[{"text": " film . ", "label": 1}]).validation_examples[0]
    assert words(example.tokens) == "film . it was"
    assert example.source.label == 1


def test_a_long_prompt_loses_its_beginning():
    example = make(validation=[{"text": "a b c d e " * 4, "label": 1}], max_length=8).validation_examples[0]
    assert words(example.tokens) == "e a b c d e it was"


def test_a_long_prompt_keeps_the_token_that_begins_every_text(shared):
    tokenizer = AutoTokenizer.from_pretrained(shared / "models/tiny-opt")
    rows = [{"text": "a film that goes on and on " * 9, "label": 1}]
    for max_length in (8, 100):
        task = make_task(tiny_settings(max_length=max_length), tokenizer, FORM, rows, rows)
        tokens = task.validation_examples[0].tokens
        begins = tokenizer("a")["input_ids"][0] == tokenizer.bos_token_id
        assert (tokens[0] == tokenizer.bos_token_id) is begins
        assert len(tokens) <= max_length
        assert tokenizer.decode(tokens).endswith("on it was")


def test_a_prompt_is_no_longer_than_the_model_has_positions():
    task = make_task(tiny_settings(), tiny_base().tokenizer, FORM, ROWS, [{"text": "a " * 99, "label": 1}])
    assert len(task.validation_examples[0].tokens) == 32


def test_a_long_text_loses_its_end():
    task = make([{"text": "a b c d e a b c d e"}], TextFormat(), [{"text": "a b c d e a b c d e"}], max_length=8)
    assert words(task.validation_examples[0].tokens) == "a b c d e a b c"
    assert isinstance(task.batch(0, 0), TextBatch)


def test_a_batch_holds_tokens_lengths_and_labels():
    task = make([{"text": "a b", "label": 0}, {"text": "a", "label": 1}], batch_size=2)
    batch = task.batch(0, 0)
    assert sorted(batch.lengths_B.tolist()) == [3, 4]
    assert task.objective.words == (WORDS.index("bad"), WORDS.index("good"))
    for tokens, length, label in zip(batch.tokens_BT.tolist(), batch.lengths_B, batch.label_B, strict=True):
        assert words(tokens[: int(length)]) == ("a it was" if label else "a b it was")
        assert set(tokens[int(length) :]) <= {0}


@settings(max_examples=10)
@given(origin=st.integers(0, 2**64 - 1), size=st.integers(1, 90))
def test_batches_walk_through_permutations_of_the_shard(origin, size):
    task = make(shard="2/3", batch_size=size)
    rows = len(task.train_rows)
    walk = [place for step in range(1 + 3 * rows // size) for place in task.positions(origin, step)]
    for start in range(0, len(walk) - rows + 1, rows):
        assert sorted(walk[start : start + rows]) == list(range(rows))
    assert make(shard="2/3", batch_size=size).positions(origin, 2) == task.positions(origin, 2)


def test_batches_differ_between_origins_run_seeds_and_passes():
    orders = [tuple(make(seed=seed, batch_size=40).positions(o, k)) for seed in (1, 2) for o in (0, 1) for k in (0, 1)]
    assert len(set(orders)) == len(orders)


@pytest.mark.parametrize("count", [1, 3, 16])
def test_shards_are_disjoint_differ_by_one_row_at_most_and_cover_the_rows_of_the_run(count):
    shards = [lines(make(shard=f"{k}/{count}", train_examples=30)) for k in range(1, count + 1)]
    together = [row for shard in shards for row in shard]
    assert len(set(together)) == len(together) == 30
    assert set(together) == set(lines(make(train_examples=30)))
    assert max(map(len, shards)) <= min(map(len, shards)) + 1


def test_more_shards_than_rows_are_refused():
    with pytest.raises(DataError, match=r"the rows to train \(40\) cannot be shared by 41 nodes"):
        make(shard="41/41")


def test_the_task_of_another_share_is_the_one_that_its_host_has():
    task, other = (make(shard=f"{k}/2", batch_size=4, train_examples=30) for k in (1, 2))
    of_other = task.of_shard(other.shard)
    assert lines(of_other) == lines(other) != lines(task)
    assert of_other.batch(7, 3).tokens_BT.equal(other.batch(7, 3).tokens_BT)
    assert of_other.digest() == task.digest()


def test_label_words_that_begin_with_the_same_token_are_refused():
    with pytest.raises(DataError, match='"good film" and "good" begin with the same token'):
        make(form=PromptFormat("{text} it was", ("good film", "good")))


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ('{"text": "a", "label": 0', "not valid JSON"),
        ('["text"]', "not a JSON object"),
        ({"txt": "a", "label": 0}, r'no column "text" \(columns: txt, label\)'),
        ({"text": [5], "label": 0}, 'column "text" is not text'),
        ({"text": "a", "label": 2}, 'label 2 in column "label" is unknown: it must be 0 to 1 or one of bad, good'),
        ({"text": "a", "label": -1}, "label -1"),
        ({"text": "a", "label": "awful"}, "label 'awful'"),
        ({"text": "a"}, 'no column "label"'),
        ({"text": "a", "label": 0.5}, r"label 0\.5"),
    ],
)
@pytest.mark.parametrize("name", ["train", "validation"])
def test_a_bad_row_is_told_with_file_and_line(tmp_path, row, problem, name):
    folder = write_data(tmp_path, **{name: [ROWS[0], "", row, ROWS[1]]})
    with pytest.raises(DataError, match=problem) as caught:
        load_task(prompted(), tiny_tokenizer(), data=folder)
    assert f"{name}.jsonl, line 3: " in str(caught.value)


def test_bytes_that_are_no_text_are_told_with_their_line(tmp_path):
    folder = write_data(tmp_path)
    (tmp_path / "train.jsonl").write_bytes(b'{"text": "a", "label": 0}\n{"text": "\xff", "label": 0}\n')
    with pytest.raises(DataError, match=r"line 2: not valid JSON \(not text in UTF-8\)"):
        load_task(prompted(), tiny_tokenizer(), data=folder)


def test_without_validation_rows_some_of_the_training_rows_are_held_out(tmp_path):
    write_data(tmp_path)
    (tmp_path / "validation.jsonl").unlink()
    task = load_task(prompted(), tiny_tokenizer(), data=str(tmp_path))
    assert len(task.validation_rows) == max(
        1, len({row.spelled() for row in task.train_rows + task.validation_rows}) // 4
    )
    assert task.validation_rows[0].columns not in [row.columns for row in task.train_rows]


def test_an_empty_file_is_refused(tmp_path):
    folder = write_data(tmp_path)
    (tmp_path / "validation.jsonl").write_text("\n")
    with pytest.raises(DataError, match="has no rows"):
        load_task(prompted(), tiny_tokenizer(), data=folder)


@pytest.mark.parametrize("labels", [("good", False), (1.0, 0.0), ("1.0", "0"), (True, "bad")])
def test_labels_may_be_the_words_themselves_or_booleans_or_whole_floats(labels):
    task = make(validation=[{"text": "a", "label": one} for one in labels])
    assert [example.source.label for example in task.validation_examples] == [1, 0]


@pytest.mark.parametrize("labels", [("3", "1"), (3, 1), (3.0, 1.0), ("3.0", "1")])
def test_a_number_means_the_label_word_that_is_spelled_so_in_every_kind_of_file(labels):
    form = PromptFormat("{text} it was", ("1", "2", "3"))
    assert [form.label(Row({"label": one}, "rows", 1)) for one in labels] == [2, 0]
    with pytest.raises(DataError, match=r"line 1: label 0 in column .label. is unknown: it must be one of 1, 2, 3"):
        form.label(Row({"label": 0}, "rows", 1))


@pytest.mark.parametrize("words", [("true", "false"), ("Yes", "No"), ("True", "False"), ("1", "0")])
def test_a_boolean_means_the_label_word_that_says_so_in_every_kind_of_file(words):
    for wanted in (words, words[::-1]):
        form = PromptFormat("{text} it was", wanted)
        told = [wanted[form.label(Row({"label": one}, "rows", 1))] for one in (True, False, "True", "false")]
        assert told == [*words, *words]
    form = PromptFormat("{text} it was", ("bad", "good"))
    assert [form.label(Row({"label": one}, "rows", 1)) for one in (True, False, "True", "False")] == [1, 0, 1, 0]


def test_columns_may_have_names_of_several_words():
    rows = [{"the text": row["text"], "a-label": row["label"]} for row in ROWS]
    task = make(rows, PromptFormat("{the text} it was", ("bad", "good"), "a-label"), rows[:2])
    assert words(task.validation_examples[1].tokens) == "film b it was"


@pytest.mark.parametrize("template", ["it was", "{} it was", "{text.real}", "{text!r}", "{text:>9}", "{text", "{0}"])
def test_a_template_is_plain_columns_and_nothing_else(template):
    with pytest.raises(ConfigError, match="template"):
        make(form=PromptFormat(template, ("bad", "good")))


@pytest.mark.parametrize(
    "said",
    [
        {"task": "prompted", "template": "{text} Label: {label}", "label_words": ("bad", "good")},
        {"task": "sst2", "template": "{sentence} {label}"},
        {"task": "completion", "template": "{prompt} {completion}"},
        {"task": "completion", "template": "{question} {answer}", "label_column": "answer"},
    ],
)
def test_a_template_that_shows_what_is_learned_is_refused(said):
    with pytest.raises(ConfigError, match="so the answer would stand in the prompt: take it out of template"):
        choose_format(read_objective(said), {})


def test_a_prompted_task_needs_template_and_label_words():
    with pytest.raises(ConfigError, match="needs template and label_words"):
        choose_format(tiny_settings(task="prompted").objective, {})


def test_settings_know_which_tasks_have_rows_of_their_own():
    assert {*get_args(TaskName)} - {*WITHOUT_ROWS} == {*BUILT_IN, "own"}


def test_blank_texts_are_left_out_and_a_single_token_is_learned_with_the_end_of_its_text():
    rows = [{"text": text} for text in ("", "film", " \n", "good film", "")]
    tokenizer = tiny_tokenizer()
    tokenizer.eos_token = "[bos]"
    task = make_task(tiny_settings(task="lm"), tokenizer, TextFormat(), rows, rows)
    assert [words(example.tokens) for example in task.validation_examples] == ["film [bos]", "good film [bos]"]
    assert {words(row) for row in task.batch(0, 0).tokens_BT.tolist()} == {"film [bos] [pad]", "good film [bos]"}
    with pytest.raises(
        DataError,
        match="validation rows, line 1: no text, or a mark that they are not learned, as in all rows to evaluate on",
    ):
        make_task(tiny_settings(task="lm"), tokenizer, TextFormat(), rows, rows[:1])
    with pytest.raises(DataError, match="line 2: has no text to learn from"):
        make_task(tiny_settings(task="lm"), tiny_tokenizer(), TextFormat(), rows, rows).describe()


@pytest.mark.parametrize(
    ("settings", "form", "row"),
    [
        (tiny_settings(task="lm"), TextFormat(), {"text": "good film ."}),
        (tiny_settings(), FORM, {"text": "good film .", "label": 0}),
    ],
    ids=["lm", "prompted"],
)
def test_rows_that_are_marked_are_left_out_of_any_task(settings, form, row):
    rows = [row, {**row, "train": False}, {**row, "weight": 0}, {**row, "weight": 1}, {**row, "id": 1}]
    told = make_task(settings, tiny_tokenizer(), form, rows, rows).describe()
    assert (told["rows"], told["unused"]) == (3, ["id"])
    assert "rows left out, as blank or marked not to be learned: 2" in told["remarks"]
    with pytest.raises(DataError, match="All rows to train have no text, or a mark"):
        make_task(settings, tiny_tokenizer(), form, rows[1:2], rows)


def test_a_column_that_is_read_is_no_mark():
    form = PromptFormat("{text} it was", ("bad", "good"), "training")
    rows = [{"text": "good film .", "training": place % 2} for place in range(4)]
    assert make(rows, form, rows).describe()["rows"] == 4


def test_a_task_without_data_is_refused():
    with pytest.raises(DataError, match="needs data"):
        load_task(prompted(), tiny_tokenizer())


def test_a_data_set_that_is_not_to_be_had_is_told_in_one_sentence(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match='"nobody/nothing" is no file, no folder and not in the'):
        load_task(prompted(), tiny_tokenizer(), data="nobody/nothing")


def test_a_model_without_tokenizer_is_refused():
    with pytest.raises(ModelError, match="no tokenizer"):
        make_task(tiny_settings(), None, FORM, ROWS, ROWS)


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_built_in_tasks_have_templates_of_plain_columns(name):
    for form in BUILT_IN[name].formats:
        columns = {field.split("}")[0]: "a" for field in form.template.split("{")[1:]}
        chosen = choose_format(tiny_settings(task=name).objective, {**columns, form.label_column: 0})
        assert chosen == form
        assert form.template.format_map(columns) == form.template.rstrip(" ").format_map(columns)


def test_settings_override_a_built_in_task():
    chosen = choose_format(
        tiny_settings(task="sst2", label_words=("bad", "good"), label_column="y").objective, {"sentence": "a"}
    )
    assert chosen == PromptFormat("{sentence} . it was", ("bad", "good"), "y")


def test_label_words_follow_the_prompt_with_their_space(shared):
    tokenizer = AutoTokenizer.from_pretrained(shared / "models/tiny-opt")
    rows = [{"sentence": "fine ", "label": 1}]
    form = choose_format(tiny_settings(task="sst2").objective, rows[0])
    task = make_task(tiny_settings(), tokenizer, form, rows, rows)
    assert tokenizer.decode(task.objective.words) == " terrible great"
    assert tokenizer.decode(task.validation_examples[0].tokens, skip_special_tokens=True) == "fine . it was"


def test_all_tokens_of_a_batch_are_of_the_vocabulary():
    assert int(make().batch(0, 0).tokens_BT.max()) < VOCABULARY
    assert make().batch(0, 0).tokens_BT.dtype == torch.int64


def test_what_was_understood_of_the_rows_is_told_with_a_row_to_look_at(tmp_path):
    write_data(tmp_path, train=[{"id": 3, "text": "film", "label": 1}] * 6, validation=ROWS[:4])
    told = load_task(prompted(train_examples=4), tiny_tokenizer(), data=str(tmp_path), shard="1/2").describe()
    sizes = {"rows": 4, "rows_found": 6, "rows_here": 2, "validation_rows": 4, "looked_at": 2, "cut": 0}
    seen = {
        "held_out": False,
        "copies": 0,
        "columns": ["text", "label"],
        "unused": ["id"],
        "tokens_per_row": 3.0,
        "unknown": 0.0,
        "remarks": [],
        "sample": "film it was⟦good⟧",
    }
    assert told == {"task": "prompted", **sizes, **seen}


def test_how_many_tokens_a_model_does_not_know_is_told_if_they_are_many():
    unlike, few = (make([{"text": text, "label": 0}] * 4).describe() for text in ("zyx qqq", "film " * 9 + "qqq"))
    assert (unlike["unknown"], few["unknown"]) == (0.5, pytest.approx(1 / 12, abs=1e-3))
    assert "4 tokens a row, 50% unknown to this model: take one that knows such words" in understood(unlike)
    assert "unknown" not in understood(few)


@pytest.mark.parametrize(("max_length", "cut"), [(8, 2), (12, 0)])
def test_rows_that_are_cut_are_counted(max_length, cut):
    rows = [{"text": "a b c " * 3, "label": 1}] * 2 + ROWS[:2]
    told = make(rows, max_length=max_length).describe()
    assert (told["looked_at"], told["cut"], told["rows"]) == (4, cut, 4)


def test_of_a_long_row_the_place_where_learning_begins_is_shown():
    told = make([{"text": "a " * 400, "label": 1}] * 2, max_length=400).describe()
    assert told["sample"].startswith("…a")
    assert told["sample"].endswith("it was⟦good⟧")
    assert len(told["sample"]) < 200


def test_a_prompt_does_not_end_with_the_separator_of_a_tokenizer_of_bert():
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"cls_token": "[bos]", "sep_token": "[unk]"})
    ends = processors.TemplateProcessing(single="[bos] $A [unk]", special_tokens=[("[bos]", 13), ("[unk]", 1)])
    tokenizer.backend_tokenizer.post_processor = ends
    task = make_task(tiny_settings(), tokenizer, FORM, ROWS, ROWS[:2])
    assert words(task.validation_examples[0].tokens) == "[bos] film a it was"
