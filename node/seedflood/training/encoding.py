"""Rows become examples: their text, and what is learned of it, in the tokens of a model.

The whole text becomes tokens at once, as the model will meet it, and each token is placed by its characters. The
length of a part that is tokenized by itself would tell nothing: tokenizers merge across the border. A token with
characters on both sides of a border is learned.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from seedflood.errors import DataError, ModelError
from seedflood.training.formats import CompletionFormat, Format, PromptFormat, TemplateFormat, TextFormat
from seedflood.training.objectives.batches import Batch
from seedflood.training.objectives.classification import Classification
from seedflood.training.objectives.example import Example, Rendered, Span
from seedflood.training.objectives.language_modelling import LanguageModelling
from seedflood.training.objectives.objective import Objective
from seedflood.training.rows import Row, Table

MARKS = ("⟦", "⟧")
"""Around what is learned, where people see an example: `text.join(MARKS)`."""


class Encoder:
    """Makes examples of rows. Raises DataError for rows and label words that cannot be used."""

    form: Format
    """Which columns of a row are read."""
    besides: tuple[str, ...] = ()
    """What else is read if a row has it."""
    objective: Objective
    """What is measured on the examples."""
    ends_texts = False
    """Is the token learned that ends a text?"""
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
        self._beginning = beginning_of(tokenizer)

    def render(self, row: Row) -> Rendered:
        """The text of a row, and what is learned of it. Raises DataError."""
        assert isinstance(self.form, TemplateFormat), "chats are written by the template of a model"
        return self.form.render(row)

    @property
    def reads(self) -> tuple[str, ...]:
        """All columns that are read, `besides` too."""
        return *self.besides, *self.form.reads

    def check(self, row: Row) -> None:
        """Raises DataError for a row that cannot be learned from, or ModelError if this model cannot learn it."""
        self.form.check(row)

    def checked_rows(self, table: Table) -> list[Row]:
        """The rows of a table that are learned, all of them checked."""
        rows = self.form.learned_rows(table)
        for row in rows:
            self.check(row)
        return rows

    def remarks(self, rows: Sequence[Row]) -> list[str]:
        """What people should know of these rows before they are learned: each a clause of one sentence."""
        return []

    def encode(self, rows: Sequence[Row]) -> list[Example]:
        """The examples of rows, none longer than length_max. Raises DataError, or ModelError for a token that the model
        does not know."""
        if not rows:
            return []
        rendered = [self.render(row) for row in rows]
        has_spans = any(one.spans for one in rendered)
        encoded = self.tokenizer(
            [one.text for one in rendered],
            add_special_tokens=False,
            return_offsets_mapping=has_spans,
            verbose=False,
        )
        offsets = encoded["offset_mapping"] if has_spans else [[]] * len(rows)
        found = zip(rows, rendered, encoded["input_ids"], offsets, strict=True)
        return [self._example(row, one, tokens, places) for row, one, tokens, places in found]

    def collate(self, examples: Sequence[Example]) -> Batch:
        """A batch of examples, padded to the longest."""
        return self.objective.collate(examples, self.pad_token if self.pad_token < self.vocabulary_size else 0)

    def show(self, example: Example) -> str:
        """The text of an example for people, with what is learned between MARKS."""
        shown = ""
        pairs = zip(example.tokens, example.is_trained, strict=True)
        for is_trained, run in groupby(pairs, key=lambda pair: pair[1]):
            text = self.tokenizer.decode([token for token, _ in run])
            shown += text.join(MARKS) if is_trained else text
        return shown

    def _example(self, row: Row, rendered: Rendered, tokens: list[int], offsets: Sequence[Span]) -> Example:
        is_trained = _trained(rendered, tokens, offsets)
        beginning = [] if rendered.has_own_beginning else self._beginning
        if tokens[: len(beginning)] != beginning:  # a text may bring it itself
            tokens = beginning + tokens
            is_trained = [False] * len(beginning) + is_trained
        if rendered.spans:  # what stands behind the last of them teaches nothing
            end = max((place + 1 for place, trained in enumerate(is_trained) if trained), default=0)
            tokens = tokens[:end]
            is_trained = is_trained[:end]
        end_token = self.tokenizer.eos_token_id
        is_ended = len(tokens) > 1 and tokens[-1] == end_token
        if self.ends_texts and end_token is not None and not is_ended:
            tokens = [*tokens, end_token]
            is_trained = [*is_trained, True]
        self._check_tokens(row, rendered, tokens, is_trained)
        is_cut = len(tokens) > self.length_max
        places = self._kept(tokens, is_trained) if is_cut else range(len(tokens))
        kept = tuple(tokens[place] for place in places)
        return Example(kept, tuple(is_trained[place] for place in places), is_cut, rendered)

    def _check_tokens(self, row: Row, rendered: Rendered, tokens: list[int], is_trained: list[bool]) -> None:
        # The first token is predicted from nothing. What follows a prompt is predicted from its last token.
        is_taught = bool(tokens) if rendered.spans == () else any(is_trained[1:])
        if not is_taught and rendered.spans:
            raise row.error("has nothing to learn: an answer is empty, or nothing precedes it; remove the row.")
        if not is_taught:
            raise row.error("has no text to learn from: remove the row.")
        if (last := max(tokens)) >= self.vocabulary_size:
            word = self.tokenizer.convert_ids_to_tokens(last)
            raise ModelError(
                f"The tokenizer has token {last} ({word}), and the model knows {self.vocabulary_size}: take the "
                "tokenizer that the model was trained with."
            )

    def _kept(self, tokens: list[int], is_trained: list[bool]) -> list[int]:
        """The places that are kept of a row that is too long: all up to the last end of what is learned that fits. If
        none does, the first that is learned without the beginning of what precedes it and, as a last resort, without
        its own end. What follows a prompt is learned behind its last token."""
        after = [*is_trained[1:], False]
        ends = [place + 1 for place in range(len(tokens)) if is_trained[place] and not after[place]]
        fitting = [end for end in ends if end <= self.length_max]
        if fitting:
            return list(range(fitting[-1]))
        end = ends[0] if ends else len(tokens)
        first = is_trained.index(True) if ends else len(tokens)
        beginning = [0] if tokens[0] == self.tokenizer.bos_token_id and not is_trained[0] else []
        start = max(len(beginning), min(end - self.length_max + len(beginning), max(first, 1) - 1))
        return (beginning + list(range(start, end)))[: self.length_max]


def _trained(rendered: Rendered, tokens: Sequence[int], offsets: Sequence[Span]) -> list[bool]:
    """Of each token, whether it has a character that is learned. offsets: of the tokens, if there are spans. Some
    tokenizers give a token of a space an empty place behind it."""
    if not rendered.spans:
        return [rendered.spans is None] * len(tokens)
    learned = bytearray(len(rendered.text))
    for start, end in rendered.spans:
        learned[start:end] = b"\1" * (end - start)
    return [learned.find(1, start if start < end else end - 1, end) >= 0 for start, end in offsets]


def beginning_of(tokenizer: Any) -> list[int]:
    """The tokens that a tokenizer puts before every text."""
    text: list[int] = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole: list[int] = tokenizer("a")["input_ids"]
    starts = [place for place in range(len(whole)) if whole[place : place + len(text)] == text]
    return whole[: starts[0]] if starts else []


def check_places(tokenizer: Any) -> None:
    """Raises ModelError if a tokenizer does not tell which characters its tokens stand for."""
    if not tokenizer.is_fast:
        raise ModelError("The tokenizer of this model does not tell where its tokens stand: add tokenizer.json.")


class TextEncoder(Encoder):
    """Texts, and what follows prompts, each with the token that ends a text."""

    form: TextFormat | CompletionFormat
    objective = LanguageModelling()
    ends_texts = True

    def __init__(self, tokenizer: Any, form: TextFormat | CompletionFormat, length_max: int) -> None:
        super().__init__(tokenizer, form, length_max)
        if isinstance(form, CompletionFormat):
            check_places(tokenizer)
        self.is_endless = tokenizer.eos_token_id is None

    def render(self, row: Row) -> Rendered:
        rendered = super().render(row)
        text = rendered.text.rstrip()
        end = self.tokenizer.eos_token
        if not (rendered.spans and end and text.endswith(end)):
            return rendered
        text = text.removesuffix(end)  # it is put there, anyway
        return replace(rendered, text=text, spans=((rendered.spans[0][0], len(text)),))


class PromptEncoder(Encoder):
    """Prompts with labels, for classification."""

    form: PromptFormat

    def __init__(self, tokenizer: Any, form: PromptFormat, length_max: int) -> None:
        super().__init__(tokenizer, form, length_max)
        self.objective = Classification(self._first_tokens())

    def show(self, example: Example) -> str:
        return super().show(example) + self.form.label_words[example.source.label].join(MARKS)

    def _first_tokens(self) -> tuple[int, ...]:
        """The first token of each label word when the word follows the prompt. Raises DataError if two of them are
        equal."""
        if len(self.form.label_words) < 2:
            raise DataError("A prompted task needs at least two label words: set label_words.")
        prompt = self.form.template.format_map(dict.fromkeys(self.form.reads, "x")).rstrip(" ")
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
