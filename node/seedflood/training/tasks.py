"""Tasks: rows become prompts, prompts become tokens, and every step of every origin has its batch.

Classification is prompted, as in MeZO (arXiv 2305.17333, appendix D): a template makes a prompt of a row, and the model
answers with the label word whose first token it finds likeliest right after it. "lm" is language modelling of a column.

Which rows a host trains on and which of them a step sees are pure functions of (run seed, shard, origin, step): a
restarted node continues with the batch that it would have had.
"""

import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from seedflood.config import ObjectiveSettings, RunSettings
from seedflood.errors import ConfigError, DataError, ModelError
from seedflood.training import randomness, shards
from seedflood.training.rows import Row, read_folder, read_hub, rows_in_memory
from seedflood.training.scoring import Batch, pad
from seedflood.training.shards import Shard


@dataclass(frozen=True, slots=True)
class TaskFormat:
    """How rows become examples. template None: language modelling of `text_column`, without labels.

    template: the prompt, columns in braces. label_words: in the order of the labels.
    """

    template: str | None
    label_words: tuple[str, ...] = ()
    label_column: str = "label"
    text_column: str = "text"


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A task known by name: where the hub has it, and the formats for the column names under which it is found."""

    hub: str
    configuration: str | None
    validation_split: str
    formats: tuple[TaskFormat, ...]


_YES_NO = ("Yes", "No")
_RTE = '{%s}\nDoes this mean that "{%s}" is true? Yes or No?\n'
BUILT_IN = {
    "sst2": BuiltIn(
        "stanfordnlp/sst2", None, "validation", (TaskFormat("{sentence} . it was", ("terrible", "great")),)
    ),
    "rte": BuiltIn(
        "nyu-mll/glue",
        "rte",
        "validation",
        tuple(TaskFormat(_RTE % pair, _YES_NO) for pair in (("sentence1", "sentence2"), ("premise", "hypothesis"))),
    ),
    "boolq": BuiltIn(
        "google/boolq",
        None,
        "validation",
        tuple(TaskFormat("{passage} {question}?\n", ("No", "Yes"), column) for column in ("answer", "label")),
    ),
    "trec": BuiltIn(
        "CogComp/trec",
        None,
        "test",
        tuple(
            TaskFormat(
                "{text}\nThis question asks for a",
                ("short form", "thing", "description", "person", "place", "number"),
                column,
            )
            for column in ("coarse_label", "label")
        ),
    ),
    "agnews": BuiltIn(
        "fancyzhx/ag_news",
        None,
        "test",
        (TaskFormat("{text}\nThis news is about", ("world", "sports", "business", "technology")),),
    ),
}


@dataclass(frozen=True, slots=True)
class Example:
    """tokens: the prompt, or the text of `lm`. label: its index, -1 without."""

    tokens: tuple[int, ...]
    label: int


class Encoder:
    """Makes examples of rows. Raises DataError for rows and label words that cannot be used."""

    def __init__(self, tokenizer: Any, form: TaskFormat, length_max: int) -> None:
        self.tokenizer = tokenizer
        self.form = form
        self.length_max = min(length_max, tokenizer.model_max_length)
        self.pad_token = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
        self.fields = () if form.template is None else _fields(form.template)
        self.words = self._first_tokens()

    def label(self, row: Row) -> int:
        """The label of a row, after a look at all columns the task needs; -1 for language modelling."""
        for column in self.fields if self.form.template is not None else (self.form.text_column,):
            value = row.columns.get(column)
            if not isinstance(value, str):
                found = ", ".join(sorted(map(str, row.columns)))
                problem = f'no column "{column}"' if column not in row.columns else f'column "{column}" is not text'
                raise row.error(f"{problem} (columns: {found}): correct the row, or the template or column of the run.")
        if self.form.template is None:
            return -1
        return self._label(row)

    def encode(self, rows: Sequence[Row]) -> list[Example]:
        """Tokens and labels; prompts longer than length_max lose their beginning, texts of `lm` their end."""
        if not rows:
            return []
        labels = [self.label(row) for row in rows]
        encoded = self._tokenize([self._text(row) for row in rows])
        examples = [Example(self._cut(tokens), label) for tokens, label in zip(encoded, labels, strict=True)]
        for row, example in zip(rows, examples, strict=True):
            if len(example.tokens) < (2 if self.form.template is None else 1):
                raise row.error("has no text to learn from: remove the row.")
        return examples

    def _text(self, row: Row) -> str:
        if self.form.template is None:
            return str(row.columns[self.form.text_column]).strip()
        values = {field: str(row.columns[field]).strip() for field in self.fields}
        return self.form.template.format_map(values).rstrip(" ")

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        encoded: list[list[int]] = self.tokenizer(texts, add_special_tokens=True, verbose=False)["input_ids"]
        end = self.tokenizer.eos_token_id
        if end is None or self.tokenizer("")["input_ids"][-1:] != [end] or self._starts_with(end, encoded):
            return encoded
        return [tokens[:-1] if tokens[-1:] == [end] else tokens for tokens in encoded]

    def _starts_with(self, token: int, encoded: list[list[int]]) -> bool:
        """Whether the token opens every text (OPT: the same token begins and ends) and so does not end it."""
        return all(tokens[:1] == [token] and tokens[-1:] != [token] for tokens in encoded if len(tokens) > 1)

    def _cut(self, tokens: list[int]) -> tuple[int, ...]:
        excess = len(tokens) - self.length_max
        if excess <= 0:
            return tuple(tokens)
        if self.form.template is None:
            return tuple(tokens[: self.length_max])
        keeps_first = tokens[0] == self.tokenizer.bos_token_id
        return tuple(tokens[:1] + tokens[excess + 1 :] if keeps_first else tokens[excess:])

    def _label(self, row: Row) -> int:
        value = row.columns.get(self.form.label_column)
        words = self.form.label_words
        if isinstance(value, str) and value in words:
            return words.index(value)
        if isinstance(value, int) and 0 <= int(value) < len(words):
            return int(value)
        if self.form.label_column not in row.columns:
            raise row.error(f'no column "{self.form.label_column}": correct the row, or label_column of the run.')
        raise row.error(
            f'label {value!r} in column "{self.form.label_column}" is unknown: it must be 0 to {len(words) - 1} or one '
            f"of {', '.join(words)}."
        )

    def _first_tokens(self) -> tuple[int, ...]:
        """The token with which each label word begins when it follows the prompt."""
        if self.form.template is None:
            return ()
        if len(self.form.label_words) < 2:
            raise DataError("A prompted task needs two label words at least: set label_words.")
        prompt = self.form.template.format_map(dict.fromkeys(self.fields, "x")).rstrip(" ")
        gap = "" if prompt.endswith("\n") else " "
        start = self.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        first: dict[int, str] = {}
        for word in self.form.label_words:
            whole = self.tokenizer(prompt + gap + word, add_special_tokens=False)["input_ids"]
            if whole[: len(start)] != start or len(whole) == len(start):
                whole, start_length = self.tokenizer(gap + word, add_special_tokens=False)["input_ids"], 0
            else:
                start_length = len(start)
            token = whole[start_length]
            if token in first:
                raise DataError(
                    f'Label words "{first[token]}" and "{word}" begin with the same token of this model: choose words '
                    "that differ in their first token."
                )
            first[token] = word
        return tuple(first)


class Task:
    """Training rows of one host, validation rows of the run, and the batch of every step.

    train and validation: rows. shard: the share of the run's training rows that is this host's. Rows are checked here,
    all of them, and made tokens when they are first needed. Raises DataError.
    """

    def __init__(
        self, encoder: Encoder, train: Sequence[Row], validation: Sequence[Row], settings: RunSettings, shard: Shard
    ) -> None:
        self.encoder = encoder
        self.run_seed = settings.seed
        self.batch_size = settings.batch_size
        labels = [encoder.label(row) for row in train]
        for row in validation:
            encoder.label(row)
        chosen = shards.choose_rows(len(train), settings.train_examples, settings.seed)
        if len(chosen) < shard.count:
            raise DataError(f"{len(chosen)} training rows cannot be split into {shard.count} shards: use fewer shards.")
        shares = shards.split_rows([labels[row] for row in chosen], shard.count, settings.seed, settings.label_skew)
        self.row_indices: tuple[int, ...] = tuple(chosen[position] for position in shares[shard.index])
        self._train = [train[row] for row in self.row_indices]
        self._validation = validation
        self._word_L = torch.tensor(encoder.words, dtype=torch.int64) if encoder.words else None
        self._examples: dict[int, Example] = {}
        self._validation_examples: list[Example] | None = None
        self._permutation = lru_cache(maxsize=64)(self._permute)

    @property
    def validation_examples(self) -> list[Example]:
        if self._validation_examples is None:
            self._validation_examples = self.encoder.encode(self._validation)
        return self._validation_examples

    def positions(self, origin: int, step: int) -> list[int]:
        """Which of the shard's rows a step of an origin sees: a walk through permutations, one after the other."""
        rows = len(self._train)
        places = range(step * self.batch_size, (step + 1) * self.batch_size)
        return [self._permutation(origin, place // rows)[place % rows] for place in places]

    def batch(self, origin: int, step: int) -> Batch:
        """The batch of an origin at a step, pure in (run seed, shard, origin, step)."""
        positions = self.positions(origin, step)
        missing = sorted(set(positions).difference(self._examples))
        encoded = self.encoder.encode([self._train[position] for position in missing])
        self._examples.update(zip(missing, encoded, strict=True))
        return self.collate([self._examples[position] for position in positions])

    def collate(self, examples: Sequence[Example]) -> Batch:
        """A batch of examples, padded to the longest."""
        tokens_BT, lengths_B = pad([example.tokens for example in examples], self.encoder.pad_token)
        if self._word_L is None:
            return Batch(tokens_BT, lengths_B)
        label_B = torch.tensor([example.label for example in examples], dtype=torch.int64)
        return Batch(tokens_BT, lengths_B, label_B, self._word_L)

    def _permute(self, origin: int, number: int) -> list[int]:
        key = randomness.derive_key("batches", self.run_seed, origin, number)
        order: list[int] = randomness.permutation(key, len(self._train)).tolist()
        return order


def load_task(settings: RunSettings, tokenizer: Any, *, data: str | None = None, shard: str | None = None) -> Task:
    """The task of a run. data: a folder with train.jsonl and validation.jsonl, or a data set of the hub (None: the
    task's usual one). shard: "2/16". Raises DataError or ConfigError.
    """
    built_in = BUILT_IN.get(settings.objective.task)
    if data is not None and Path(data).is_dir():
        train, validation = read_folder(Path(data))
    elif built_in is not None and data in (None, built_in.hub):
        train, validation = read_hub(built_in.hub, built_in.configuration, built_in.validation_split)
    elif data is not None:
        train, validation = read_hub(data, None, "validation")
    else:
        raise DataError(
            f'Task "{settings.objective.task}" needs data: set `data` to a folder or the name of a data set.'
        )
    form = choose_format(settings.objective, train[0].columns)
    return Task(_encoder(settings.objective, tokenizer, form), train, validation, settings, _shard(shard))


def make_task(
    settings: RunSettings,
    tokenizer: Any,
    form: TaskFormat,
    train: Iterable[Mapping[str, Any]],
    validation: Iterable[Mapping[str, Any]],
    *,
    shard: str | None = None,
) -> Task:
    """A task of rows in memory. Raises DataError or ConfigError."""
    rows = rows_in_memory(train, "training rows"), rows_in_memory(validation, "validation rows")
    return Task(_encoder(settings.objective, tokenizer, form), rows[0], rows[1], settings, _shard(shard))


def choose_format(settings: ObjectiveSettings, columns: Mapping[str, Any]) -> TaskFormat:
    """The format of a run's task for data with these columns; settings override what a built-in task says."""
    if settings.task == "lm":
        return TaskFormat(None, text_column=settings.text_column or "text")
    built_in = BUILT_IN.get(settings.task)
    if built_in is None and (settings.template is None or settings.label_words is None):
        known = ", ".join((*BUILT_IN, "lm", "embedded"))
        raise ConfigError(
            f'task = "{settings.task}" needs template and label_words, unless it is one of {known}: set both in '
            "[run.objective]."
        )
    if built_in is None or settings.template is not None:
        words = settings.label_words or (built_in.formats[0].label_words if built_in else ())
        return TaskFormat(settings.template, words, settings.label_column or "label")
    fits = [
        form
        for form in built_in.formats
        if form.template is not None and columns.keys() >= {*_fields(form.template), form.label_column}
    ]
    form = fits[0] if fits else built_in.formats[0]
    words, column = settings.label_words or form.label_words, settings.label_column or form.label_column
    return TaskFormat(form.template, words, column)


def _encoder(settings: ObjectiveSettings, tokenizer: Any, form: TaskFormat) -> Encoder:
    if tokenizer is None:
        raise ModelError("The model has no tokenizer: add tokenizer.json to its folder.")
    return Encoder(tokenizer, form, settings.max_length)


def _shard(shard: str | None) -> Shard:
    return Shard() if shard is None else shards.parse_shard(shard)


def _fields(template: str) -> tuple[str, ...]:
    """Names of the columns in a template. Raises ConfigError for what is no plain {column}."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ConfigError(f"template {template!r} is broken ({error}): write columns as {{column}}.") from error
    fields = [part[1] for part in parts if part[1] is not None]
    if not fields or any(not field.isidentifier() for field in fields) or any(part[2] or part[3] for part in parts):
        raise ConfigError(f"template {template!r} must name columns as {{column}}, at least one and nothing else.")
    return tuple(dict.fromkeys(fields))
