"""Rows become examples: a prompt with its label, or a text, in the tokens of a model."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from seedflood.errors import DataError
from seedflood.training.formats import Format, PromptFormat, TextFormat, fields_of
from seedflood.training.objectives.batches import Batch
from seedflood.training.objectives.classification import Classification
from seedflood.training.objectives.language_modelling import LanguageModelling
from seedflood.training.objectives.objective import Example, Objective
from seedflood.training.rows import Row


class Encoder(ABC):
    """Makes examples of rows. Raises DataError for rows and label words that cannot be used.

    template: the text, columns in braces. columns: those that a row must have. objective: what is measured on the
    examples.
    """

    objective: Objective
    tokens_min = 1
    """A row with fewer tokens teaches nothing."""

    def __init__(self, tokenizer: Any, template: str, length_max: int) -> None:
        self.template = template
        self.columns = fields_of(template)
        self.tokenizer = tokenizer
        self.length_max = min(length_max, tokenizer.model_max_length)
        self.pad_token = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0

    def label(self, row: Row) -> int:
        """The label of a row; -1 in a task without labels. Raises DataError if a column that the task needs is missing
        or is not text."""
        for column in self.columns:
            value = row.columns.get(column)
            if not isinstance(value, str):
                found = ", ".join(sorted(map(str, row.columns)))
                problem = f'no column "{column}"' if column not in row.columns else f'column "{column}" is not text'
                raise row.error(f"{problem} (columns: {found}): correct the row, or the template of the run.")
        return self._label(row)

    def text(self, row: Row) -> str:
        """The template with the columns of a row in it."""
        values = {column: str(row.columns[column]).strip() for column in self.columns}
        return self.template.format_map(values).rstrip(" ")

    def encode(self, rows: Sequence[Row]) -> list[Example]:
        """Tokens and labels; prompts longer than length_max lose their beginning, texts their end."""
        if not rows:
            return []
        for row in rows:
            self.label(row)
        encoded = self._tokenize([self.text(row) for row in rows])
        examples = [self._example(self._cut(tokens), row) for tokens, row in zip(encoded, rows, strict=True)]
        for row, example in zip(rows, examples, strict=True):
            if len(example.tokens) < self.tokens_min:
                raise row.error("has no text to learn from: remove the row.")
        return examples

    def collate(self, examples: Sequence[Example]) -> Batch:
        """A batch of examples, padded to the longest."""
        return self.objective.collate(examples, self.pad_token)

    @abstractmethod
    def _label(self, row: Row) -> int: ...

    @abstractmethod
    def _shorten(self, tokens: list[int]) -> list[int]:
        """Cuts more than length_max tokens down to that many."""

    def _example(self, tokens: tuple[int, ...], row: Row) -> Example:
        """An objective that needs more than tokens and a label makes its own kind of example here."""
        return Example(tokens, self._label(row))

    def _cut(self, tokens: list[int]) -> tuple[int, ...]:
        return tuple(tokens if len(tokens) <= self.length_max else self._shorten(tokens))

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        encoded: list[list[int]] = self.tokenizer(texts, add_special_tokens=True, verbose=False)["input_ids"]
        end = self.tokenizer.eos_token_id
        if end is None or self.tokenizer("")["input_ids"][-1:] != [end] or self._starts_with(end, encoded):
            return encoded
        return [tokens[:-1] if tokens[-1:] == [end] else tokens for tokens in encoded]

    def _starts_with(self, token: int, encoded: list[list[int]]) -> bool:
        """Does this token begin every text and end none? In OPT one token stands for both ends."""
        return all(tokens[:1] == [token] and tokens[-1:] != [token] for tokens in encoded if len(tokens) > 1)


class PromptEncoder(Encoder):
    """Prompts with labels, for classification."""

    def __init__(self, tokenizer: Any, form: PromptFormat, length_max: int) -> None:
        super().__init__(tokenizer, form.template, length_max)
        self.form = form
        self.objective = Classification(self._first_tokens())

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

    def _shorten(self, tokens: list[int]) -> list[int]:
        excess = len(tokens) - self.length_max
        keeps_first = tokens[0] == self.tokenizer.bos_token_id
        return tokens[:1] + tokens[excess + 1 :] if keeps_first else tokens[excess:]

    def _first_tokens(self) -> tuple[int, ...]:
        """The first token of each label word when the word follows the prompt. Raises DataError if two of them are
        equal."""
        if len(self.form.label_words) < 2:
            raise DataError("A prompted task needs at least two label words: set label_words.")
        prompt = self.template.format_map(dict.fromkeys(self.columns, "x")).rstrip(" ")
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


class TextEncoder(Encoder):
    """Texts, for language modelling."""

    tokens_min = 2

    def __init__(self, tokenizer: Any, form: TextFormat, length_max: int) -> None:
        super().__init__(tokenizer, form.template, length_max)
        self.objective = LanguageModelling()

    def _label(self, row: Row) -> int:
        return -1

    def _shorten(self, tokens: list[int]) -> list[int]:
        return tokens[: self.length_max]


ENCODERS: dict[type[Format], Callable[[Any, Any, int], Encoder]] = {
    PromptFormat: PromptEncoder,
    TextFormat: TextEncoder,
}
"""By kind of format: (tokenizer, format, length_max) -> encoder. Raises DataError or ConfigError."""


def make_encoder(tokenizer: Any, form: Format, length_max: int) -> Encoder:
    """The encoder of a format. Raises DataError or ConfigError."""
    return ENCODERS[type(form)](tokenizer, form, length_max)
