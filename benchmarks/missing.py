"""A classification task with six labels, made of unlabelled film reviews: which word was taken out of the sentence?

Sentences in which exactly one of six nouns occurs once; "it" stands in its place, and the model names the noun. The
labels are true by construction, equally many of each, and rows for validation come from reviews of their own.
"""

import gzip
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

WORDS = ("acting", "story", "music", "director", "ending", "characters")
TEMPLATE = "{text} . it is the"

TRAIN_REVIEWS = 10_000
"""The first so many; the others are for validation."""

LENGTHS = range(5, 41)
"""Words of a sentence: fewer say too little, and longer ones cost time."""

TRAIN_ROWS, VALIDATION_ROWS = 4_092, 798


def write_task(reviews: Path, folder: Path) -> None:
    """Writes train.jsonl and validation.jsonl; always the same rows. reviews: gzipped JSON lines with a text each."""
    with gzip.open(reviews, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "train.jsonl", _balanced(texts[:TRAIN_REVIEWS], TRAIN_ROWS))
    _write(folder / "validation.jsonl", _balanced(texts[TRAIN_REVIEWS:], VALIDATION_ROWS))


def rows_of(text: str) -> Iterator[tuple[str, int]]:
    """The sentences of a review that can be asked about, with their labels."""
    for sentence in text.replace(" ! ", " . ").replace(" ? ", " . ").split(" . "):
        words = sentence.split()
        places = [place for place, word in enumerate(words) if word in WORDS]
        if len(places) == 1 and len(words) in LENGTHS:
            place = places[0]
            yield " ".join([*words[:place], "it", *words[place + 1 :]]), WORDS.index(words[place])


def _balanced(texts: Sequence[str], count: int) -> list[tuple[str, int]]:
    """`count` rows, as many of each label, in an order of their own."""
    by_label: list[list[tuple[str, int]]] = [[] for _ in WORDS]
    for text in texts:
        for row in rows_of(text):
            by_label[row[1]].append(row)
    rng = random.Random(1)
    chosen = [row for rows in by_label for row in rng.sample(rows, count // len(WORDS))]
    rng.shuffle(chosen)
    return chosen


def _write(path: Path, rows: Iterable[tuple[str, int]]) -> None:
    path.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
