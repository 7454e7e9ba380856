"""Packed sequences: texts one after the other, cut into rows of equal length, and the rows of every local step.

There is no padding. A text begins with the model's begin-of-text token (or its end-of-text token, if it has no other),
and may run over the end of a row. Attention crosses the border of two texts, as is usual in pre-training. Rows overlap
by one token, so every token but the very first is predicted from those before it exactly once per pass. Prompts with
completions, and chats, are packed likewise; of these only the answers count.

The rows of a step are a pure function of (run seed, origin, step): one permutation of the host's rows after the other.
A worker that resumes at any step gets the rows that it would have had without a stop.

Shapes: S rows, B rows of a batch, T tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy
import torch
from torch import Tensor

from seedflood.errors import DataError
from seedflood.training import randomness
from seedflood.training.encoding import Encoder
from seedflood.training.formats import TextFormat
from seedflood.training.objectives.batches import MarkedBatch
from seedflood.training.objectives.language_modelling import LanguageModelling
from seedflood.training.rows import Row
from seedflood.training.tasks import Task

TEXTS_AT_ONCE = 1024
"""How many texts the tokenizer gets in one call, which spreads them over the cores."""


def pack(rows: Sequence[Row], encoder: Encoder) -> Tensor:
    """All texts as (S, T) int32, without a rest that does not fill a row. If there is only one row it may be shorter.

    Raises DataError for rows without text, or if there are fewer than two tokens.
    """
    tokenizer = encoder.tokenizer
    first = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    beginning = [] if first is None else [first]
    last = tokenizer.eos_token_id
    ending = [] if last in (None, first) else [last]  # else the next text's beginning is this one's end
    parts: list[numpy.ndarray[Any, numpy.dtype[numpy.int32]]] = []
    for start in range(0, len(rows), TEXTS_AT_ONCE):
        texts = [encoder.render(row).text for row in rows[start : start + TEXTS_AT_ONCE]]
        encoded = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        parts.extend(numpy.array(_between(beginning, tokens, ending, last), dtype=numpy.int32) for tokens in encoded)
    return _rows_of(parts, encoder.length_max)


def _between(beginning: list[int], tokens: list[int], ending: list[int], last: int | None) -> list[int]:
    """A text with its first and last token, of which it may bring its own. last: what it may bring as its end."""
    if tokens[:1] == beginning:
        tokens = tokens[1:]
    if tokens[-1:] == [last]:
        tokens = tokens[:-1]
    return beginning + tokens + ending


def pack_marked(rows: Sequence[Row], encoder: Encoder) -> Tensor:
    """As `pack`, of rows of which some tokens are learned: each that is not learned is there as its complement, ~token,
    which is negative. Raises DataError."""
    parts: list[numpy.ndarray[Any, numpy.dtype[numpy.int32]]] = []
    for example in encoder.encode(rows):
        tokens = numpy.array(example.tokens, dtype=numpy.int32)
        parts.append(numpy.where(example.is_trained, tokens, ~tokens))
    return _rows_of(parts, encoder.length_max)


def _rows_of(parts: Sequence[numpy.ndarray[Any, numpy.dtype[numpy.int32]]], length: int) -> Tensor:
    tokens_N = torch.from_numpy(numpy.concatenate(parts)) if parts else torch.empty(0, dtype=torch.int32)
    if len(tokens_N) < 2:
        raise DataError("There are fewer than two tokens of text to learn from: add rows to the data.")
    length = min(length, len(tokens_N))
    return tokens_N.unfold(0, length, length - 1).contiguous()


@dataclass(eq=False, repr=False)
class PackedTask:
    """Rows of a host for training, rows of the run for validation.

    train_ST, validation_ST: as `pack` or `pack_marked` makes them, int32 in host memory. facts: what was understood of
    the texts.
    """

    train_ST: Tensor
    validation_ST: Tensor
    _: KW_ONLY
    batch_size: int
    run_seed: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    objective: ClassVar[LanguageModelling] = LanguageModelling()

    def __post_init__(self) -> None:
        self._permutation = lru_cache(maxsize=4)(self._permute)

    @property
    def tokens_per_batch(self) -> int:
        """How many tokens of a batch are read and could be predicted."""
        return self.batch_size * (self.train_ST.shape[1] - 1)

    def batch(self, origin: int, step: int) -> MarkedBatch:
        rows = len(self.train_ST)
        places = range(step * self.batch_size, (step + 1) * self.batch_size)
        return text_batch(self.train_ST[[int(self._permutation(origin, one // rows)[one % rows]) for one in places]])

    def validation(self, tokens_max: int) -> Iterator[MarkedBatch]:
        """All rows for validation, in their order, in batches of at most so many tokens or of one row."""
        rows_at_once = max(1, tokens_max // self.validation_ST.shape[1])
        for start in range(0, len(self.validation_ST), rows_at_once):
            yield text_batch(self.validation_ST[start : start + rows_at_once])

    def _permute(self, origin: int, number: int) -> Tensor:
        key = randomness.derive_key("packed rows", self.run_seed, origin, number)
        return randomness.permutation(key, len(self.train_ST))


def pack_task(task: Task) -> PackedTask:
    """The packed rows of a task: its share of them for training. Raises DataError."""
    encoder, parts = task.encoder, (task.train_rows, task.validation_rows)
    if isinstance(encoder.form, TextFormat):
        packed = [pack(rows, encoder) for rows in parts]
        others = {"cut": 0}  # what does not fit into a row goes on in the next
    else:
        packed, others = [pack_marked(rows, encoder) for rows in parts], {}
    facts = task.describe() | others
    return PackedTask(*packed, batch_size=task.batch_size, run_seed=task.run_seed, facts=facts)


def text_batch(tokens_BT: Tensor) -> MarkedBatch:
    """Rows without padding as a batch. Negative tokens are complements, and not learned."""
    rows, length = tokens_BT.shape
    is_trained_BT = tokens_BT >= 0
    tokens_BT = torch.where(is_trained_BT, tokens_BT, ~tokens_BT).to(torch.int64)
    return MarkedBatch(tokens_BT, torch.full((rows,), length, dtype=torch.int64), is_trained_BT)
