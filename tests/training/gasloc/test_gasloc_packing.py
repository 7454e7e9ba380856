import json

import pytest
import torch
from reference import tiny_base, tiny_settings, tiny_tokenizer

from seedflood.errors import DataError
from seedflood.training.encoding import TextEncoder
from seedflood.training.formats import CompletionFormat, TextFormat
from seedflood.training.gasloc.packing import PackedTask, pack, pack_marked, pack_task, text_batch
from seedflood.training.objectives.language_modelling import LanguageModelling
from seedflood.training.rows import rows_in_memory
from seedflood.training.tasks import load_task


def tokenizer(**special):
    found = tiny_tokenizer()
    found.add_special_tokens(special)
    return found


def rows(texts, column="text"):
    return rows_in_memory([{column: text} for text in texts], "rows")


def texts_of(length, form=None, **special):
    return TextEncoder(tokenizer(**special), form or TextFormat(), length)


def joined(packed_ST):
    """The tokens that rows were cut from."""
    return [*packed_ST[0].tolist(), *packed_ST[1:, 1:].flatten().tolist()]


def test_texts_follow_each_other_and_nothing_is_padding():
    packed_ST = pack(rows(["a b c", "d e", "good bad film was"]), texts_of(4, bos_token="[bos]"))
    words = ["[bos]", "a", "b", "c", "[bos]", "d", "e", "[bos]", "good", "bad", "film", "was"]
    assert packed_ST.dtype == torch.int32
    assert packed_ST.shape == (3, 4)
    assert joined(packed_ST) == tokenizer().convert_tokens_to_ids(words[:10])


def test_every_token_but_the_first_is_told_once():
    packed_ST = pack(rows(["a b c d e"] * 7), texts_of(5, bos_token="[bos]"))
    assert packed_ST.shape[0] == (7 * 6 - 1) // 4
    assert torch.equal(packed_ST[1:, 0], packed_ST[:-1, -1])


@pytest.mark.parametrize(("special", "first"), [({"eos_token": "[bos]"}, [13, 2]), ({}, [2, 3])])
def test_a_text_begins_with_what_the_tokenizer_has_for_that(special, first):
    assert pack(rows(["a b", "c"]), texts_of(2, **special))[0].tolist() == first


def test_few_tokens_are_one_short_row():
    assert pack(rows(["a b c"]), texts_of(100)).shape == (1, 3)


def test_a_template_of_its_own():
    assert pack(rows([" a "], "review"), texts_of(2, TextFormat("{review} b"))).tolist() == [[2, 3]]


def test_more_texts_than_the_tokenizer_takes_at_once():
    assert joined(pack(rows(["a"] * 2500), texts_of(11))) == [2] * 2491


@pytest.mark.parametrize("texts", [[], ["a"], ["", ""]])
def test_too_little_text_is_an_error_of_the_data(texts):
    with pytest.raises(DataError):
        pack(rows(texts), texts_of(8))


def test_a_row_without_text_is_named():
    with pytest.raises(DataError, match='rows, line 2: no column "text"'):
        pack(rows_in_memory([{"text": "a"}, {"other": "b"}], "rows"), texts_of(8))


def numbered(count, batch_size, run_seed=1):
    """A task whose rows bear their numbers."""
    train_ST = torch.arange(count).unsqueeze(1).expand(count, 3).to(torch.int32)
    return PackedTask(train_ST, train_ST[:5], batch_size=batch_size, run_seed=run_seed)


def seen(task, origin, steps):
    return [int(row) for step in steps for row in task.batch(origin, step).tokens_BT[:, 0]]


def test_each_pass_sees_every_row_once_in_an_order_of_its_own():
    task = numbered(10, 4)
    rows_seen = seen(task, 5, range(5))
    assert sorted(rows_seen[:10]) == sorted(rows_seen[10:]) == list(range(10))
    assert rows_seen[:10] != rows_seen[10:]


def test_the_rows_of_a_step_depend_on_seed_origin_and_step_alone():
    before = seen(numbered(50, 4), 5, range(40))
    again = numbered(50, 4)
    assert [seen(again, 5, [step]) for step in (39, 3)] == [before[4 * 39 :], before[12:16]]
    assert seen(numbered(50, 4), 6, range(40)) != before
    assert seen(numbered(50, 4, run_seed=2), 5, range(40)) != before


def test_validation_goes_through_all_rows():
    batches = list(numbered(10, 4).validation(7))
    assert [batch.tokens_BT[:, 0].tolist() for batch in batches] == [[0, 1], [2, 3], [4]]
    assert batches[0].lengths_B.tolist() == [3, 3]
    assert numbered(10, 4).tokens_per_batch == 8


def write_folder(folder, **columns):
    for name in ("train", "validation"):
        lines = [json.dumps({key: f"{value} {name[0]}" for key, value in columns.items()})] * 8
        (folder / f"{name}.jsonl").write_text("\n".join(lines))


def test_a_run_s_texts_are_packed_by_shards(tmp_path):
    write_folder(tmp_path, review="a b c")
    settings = tiny_settings(task="lm", template="{review}", max_length=9, batch_size=2, seed=5)
    whole = pack_task(load_task(settings, tiny_tokenizer(), data=str(tmp_path)))
    half = pack_task(load_task(settings, tiny_tokenizer(), data=str(tmp_path), shard="2/2"))
    assert (whole.train_ST.shape, half.train_ST.shape) == ((3, 9), (1, 9))
    assert (whole.batch_size, whole.run_seed) == (2, 5)
    assert torch.equal(whole.validation_ST, half.validation_ST)


def test_of_prompts_with_completions_the_answers_count_alone():
    texts = rows_in_memory([{"prompt": "a b", "completion": " c d"}, {"prompt": "e", "completion": " good"}], "rows")
    encoder = TextEncoder(tokenizer(eos_token="[bos]"), CompletionFormat(), 8)
    batch = text_batch(pack_marked(texts, encoder))
    learned = [word if trained else word.upper() for word, trained in marked_words(batch)]
    assert learned == ["A", "B", "c", "d", "[bos]", "E", "good", "[bos]"]


def marked_words(batch):
    words = tokenizer().convert_ids_to_tokens(batch.tokens_BT[0].tolist())
    return zip(words, batch.is_trained_BT[0].tolist(), strict=True)


def test_rows_of_questions_alone_change_nothing():
    batch = text_batch(torch.full((2, 5), ~3, dtype=torch.int32))
    score = LanguageModelling().measure(tiny_base().causal, batch)
    assert (score.count_P.tolist(), float(score.minimised_sums)) == ([0], 0.0)


@pytest.mark.parametrize("task", ["lm", "completion"])
def test_rows_of_a_run_are_packed_as_its_task_needs_them(tmp_path, task):
    texts = [{"prompt": "a b", "completion": f" {word}", "text": f"a b {word}"} for word in "cde"] * 4
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    settings = tiny_settings(task=task, max_length=8)
    packed = pack_task(load_task(settings, tokenizer(eos_token="[bos]"), data=str(tmp_path / "rows.jsonl")))
    assert packed.facts["task"] == task
    assert bool((packed.train_ST < 0).any()) is (task == "completion")
    assert next(packed.validation(1)).tokens_BT.min() >= 0
