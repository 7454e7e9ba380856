"""The model and the task that come with the package, so that a first run needs no network.

The task is a generated language of short reviews (`grammar`). The model is a tiny OPT that was pre-trained on it
(`tools/pretrain_embedded.py`). There is no torch here: these are plain values, from which the caller makes a task and a
model.
"""

from functools import cache
from itertools import islice
from pathlib import Path
from typing import Literal

from seedflood.embedded import grammar

MODEL_FOLDER = Path(__file__).parent / "model"
"""A model in Hugging Face format."""

TEMPLATE = grammar.TASK_TEMPLATE
LABEL_WORDS = grammar.LABEL_WORDS
"""In the order of the labels."""

PLACES_TEMPLATE = "{sentence} ."
PLACES = tuple(subject.place for subject in grammar.SUBJECTS)
"""In the order of the labels of `places`."""

Split = Literal["train", "validation"]
TEXTS: dict[Split, tuple[int, int]] = {"train": (11, 30_000), "validation": (12, 300)}
"""A seed for the texts of each split, and how many."""

SPLITS: tuple[Split, Split] = ("train", "validation")


def rows(split: Split) -> list[dict[str, str | int]]:
    """Rows of {"sentence", "label"}, always the same ones. Half of them are good; no sentence is in both splits."""
    return [dict(row) for row in _rows()[SPLITS.index(split)]]


def places(split: Split) -> list[dict[str, str | int]]:
    """The same sentences, each with the place that it is about: an easier task, which a model learns soon."""
    return [{"sentence": row["sentence"], "label": grammar.place_of(str(row["sentence"]))} for row in rows(split)]


def texts(split: Split) -> list[dict[str, str]]:
    """Rows of {"text"} to pre-train on, always the same ones; no sentence of the task's rows is among them."""
    held_out = {str(row["sentence"]) for rows in _rows() for row in rows}
    seed, count = TEXTS[split]
    return [{"text": text} for text in islice(grammar.texts(seed, held_out), count)]


@cache
def _rows() -> list[list[dict[str, str | int]]]:
    return grammar.rows(grammar.ROWS_SEED, (grammar.TRAIN_ROWS, grammar.VALIDATION_ROWS))
