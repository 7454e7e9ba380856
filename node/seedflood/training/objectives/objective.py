"""The seam between a task and an algorithm: what is measured of a model on a batch."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from seedflood.training.causal import CausalModel
from seedflood.training.objectives.batches import Batch
from seedflood.training.objectives.score import Score


@dataclass(frozen=True, slots=True)
class Example:
    """One row as tokens. label: its index; -1 where the objective knows no labels. is_cut: the row had more tokens than
    it may have. An objective that needs more of a row has a class of its own."""

    tokens: tuple[int, ...]
    label: int = -1
    is_cut: bool = False


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
        better."""

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
