"""Rows become examples: a prompt with its label, or a text, in the tokens of a model."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from seedflood.errors import DataError, ModelError
from seedflood.training.formats import OPTIONAL, Format, PromptFormat, TemplateFormat
from seedflood.training.messages import is_left_out
from seedflood.training.objectives.batches import Batch
from seedflood.training.objectives.classification import Classification
from seedflood.training.objectives.language_modelling import LanguageModelling
from seedflood.training.objectives.objective import Example, Objective
from seedflood.training.rows import Row

MARKS = ("⟦", "⟧")
"""Around what is learned, where people see an example: `text.join(MARKS)`."""


class Encoder(ABC):
    """Makes examples of rows. Raises DataError for rows and label words that cannot be used.

    form: which columns of text a row must have. besides: what else is read if a row has it. label_column: of the label,
    or of what is learned, if that is a column of its own. objective: what is measured on the examples.
    """

    form: Format
    besides: tuple[str, ...] = ()
    label_column: str | None = None
    objective: Objective
    tokens_min = 1
    """A row with fewer tokens teaches nothing."""
    is_endless = False
    """Should a text end with a token that this tokenizer does not have, so that a model never learns to end one?"""
    endless_remark = "the model will not learn to end a text: its tokenizer has no eos_token"
    """What people are told then."""
    vocabulary_size: float = math.inf
    """Tokens from here on are unknown to the model."""

    def __init__(self, tokenizer: Any, form: Format, length_max: int) -> None:
        self.tokenizer, self.form = tokenizer, form
        ends = tokenizer.eos_token_id, tokenizer.bos_token_id, tokenizer.pad_token_id
        self.unknown_token = None if tokenizer.unk_token_id in ends else tokenizer.unk_token_id
        """Stands for what the tokenizer does not know; None: it knows all."""
        self.length_max = min(length_max, tokenizer.model_max_length)
        self.pad_token = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0

    @property
    def reads(self) -> tuple[str, ...]:
        """All columns that are read, `besides` too; that of the label comes last."""
        label = () if self.label_column is None else (self.label_column,)
        return *(name for name in (*self.form.columns, *self.besides) if name not in label), *label

    def check(self, row: Row) -> None:
        """Raises DataError for a row that cannot be learned from, by its columns."""
        self.form.check(row)

    def is_blank(self, row: Row) -> bool:
        """Is a row to be left out, because it has no text or says that it is not learned?"""
        return is_left_out(row, self.reads)

    def remarks(self, rows: Sequence[Row]) -> list[str]:
        """What people should know of these rows before they are learned: each a clause of one sentence."""
        return []

    def encode(self, rows: Sequence[Row]) -> list[Example]:
        """The examples of rows, none longer than length_max. Raises DataError, or ModelError for a token that the model
        does not know."""
        if not rows:
            return []
        for row in rows:
            self.check(row)
        examples = self._examples(rows)
        for row, example in zip(rows, examples, strict=True):
            if len(example.tokens) < self.tokens_min:
                raise row.error("has no text to learn from: remove the row.")
            if (last := max(example.tokens)) >= self.vocabulary_size:
                word = self.tokenizer.convert_ids_to_tokens(last)
                raise ModelError(
                    f"The tokenizer has token {last} ({word}), and the model knows {self.vocabulary_size}: take the "
                    "tokenizer that the model was trained with."
                )
        return examples

    def collate(self, examples: Sequence[Example]) -> Batch:
        """A batch of examples, padded to the longest."""
        return self.objective.collate(examples, self.pad_token if self.pad_token < self.vocabulary_size else 0)

    def show(self, example: Example) -> str:
        """The text of an example for people, with what is learned between MARKS."""
        return str(self.tokenizer.decode(example.tokens)).join(MARKS)

    @abstractmethod
    def _examples(self, rows: Sequence[Row]) -> list[Example]: ...


class PlainEncoder(Encoder):
    """Examples of which each is one text, made by a template."""

    form: TemplateFormat

    def text(self, row: Row) -> str:
        """The template with the columns of a row in it."""
        values = {column: text.strip() for column, text in row.texts(self.form.columns, OPTIONAL).items()}
        return self.form.template.format_map(values).rstrip(" ")

    @abstractmethod
    def _shorten(self, tokens: list[int]) -> list[int]:
        """Cuts more than length_max tokens down to that many."""

    def _examples(self, rows: Sequence[Row]) -> list[Example]:
        encoded = self._tokenize([self.text(row) for row in rows])
        return [self._example(tokens, row) for tokens, row in zip(encoded, rows, strict=True)]

    def _example(self, tokens: list[int], row: Row) -> Example:
        """An objective that needs more than tokens makes its own kind of example here."""
        is_cut = len(tokens) > self.length_max
        return Example(tuple(self._shorten(tokens) if is_cut else tokens), is_cut=is_cut)

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        encoded: list[list[int]] = self.tokenizer(texts, add_special_tokens=True, verbose=False)["input_ids"]
        encoded = [tokens[begins_twice(self.tokenizer, tokens) :] for tokens in encoded]
        end = end_of(self.tokenizer)
        if end is None or self.tokenizer("")["input_ids"][-1:] != [end] or self._starts_with(end, encoded):
            return encoded
        return [tokens[:-1] if tokens[-1:] == [end] else tokens for tokens in encoded]

    def _starts_with(self, token: int, encoded: list[list[int]]) -> bool:
        """Does this token begin every text and end none? In OPT one token stands for both ends."""
        return all(tokens[:1] == [token] and tokens[-1:] != [token] for tokens in encoded if len(tokens) > 1)


def begins_twice(tokenizer: Any, tokens: Sequence[int]) -> bool:
    """Does a text bring the token that the tokenizer puts before every text?"""
    return tokenizer.bos_token_id is not None and [*tokens[:2]] == [tokenizer.bos_token_id] * 2


def end_of(tokenizer: Any) -> int | None:
    """The token with which a tokenizer ends a text, if it ends texts: BERT's, which some models have, has a separator
    alone."""
    end: int | None = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
    return end


class PromptEncoder(PlainEncoder):
    """Prompts with labels, for classification."""

    form: PromptFormat

    def __init__(self, tokenizer: Any, form: PromptFormat, length_max: int) -> None:
        super().__init__(tokenizer, form, length_max)
        self.label_column = form.label_column
        self.objective = Classification(self._first_tokens())

    def show(self, example: Example) -> str:
        prompt = str(self.tokenizer.decode(example.tokens))
        return prompt + self.form.label_words[example.label].join(MARKS)

    def _example(self, tokens: list[int], row: Row) -> Example:
        return replace(super()._example(tokens, row), label=self.form.label(row))

    def _shorten(self, tokens: list[int]) -> list[int]:
        excess = len(tokens) - self.length_max
        keeps_first = tokens[0] == self.tokenizer.bos_token_id
        return tokens[:1] + tokens[excess + 1 :] if keeps_first else tokens[excess:]

    def _first_tokens(self) -> tuple[int, ...]:
        """The first token of each label word when the word follows the prompt. Raises DataError if two of them are
        equal."""
        if len(self.form.label_words) < 2:
            raise DataError("A prompted task needs at least two label words: set label_words.")
        prompt = self.form.template.format_map(dict.fromkeys(self.form.columns, "x")).rstrip(" ")
        gap = "" if prompt.endswith("\n") else " "
        start = self.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        first: dict[int, str] = {}
        for word in self.form.label_words:
            whole = self.tokenizer(prompt + gap + word, add_special_tokens=False)["input_ids"]
            is_apart = whole[: len(start)] == start and len(whole) > len(start)
            own = whole[len(start) :] if is_apart else self.tokenizer(gap + word, add_special_tokens=False)["input_ids"]
            token = own[0]
            if token in first:
                raise DataError(
                    f'Label words "{first[token]}" and "{word}" begin with the same token of this model: choose words '
                    "that differ in their first token."
                )
            first[token] = word
        return tuple(first)


class TextEncoder(PlainEncoder):
    """Texts, for language modelling."""

    tokens_min = 2
    objective = LanguageModelling()

    def __init__(self, tokenizer: Any, form: Format, length_max: int) -> None:
        super().__init__(tokenizer, form, length_max)
        self.is_endless = tokenizer.eos_token_id is None

    def is_blank(self, row: Row) -> bool:
        values = [row.columns.get(column) for column in self.form.columns]
        has_text = not all(isinstance(value, str) and not value.strip() for value in values)
        return not has_text or super().is_blank(row)

    def _example(self, tokens: list[int], row: Row) -> Example:
        """A row is a whole text, and the model learns that it ends there."""
        end = self.tokenizer.eos_token_id
        is_ended = end is None or (len(tokens) > 1 and tokens[-1] == end)
        return super()._example(tokens if is_ended else [*tokens, end], row)

    def _shorten(self, tokens: list[int]) -> list[int]:
        return tokens[: self.length_max]
