"""Tasks: which rows a host trains on, and the batch of every step.

Both are pure functions of (run seed, shard, origin, step), so a restarted node goes on with the batch that it would
have had. A row of a file becomes what a model learns in four steps, each in a module of its own:

- `files`, `tables` and `sources` read it (`Row`, with file and line).
- `formats`, and `chat` for chats, write it as text and say which characters are learned (`Rendered`).
- `encoding` makes tokens of that (`Example`).
- `objectives` pads several of them (`Batch`), and say what is measured on these (`Score`).
"""

import copy
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

from seedflood import embedded
from seedflood.config import EMBEDDED, ObjectiveSettings, RunSettings
from seedflood.errors import DataError, ModelError
from seedflood.training.chat import ChatEncoder
from seedflood.training.encoding import MARKS, Encoder, PromptEncoder, TextEncoder
from seedflood.training.formats import (
    BUILT_IN,
    ChatFormat,
    CompletionFormat,
    Format,
    PromptFormat,
    RewardFormat,
    TextFormat,
    choose_format,
)
from seedflood.training.messages import row_marks
from seedflood.training.objectives.batches import Batch
from seedflood.training.objectives.example import Example
from seedflood.training.objectives.objective import Objective
from seedflood.training.rewarding import RewardEncoder
from seedflood.training.rows import Splits, names_of, without_copies
from seedflood.training.shards import Shard, Walk, choose_rows, parse_shard
from seedflood.training.sources import read_data, read_embedded

ENCODERS: dict[type[Format], Callable[[Any, Any, int], Encoder]] = {
    PromptFormat: PromptEncoder,
    TextFormat: TextEncoder,
    CompletionFormat: TextEncoder,
    ChatFormat: ChatEncoder,
    RewardFormat: RewardEncoder,
}
"""By kind of format: (tokenizer, format, length_max) -> encoder. Raises DataError or ConfigError."""

LOOKED_AT = 1024
"""Of so many training rows a host says how many tokens they have; they are among the first that it trains on."""

NOTHING_TO_LEARN = "no text, or a mark that they are not learned"

SAMPLE_CHARACTERS = 160
"""Of a row that is shown to people, before and behind the place where learning begins."""


