"""An objective that the package does not know: which number is right for a text. CONTRIBUTING's path, in one file.

The number is the difference of the logits of two words. In here is what an objective may bring: a format, a batch, an
encoder and the measurement.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seedflood.training.causal import CausalModel
from seedflood.training.devices import to_float64
from seedflood.training.encoding import Encoder
from seedflood.training.formats import TemplateFormat
from seedflood.training.objectives.batches import Batch, pad
from seedflood.training.objectives.example import Example, Rendered
from seedflood.training.objectives.objective import Objective, Score
from seedflood.training.rows import Row


@dataclass(frozen=True, slots=True)
class RatingFormat(TemplateFormat):
    words: tuple[str, str]
    number_column: str = "number"

    def render(self, row: Row) -> Rendered:
        text = self.stripped(row)
        number = row.columns.get(self.number_column)
        if not isinstance(number, int | float):
            raise row.error(f'no number in column "{self.number_column}": correct the row.')
        return Rendered(text, (), columns={"number": number})


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
        numbers = [float(example.source.columns["number"]) for example in examples]
        return RatedBatch(tokens_BT, lengths_B, torch.tensor(numbers, dtype=torch.float32))

    def measure(self, model: CausalModel, batch: Batch, variants: int = 1) -> Score:
        assert isinstance(batch, RatedBatch)
        hidden_BTD = model.hidden_states(batch.tokens_BT)
        row_B = torch.arange(len(hidden_BTD), device=hidden_BTD.device)
        logits_B2 = model.word_logits(hidden_BTD[row_B, batch.lengths_B - 1], self._word_2.to(hidden_BTD.device))
        away_B = (logits_B2[:, 0] - logits_B2[:, 1]).to(torch.float32) - batch.number_B
        sums = {
            "error": to_float64(away_B.square().view(variants, -1)).sum(dim=1),
            "within_one": (away_B.abs() <= 1).view(variants, -1).sum(dim=1),
        }
        return Score(sums, torch.full_like(sums["within_one"], len(row_B) // variants), "error")


class RatingEncoder(Encoder):
    form: RatingFormat

    def __init__(self, tokenizer: Any, form: RatingFormat, length_max: int) -> None:
        super().__init__(tokenizer, form, length_max)
        self.objective = Rating([tokenizer(word, add_special_tokens=False)["input_ids"][0] for word in form.words])
