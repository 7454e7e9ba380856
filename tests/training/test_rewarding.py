"""Prompts that are to be answered: by a template, or as a chat in which the assistant speaks next."""

from pathlib import Path

import pytest
from marked_texts import tokenizer_of
from reference import make_task, tiny_base, tiny_settings, tiny_tokenizer

from seedflood.config import NodeSettings, RunSettings, read_objective
from seedflood.errors import ConfigError, DataError, ModelError
from seedflood.training.evaluation import evaluate
from seedflood.training.formats import choose_format
from seedflood.training.generation import SAMPLES, write_samples
from seedflood.training.loading import load_rows
from seedflood.training.rewarding import RewardEncoder
from seedflood.training.rows import rows_in_memory

TEMPLATE = (Path(__file__).parent / "chat_templates" / "qwen3.jinja").read_text()
ASKED = [{"role": "user", "content": "a b"}]


def form_of(**said):
    return choose_format(read_objective({"task": "reward", **said}), {})


def encoded(row, tokenizer=None, length_max=32, **said):
    encoder = RewardEncoder(tokenizer or tiny_tokenizer(), form_of(**{"max_new_tokens": 4, **said}), length_max)
    return encoder.encode(rows_in_memory([row], "rows"))[0]


def test_a_prompt_stands_as_the_template_writes_it_and_the_answer_is_for_the_score_alone():
    row = {"question": "a b", "hint": "c", "right": 12}
    example = encoded(row, template="{question} {hint} ", label_column="right")
    assert example.source.text == "a b c "
    assert example.tokens == (2, 3, 4)
    assert example.source.columns == {**row, "answer": 12}


def test_a_prompt_that_leaves_no_room_for_a_text_loses_its_beginning():
    example = encoded({"prompt": "a b c d e good bad film", "answer": "x"}, length_max=9)
    assert example.is_cut
    assert example.tokens == tuple(tiny_tokenizer()("d e good bad film")["input_ids"])


def test_a_model_without_room_for_any_prompt_is_refused():
    with pytest.raises(ModelError, match="max_new_tokens = 40"):
        encoded({"prompt": "a", "answer": "x"}, max_new_tokens=40)


def test_messages_are_written_by_the_template_of_the_model_up_to_where_the_assistant_begins():
    tokenizer = tokenizer_of(TEMPLATE)
    example = encoded({"prompt": ASKED, "answer": "x"}, tokenizer, length_max=512)
    assert example.source.text == tokenizer.apply_chat_template(ASKED, tokenize=False, add_generation_prompt=True)
    assert tokenizer.decode(example.tokens) == example.source.text


def test_messages_need_a_model_that_was_made_for_chats():
    with pytest.raises(ModelError, match="no chat template"):
        encoded({"prompt": ASKED, "answer": "x"})


@pytest.mark.parametrize("prompt", ["", " \n", []])
def test_a_prompt_without_text_is_refused_by_line_whatever_the_template_adds(prompt):
    with pytest.raises(DataError, match="line 1: the prompt is empty"):
        encoded(
            {"prompt": prompt, "answer": "x"},
            tokenizer_of(TEMPLATE),
            template="{prompt}" if prompt == [] else "{prompt}\n",
        )


def test_a_chat_in_which_the_assistant_has_spoken_already_is_refused_with_what_to_do():
    said = [*ASKED, {"role": "assistant", "content": "c"}]
    with pytest.raises(DataError, match=r'line 1: the last message is the assistant.s.*column "right"'):
        encoded({"prompt": said, "right": "c"}, tokenizer_of(TEMPLATE), label_column="right")


def test_messages_may_be_spelled_as_chats_that_are_learned_are():
    asked = [{"from": "human", "value": "a b"}]
    known = encoded({"prompt": ASKED, "answer": "x"}, tokenizer_of(TEMPLATE), length_max=512)
    assert encoded({"prompt": asked, "answer": "x"}, tokenizer_of(TEMPLATE), length_max=512).tokens == known.tokens


@pytest.mark.parametrize("row", [{"prompt": "a"}, {"answer": "b"}, {"prompt": True, "answer": "b"}])
def test_rows_without_a_prompt_or_what_the_score_needs_are_refused(row):
    with pytest.raises(DataError, match="line 1"):
        encoded(row)


def test_a_score_in_a_file_runs_only_where_the_host_allows_it(tmp_path):
    (tmp_path / "mine.py").write_text("def score(prompt, completion, row):\n    return 0.5\n")
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    run = RunSettings.of(task="reward", score=f"{tmp_path}/mine.py:score")
    with pytest.raises(ConfigError, match="allow_code = true"):
        load_rows(run, NodeSettings(data=str(tmp_path / "rows.jsonl")), tiny_base())


@pytest.mark.parametrize(("rows", "texts"), [(16, 128), (150, 150)])
def test_an_evaluation_says_of_how_many_texts_it_is_whatever_the_batches(rows, texts):
    base, settings = tiny_base("llama"), tiny_settings(task="reward", max_new_tokens=1)
    data = [{"prompt": "a film was", "answer": "good", "n": number} for number in range(rows)]
    task = make_task(settings, base.tokenizer, form_of(max_new_tokens=1), data, data)
    found = evaluate(base.causal, task, tokens_per_batch_max=30)
    assert found.counts() == {"rows": rows, "texts": texts}
    assert found.loss == pytest.approx(1 - found.figures["reward"])


def test_samples_show_what_a_text_is_worth():
    base, row = tiny_base("llama"), {"prompt": "a film was", "answer": "good"}
    settings = tiny_settings(task="reward", max_new_tokens=2)
    form = form_of(score="length:1", max_new_tokens=2)
    samples = write_samples(base, make_task(settings, base.tokenizer, form, [row] * 5, [row] * 5))
    assert len(samples) == SAMPLES
    assert all(sample.prompt == "a film was" and sample.wanted == "good" for sample in samples)
    assert all(sample.written.endswith("[reward 0]") for sample in samples)