class Task:
    """The training rows of one host, the validation rows of the run, and the batch of every step.

    train_rows: of the shard, which is this host's share of the run's training rows. copies: see `Splits`. All rows are
    checked here, and become tokens when they are first needed. Raises DataError or ModelError.
    """

    def __init__(self, encoder: Encoder, splits: Splits, settings: RunSettings, shard: Shard) -> None:
        self.encoder = encoder
        self.name = settings.objective.task
        self.run_seed = settings.seed
        self.batch_size = settings.batch_size
        train = encoder.checked_rows(splits.train)
        validation = encoder.checked_rows(splits.validation)
        self._left_out = len(splits.train.rows) - len(train)
        if not train:
            raise DataError(f"All rows to train have {NOTHING_TO_LEARN}: add others.")
        if not validation:
            first = splits.validation.rows[0]
            raise first.error(f"{NOTHING_TO_LEARN}, as in all rows to evaluate on: remove the row, or add others.")
        self.copies = splits.copies
        if splits.copies is not None:
            kept = without_copies(train, validation, encoder.reads)
            self.copies = splits.copies + len(train) - len(kept)
            train = kept
        self.validation_rows = validation
        self._rows_found = len(train)
        self._of_run = [train[row] for row in choose_rows(len(train), settings.train_examples, settings.seed)]
        """The training rows of all hosts, in the order of the run."""
        self._take(shard)

    def _take(self, shard: Shard) -> None:
        """Makes this the task of a host that has this share of the rows."""
        count = len(self._of_run)
        if count < shard.count:
            problem = f"the rows to train ({count}) cannot be shared by {shard.count} nodes"
            raise DataError(f"{problem}: use fewer, and say how many in [node] shard.")
        self.shard = shard
        self.train_rows = self._of_run[shard.index :: shard.count]
        self._rows_of_run = count
        self._examples: dict[int, Example] = {}
        """Of the rows that were needed so far, by their places in the shard."""
        self._walk = Walk(self.run_seed, len(self.train_rows))

    @property
    def objective(self) -> Objective:
        """What is measured on the task's batches."""
        return self.encoder.objective

    @cached_property
    def validation_examples(self) -> list[Example]:
        """The validation rows of the run as tokens, made when first asked for. Raises DataError for a row without
        text."""
        return self.encoder.encode(self.validation_rows)

    def validation(self, tokens_max: int) -> Iterator[Batch]:
        """The validation rows in batches of similar length, of at most so many tokens or of one row. Raises
        DataError."""
        examples = sorted(self.validation_examples, key=lambda example: len(example.tokens))
        start = 0
        while start < len(examples):
            end = start + 1
            while end < len(examples) and (end + 1 - start) * len(examples[end].tokens) <= tokens_max:
                end += 1
            yield self.encoder.collate(examples[start:end])
            start = end

    def digest(self) -> bytes:
        """32 bytes over the training rows of all hosts, in the order of the run."""
        hasher = hashlib.sha256(b"seedflood rows 1\0")
        for row in self._of_run:
            hasher.update(row.spelled() + b"\n")
        return hasher.digest()

    def of_shard(self, shard: Shard) -> "Task":
        """The task of a host that has another share of the same rows."""
        assert self._of_run, "the rows of others were dropped"
        other = copy.copy(self)
        other._take(shard)
        return other

    def drop_others(self) -> None:
        """Forgets the rows of others, which take memory: no `digest` and no `of_shard` after this."""
        self._of_run = []

    def positions(self, origin: int, step: int) -> list[int]:
        """Which rows of the shard an origin uses at a step."""
        return self._walk.rows_at(origin, range(step * self.batch_size, (step + 1) * self.batch_size))

    def batch(self, origin: int, step: int) -> Batch:
        """The batch of an origin at a step, pure in (run seed, shard, origin, step)."""
        return self.encoder.collate(self._encoded(self.positions(origin, step)))

    def describe(self) -> dict[str, Any]:
        """What was understood of the rows, for people to check before anything is trained. Raises DataError."""
        looked_at = range(min(LOOKED_AT, len(self.train_rows)))
        examples = self._encoded(looked_at)
        here, besides = names_of(self.train_rows), self.encoder.besides
        marks = {name for row in self.train_rows for name in row_marks(row)}
        tokens = [token for example in examples for token in example.tokens]
        columns = [name for name in self.encoder.reads if name in here or name not in besides]
        return {
            "task": self.name,
            "rows": self._rows_of_run,
            "rows_found": self._rows_found,
            "rows_here": len(self.train_rows),
            "validation_rows": len(self.validation_rows),
            "held_out": self.copies is not None,
            "copies": self.copies or 0,
            "columns": columns,
            "unused": [str(name) for name in here if name not in columns and name not in marks],
            "looked_at": len(examples),
            "tokens_per_row": round(len(tokens) / len(examples), 1),
            "unknown": round(sum(token == self.encoder.unknown_token for token in tokens) / max(1, len(tokens)), 3),
            "cut": sum(example.is_cut for example in examples),
            "remarks": [*self.encoder.remarks(self.train_rows), *self._remarks(examples)],
            "sample": _shortened(self.encoder.show(examples[0])),
        }

    def _remarks(self, examples: Sequence[Example]) -> list[str]:
        """What people should know of the rows besides, each with how many of them it is true of."""
        counts = Counter(remark for example in examples for remark in example.source.remarks)
        remarks = [remark.format(f"{count:,} of {len(examples):,}") for remark, count in sorted(counts.items())]
        if self._left_out:
            remarks.append(f"rows left out, as blank or marked not to be learned: {self._left_out:,}")
        return [self.encoder.endless_remark, *remarks] if self.encoder.is_endless else remarks

    def _encoded(self, positions: Sequence[int]) -> list[Example]:
        missing = sorted(set(positions).difference(self._examples))
        encoded = self.encoder.encode([self.train_rows[position] for position in missing])
        self._examples.update(zip(missing, encoded, strict=True))
        return [self._examples[position] for position in positions]


def load_task(
    settings: RunSettings,
    tokenizer: Any,
    *,
    data: str | None = None,
    shard: str | None = None,
    vocabulary_size: float = math.inf,
) -> Task:
    """The task of a run. data: as `read_data` takes it, or "embedded" (None: the task's usual one). shard: "2/16".
    vocabulary_size: how many tokens the model knows.

    Raises DataError or ConfigError.
    """
    splits = read_rows(settings.objective, data)
    return task_of_rows(settings, tokenizer, splits, parse_shard(shard), vocabulary_size)


def task_of_rows(
    settings: RunSettings, tokenizer: Any, splits: Splits, shard: Shard, vocabulary_size: float = math.inf
) -> Task:
    """The task of a run on rows that were read. Raises DataError or ConfigError."""
    form = choose_format(settings.objective, names_of(splits.train.rows))
    return Task(make_encoder(settings.objective, tokenizer, form, vocabulary_size), splits, settings, shard)


def read_rows(settings: ObjectiveSettings, data: str | None) -> Splits:
    """Training and validation rows of a task. data: see `load_task`. Raises DataError."""
    built_in = BUILT_IN.get(settings.task)
    if built_in is not None and data in (None, built_in.data):
        return built_in.read()
    if data is None:
        raise DataError(f'Task "{settings.task}" needs data: set `data` to a file, a folder or the name of a data set.')
    return read_embedded(embedded.texts) if data == EMBEDDED else read_data(data)


def make_encoder(
    settings: ObjectiveSettings, tokenizer: Any, form: Format, vocabulary_size: float = math.inf
) -> Encoder:
    """Raises DataError or ConfigError."""
    if tokenizer is None:
        raise ModelError("The model has no tokenizer: add tokenizer.json to its folder.")
    encoder = ENCODERS[type(form)](tokenizer, form, settings.max_length)
    encoder.vocabulary_size = vocabulary_size
    return encoder


def _shortened(text: str) -> str:
    """The part of a text around the place where learning begins."""
    place = max(0, text.find(MARKS[0]))
    start, end = max(0, place - SAMPLE_CHARACTERS), place + SAMPLE_CHARACTERS
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
