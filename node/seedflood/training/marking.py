"""Texts of which some characters are learned, as tokens: the answer to a prompt, what the assistant says in a chat.

The whole text becomes tokens at once, as the model will meet it, and each token is placed by its characters. The
length of a part that is tokenized by itself would tell nothing: tokenizers merge across the border. A token with
characters on both sides of a border is learned.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from seedflood.errors import ModelError
from seedflood.training.encoding import MARKS, Encoder, begins_twice
from seedflood.training.formats import OPTIONAL, ChatFormat, CompletionFormat
from seedflood.training.objectives.language_modelling import MarkedExample, MarkedModelling
from seedflood.training.objectives.objective import Example
from seedflood.training.rows import Row

Span = tuple[int, int]
"""Characters from the first to before the second."""


@dataclass(frozen=True, slots=True)
class Marked:
    """A text, and what is learned of it: spans in their order, apart from each other. remarks: see `Example`."""

    text: str
    spans: tuple[Span, ...]
    remarks: tuple[str, ...] = ()


class MarkedEncoder(Encoder):
    """Examples of which some tokens are learned. Tokens behind the last of these are left out."""

    form: CompletionFormat | ChatFormat
    tokens_min = 2
    objective = MarkedModelling()
    has_own_beginning = False
    """Do the texts bring their special tokens themselves?"""
    ends_with_text = False
    """Does a text end where its last span does, so that the model learns to end there?"""

    def __init__(self, tokenizer: Any, form: CompletionFormat | ChatFormat, length_max: int) -> None:
        super().__init__(tokenizer, form, length_max)
        if not tokenizer.is_fast:
            raise ModelError("The tokenizer of this model does not tell where its tokens stand: add tokenizer.json.")
        self.label_column = form.label_column
        self.is_endless = self.ends_with_text and tokenizer.eos_token_id is None

    @abstractmethod
    def mark(self, row: Row) -> Marked:
        """The text of a row, and what is learned of it. Raises DataError."""

    def show(self, example: Example) -> str:
        assert isinstance(example, MarkedExample), "an example of another task"
        pairs = zip(example.tokens, example.is_trained, strict=True)
        runs = [
            (is_trained, [token for token, _ in run]) for is_trained, run in groupby(pairs, key=lambda pair: pair[1])
        ]
        texts = ((is_trained, self.tokenizer.decode(tokens)) for is_trained, tokens in runs)
        return "".join(text.join(MARKS) if is_trained else text for is_trained, text in texts)

    def _examples(self, rows: Sequence[Row]) -> list[Example]:
        marked = [self.mark(row) for row in rows]
        encoded = self.tokenizer(
            [one.text for one in marked],
            add_special_tokens=not self.has_own_beginning,
            return_offsets_mapping=True,
            verbose=False,
        )
        found = zip(rows, marked, encoded["input_ids"], encoded["offset_mapping"], strict=True)
        return [self._example(row, tokens, _trained(offsets, one), one.remarks) for row, one, tokens, offsets in found]

    def _example(self, row: Row, tokens: list[int], is_trained: list[bool], remarks: tuple[str, ...]) -> MarkedExample:
        end = max((place + 1 for place, trained in enumerate(is_trained) if trained), default=0)
        tokens, is_trained = tokens[:end], is_trained[:end]
        if begins_twice(self.tokenizer, tokens) and not self.has_own_beginning:
            tokens, is_trained = tokens[1:], is_trained[1:]
        if self.ends_with_text and not self.is_endless:
            tokens, is_trained = [*tokens, self.tokenizer.eos_token_id], [*is_trained, True]
        if not any(is_trained[1:]):
            raise row.error("has nothing to learn: an answer is empty, or nothing precedes it; remove the row.")
        is_cut = len(tokens) > self.length_max
        places = self._kept(tokens, is_trained) if is_cut else range(len(tokens))
        kept = tuple(tokens[place] for place in places), tuple(is_trained[place] for place in places)
        return MarkedExample(kept[0], is_cut=is_cut, is_trained=kept[1], remarks=remarks)

    def _kept(self, tokens: list[int], is_trained: list[bool]) -> list[int]:
        """The places that are kept of a row that is too long: all up to the last end of an answer that fits. If none
        does, the first answer without the beginning of what precedes it and, as a last resort, without its own end."""
        ends = [
            place for place in range(1, len(tokens) + 1) if is_trained[place - 1] and not any(is_trained[place:][:1])
        ]
        fitting = [end for end in ends if end <= self.length_max]
        if fitting:
            return list(range(fitting[-1]))
        beginning = [0] if tokens[0] == self.tokenizer.bos_token_id and not is_trained[0] else []
        first = max(is_trained.index(True), 1)
        start = max(len(beginning), min(ends[0] - self.length_max + len(beginning), first - 1))
        return (beginning + list(range(start, ends[0])))[: self.length_max]


class CompletionEncoder(MarkedEncoder):
    """Prompts, each with what follows it, which alone is learned, and the token that ends a text. Both stand as they
    are in the row: nothing is put between them."""

    form: CompletionFormat
    ends_with_text = True

    def mark(self, row: Row) -> Marked:
        texts = row.texts(self.form.columns, OPTIONAL)
        prompt = self.form.template.format_map(texts)
        text = prompt + texts[self.form.label_column]
        if (end := self.tokenizer.eos_token) and text.rstrip().endswith(end):
            text = text.rstrip().removesuffix(end)  # it is put there, anyway
        return Marked(text, ((len(prompt), len(text)),))

    def check(self, row: Row) -> None:
        super().check(row)
        if not row.texts(self.form.columns, OPTIONAL)[self.form.label_column].strip():
            raise row.error(f'nothing in column "{self.form.label_column}", which is learned: remove the row.')


def _trained(offsets: Sequence[Span], marked: Marked) -> list[bool]:
    """Of each token, whether it has a character that is learned. offsets: of the tokens. Some tokenizers give a token
    of a space an empty place behind it, and special tokens that they add an empty place at 0."""
    learned = bytearray(len(marked.text))
    for start, end in marked.spans:
        learned[start:end] = b"\1" * (end - start)
    return [learned.find(1, start if start < end else end - 1, end) >= 0 for start, end in offsets]
