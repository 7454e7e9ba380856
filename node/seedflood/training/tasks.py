"""Tasks: which rows a host trains on, and the batch of every step.

Both are pure functions of (run seed, shard, origin, step), so a restarted node goes on with the batch that it would
have had. `formats` and `encoding` make examples of rows, `objectives` say what is measured on a batch.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any

from seedflood import embedded
from seedflood.config import EMBEDDED, ObjectiveSettings, RunSettings
from seedflood.errors import DataError, ModelError
from seedflood.training import randomness
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
from seedflood.training.marking import CompletionEncoder
from seedflood.training.messages import row_marks
from seedflood.training.objectives.batches import Batch
from seedflood.training.objectives.objective import Example, Objective
from seedflood.training.rewarding import RewardEncoder
from seedflood.training.rows import Row, Splits, Table, names_of, without_copies
from seedflood.training.shards import Shard, choose_rows, parse_shard
from seedflood.training.sources import read_data, read_embedded

ENCODERS: dict[type[Format], Callable[[Any, Any, int], Encoder]] = {
    PromptFormat: PromptEncoder,
    TextFormat: TextEncoder,
    CompletionFormat: CompletionEncoder,
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
    checked here, blank texts are left out, and the others become tokens when they are first needed. Raises DataError.
    """

    def __init__(
        self,
        encoder: Encoder,
        train: Sequence[Row],
        validation: Sequence[Row],
        settings: RunSettings,
        shard: Shard,
        *,
        copies: int | None = None,
    ) -> None:
        self.encoder = encoder
        self.shard = shard
        self.name = settings.objective.task
        self.copies = copies
        self.run_seed = settings.seed
        self.batch_size = settings.batch_size
        for row in (*train, *validation):
            if not encoder.is_blank(row):
                encoder.check(row)
        self._left_out = sum(map(encoder.is_blank, train))
        blank = next((row for row in validation if encoder.is_blank(row)), None)
        train, validation = ([row for row in rows if not encoder.is_blank(row)] for rows in (train, validation))
        if blank is not None and not validation:
            raise blank.error(f"{NOTHING_TO_LEARN}, as in all rows to evaluate on: remove the row, or add others.")
        if not train:
            raise DataError(f"All rows to train have {NOTHING_TO_LEARN}: add others.")
        chosen = choose_rows(len(train), settings.train_examples, settings.seed)
        if len(chosen) < shard.count:
            problem = f"the rows to train ({len(chosen)}) cannot be shared by {shard.count} nodes"
            raise DataError(f"{problem}: use fewer, and say how many in [node] shard.")
        self.row_indices: tuple[int, ...] = tuple(chosen[shard.index :: shard.count])
        self.train_rows = [train[row] for row in self.row_indices]
        self._of_shard: Callable[[Shard], Task] | None = partial(
            Task, encoder, train, validation, settings, copies=copies
        )
        self._of_run = [train[row] for row in chosen]
        self._rows_of_run, self._rows_found = len(chosen), len(train)
        self.validation_rows = validation
        self._examples: dict[int, Example] = {}
        self._permutation = lru_cache(maxsize=64)(self._permute)

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
        assert self._of_shard is not None, "the rows of others were dropped"
        return self._of_shard(shard)

    def drop_others(self) -> None:
        """Forgets the rows of others, which take memory: no `digest` and no `of_shard` after this."""
        self._of_shard, self._of_run = None, []

    def positions(self, origin: int, step: int) -> list[int]:
        """Which rows of the shard an origin uses at a step: it walks through one permutation of them after the
        other."""
        rows = len(self.train_rows)
        places = range(step * self.batch_size, (step + 1) * self.batch_size)
        return [self._permutation(origin, place // rows)[place % rows] for place in places]

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
        counts = Counter(remark for example in examples for remark in example.remarks)
        told = [remark.format(f"{count:,} of {len(examples):,}") for remark, count in sorted(counts.items())]
        if self._left_out:
            told.append(f"rows left out, as blank or marked not to be learned: {self._left_out:,}")
        return [self.encoder.endless_remark, *told] if self.encoder.is_endless else told

    def _encoded(self, positions: Sequence[int]) -> list[Example]:
        missing = sorted(set(positions).difference(self._examples))
        encoded = self.encoder.encode([self.train_rows[position] for position in missing])
        self._examples.update(zip(missing, encoded, strict=True))
        return [self._examples[position] for position in positions]

    def _permute(self, origin: int, number: int) -> list[int]:
        key = randomness.derive_key("batches", self.run_seed, origin, number)
        order: list[int] = randomness.permutation(key, len(self.train_rows)).tolist()
        return order


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
    form = choose_format(settings.objective, dict.fromkeys(names_of(splits.train.rows)))
    form.check_names(splits.train)
    form.check_names(splits.validation)
    encoder = make_encoder(settings.objective, tokenizer, form, vocabulary_size)
    if splits.copies is not None:
        for row in splits.validation.rows:
            if not encoder.is_blank(row):
                encoder.check(row)  # rows that lack what is read look like copies
        splits = without_copies(splits, encoder.reads, data or settings.objective.task)
    train, validation = splits.train.rows, splits.validation.rows
    return Task(encoder, train, validation, settings, parse_shard(shard), copies=splits.copies)


def task_of_rows(settings: RunSettings, tokenizer: Any, table: Table, vocabulary_size: float) -> Task:
    """A task that has these rows alone, all of them to evaluate on. Raises DataError or ConfigError."""
    rows = table.rows
    form = choose_format(settings.objective, rows[0].columns)
    form.check_names(table)
    return Task(make_encoder(settings.objective, tokenizer, form, vocabulary_size), rows, rows, settings, Shard())


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
