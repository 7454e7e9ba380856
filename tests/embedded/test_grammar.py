import hashlib
import json
import subprocess
import sys
from itertools import islice

import pytest

from seedflood import embedded
from seedflood.embedded import grammar

PINNED = {
    "train": "01f63b77d4475c5b9cc814749c5d0440befafc8f507198b253956ce3d5f42ed3",
    "validation": "84dad60ca92198e1d3950342e94667165a766751e34406e72c9c3c739aaacf6d",
}
"""Runs on the embedded task are comparable as long as these do not change."""


def sentences(split):
    return [row["sentence"] for row in embedded.rows(split)]


@pytest.mark.parametrize("split", embedded.SPLITS)
def test_rows_never_change(split):
    assert hashlib.sha256(json.dumps(embedded.rows(split)).encode()).hexdigest() == PINNED[split]


def test_rows_are_many_enough():
    assert [len(embedded.rows(split)) for split in embedded.SPLITS] == [2048, 512]


@pytest.mark.parametrize("split", embedded.SPLITS)
def test_half_of_the_rows_are_good(split):
    labels = [row["label"] for row in embedded.rows(split)]
    assert set(labels) == {0, 1}
    assert 2 * sum(labels) == len(labels)


def test_no_sentence_occurs_twice():
    every = sentences("train") + sentences("validation")
    assert len(set(every)) == len(every)


def test_rows_given_out_are_copies():
    embedded.rows("train")[0]["label"] = 7
    assert embedded.rows("train")[0]["label"] != 7


@pytest.mark.parametrize("split", embedded.SPLITS)
def test_every_sentence_is_about_one_place(split):
    aspects = [word for subject in grammar.SUBJECTS for word in subject.aspects]
    assert len(set(aspects)) == len(aspects)
    for row in embedded.places(split):
        others = [one for k, one in enumerate(grammar.SUBJECTS) if k != row["label"]]
        assert not set(row["sentence"].split()) & {word for one in others for word in one.aspects}
    assert {row["label"] for row in embedded.places(split)} == {0, 1, 2, 3}


def test_no_word_alone_tells_the_label():
    """The best rule of the kind "this word is in it" errs often: the task takes more than spotting a word."""
    rows = embedded.rows("train")
    best = 0.0
    for word in {word for row in rows for word in row["sentence"].split()}:
        right = sum((word in row["sentence"].split()) == bool(row["label"]) for row in rows) / len(rows)
        best = max(best, right, 1 - right)
    assert best < 0.6


def test_label_words_of_the_task_tell_nothing():
    rows = embedded.rows("train")
    for word in embedded.LABEL_WORDS:
        labels = [row["label"] for row in rows if word in row["sentence"].split()]
        assert 0.35 < sum(labels) / len(labels) < 0.65


def test_text_for_pretraining_never_continues_the_prompt_of_the_task():
    prompt = grammar.TASK_TEMPLATE.removeprefix("{sentence}")
    assert not any(prompt in text for text in islice(grammar.texts(5), 5000))


def test_text_for_pretraining_leaves_out_what_is_held_out():
    end = grammar.VERDICTS[0].template.removeprefix("{sentence}")
    held_out = {text.split(end)[0] for text in islice(grammar.texts(6), 300) if end in text}
    assert held_out
    assert not any(text.split(end)[0] in held_out for text in islice(grammar.texts(6, held_out), 300))


def test_grammar_needs_no_torch():
    program = "import sys, seedflood.embedded as e; e.rows('train'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_texts_that_come_with_the_package_have_no_sentence_of_the_task():
    texts = {split: [row["text"] for row in embedded.texts(split)] for split in embedded.SPLITS}
    sentences = {row["sentence"] for split in embedded.SPLITS for row in embedded.rows(split)}
    verdicts = {verdict.template.partition("}")[2].split("{")[0] for verdict in grammar.VERDICTS}
    assert len(texts["train"]) > 10_000
    assert not sentences & {text for rows in texts.values() for text in rows}
    bare = {text.split(ending)[0] for rows in texts.values() for text in rows for ending in verdicts if ending in text}
    assert not sentences & bare
    assert embedded.texts("validation") == embedded.texts("validation")
