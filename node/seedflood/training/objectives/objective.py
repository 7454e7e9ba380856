"""The seam between a task and an algorithm: what is measured of a model on a batch, as sums, so that a batch may be
measured in pieces.

Shapes: P variants of the parameters that the batch stands for: 1, or more during a probe. Then the batch is there once
per variant, one copy below the other.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from seedflood.training.causal import CausalModel
from seedflood.training.objectives.batches import Batch
from seedflood.training.objectives.example import Example


@dataclass(frozen=True, slots=True)
class Score:
    """Sums over a batch, per variant.

    sums: (P,) each, by the name of the figure. count_P: what they are divided by, int64. minimised: the figure that
    training brings down.
    """

    sums: Mapping[str, Tensor]
    count_P: Tensor
    minimised: str

    def __add__(self, other: "Score") -> "Score":
        assert self.minimised == other.minimised, "scores of two objectives"
        sums = {name: sum_P + other.sums[name] for name, sum_P in self.sums.items()}
        return Score(sums, self.count_P + other.count_P, self.minimised)

    @property
    def minimised_sums(self) -> Tensor:
        """The sums that training brings down, (P,) float64, on the `exact_device`; gradients flow through them."""
        return self.sums[self.minimised]

    def values(self) -> list[float]:
        """Of each variant, the mean of the figure that training brings down."""
        sums_P = self.minimised_sums.detach()
        mean_P = sums_P / self.count_P.to(sums_P.device)
        means: list[float] = mean_P.tolist()  # one wait for the device, not one for each variant
        return means

    def means(self) -> dict[str, float]:
        """Every figure of the first variant; 0 if nothing was counted."""
        count = max(1, int(self.count_P[0]))
        return {name: float(sum_P[0].detach()) / count for name, sum_P in self.sums.items()}


class Objective(ABC):
    """Makes a batch of examples, and a score of a batch.

    names: of the figures, in the order in which people look at them.
    """

    names: tuple[str, ...]

    @abstractmethod
    def collate(self, examples: Sequence[Example], pad_token: int) -> Batch:
        """A batch of examples, padded to the longest."""

    @abstractmethod
    def measure(self, model: CausalModel, batch: Batch, variants: int = 1) -> Score:
        """The score of each variant. batch: of this objective, on the model's device. Losses are in float32 or
        better, and their sums in float64 (`devices.to_float64`)."""

    def count(self, batch: Batch) -> int:
        """`Score.count_P` of each variant, known before anything is measured: rows, unless it is of something else."""
        return len(batch.lengths_B)

    def figures(self, score: Score) -> dict[str, float]:
        """The figures of a whole score that people are shown, by name, in the order of `names`."""
        return score.means()


class Batches(Protocol):
    """The rows of a task: by themselves (`Task`), or packed (`PackedTask` of GASLoC)."""

    @property
    def objective(self) -> Objective: ...

    def batch(self, origin: int, step: int) -> Batch:
        """What an origin trains on at a step."""
        ...

    def validation(self, tokens_max: int) -> Iterator[Batch]:
        """All rows for validation, in batches of at most so many tokens or of one row."""
        ...
