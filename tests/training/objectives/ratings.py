"""An objective that the package does not know: which number is right for a text. CONTRIBUTING's path, in one file.

The number is the difference of the logits of two words. In here is what an objective may bring: a format, an example, a
batch, an encoder and the measurement.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seedflood.training.causal import CausalModel
from seedflood.training.encoding import PlainEncoder
from seedflood.training.formats import TemplateFormat
from seedflood.training.objectives.batches import Batch, pad
from seedflood.training.objectives.objective import Example, Objective, Score
from seedflood.training.rows import Row


@dataclass(frozen=True, slots=True)
class RatingFormat(TemplateFormat):
    words: tuple[str, str]
    number_column: str = "number"

    def check(self, row: Row) -> None:
        TemplateFormat.check(self, row)
        if not isinstance(row.columns.get(self.number_column), int | float):
            raise row.error(f'no number in column "{self.number_column}": correct the row.')


@dataclass(frozen=True, slots=True)
class RatedExample(Example):
    number: float = 0.0


@dataclass(frozen=True, slots=True)
class RatedBatch(Batch):
    number_B: Tensor  # noqa: N815  # B rows

    def answer_positions(self) -> Tensor:
        rows, length = self.tokens_BT.shape
        return torch.arange(rows, device=self.lengths_B.device) * length + self.lengths_B - 1


class Rating(Objective):
    names: tuple[str, ...] = ("error", "within_one")

    def __init__(self, words: Sequence[int]) -> None:
        self._word_2 = torch.tensor(words, dtype=torch.int64)

    def collate(self, examples: Sequence[Example], pad_token: int) -> RatedBatch:
        tokens_BT, lengths_B = pad([example.tokens for example in examples], pad_token)
        numbers = [example.number for example in examples if isinstance(example, RatedExample)]
        return RatedBatch(tokens_BT, lengths_B, torch.tensor(numbers, dtype=torch.float32))

    def measure(self, model: CausalModel, batch: Batch, variants: int = 1) -> Score:
        assert isinstance(batch, RatedBatch)
        hidden_BTD = model.hidden_states(batch.tokens_BT)
        row_B = torch.arange(len(hidden_BTD), device=hidden_BTD.device)
        logits_B2 = model.word_logits(hidden_BTD[row_B, batch.lengths_B - 1], self._word_2.to(hidden_BTD.device))
        away_B = (logits_B2[:, 0] - logits_B2[:, 1]).to(torch.float32) - batch.number_B
        sums = {
            "error": away_B.square().view(variants, -1).to(torch.float64).sum(dim=1),
            "within_one": (away_B.abs() <= 1).view(variants, -1).sum(dim=1),
        }
        return Score(sums, torch.full_like(sums["within_one"], len(row_B) // variants), "error")


class RatingEncoder(PlainEncoder):
    def __init__(self, tokenizer: Any, form: RatingFormat, length_max: int) -> None:
        super().__init__(tokenizer, form, length_max)
        self._column = form.number_column
        words = [tokenizer(word, add_special_tokens=False)["input_ids"][0] for word in form.words]
        self.objective = Rating(words)

    def _example(self, tokens: list[int], row: Row) -> RatedExample:
        return RatedExample(tuple(tokens[-self.length_max :]), number=float(row.columns[self._column]))

    def _shorten(self, tokens: list[int]) -> list[int]:
        return tokens[-self.length_max :]
