"""The seam between a task and an algorithm: what is measured of a model on a batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from seedflood.training.causal import CausalModel
from seedflood.training.objectives.batches import Batch
from seedflood.training.objectives.score import Score


@dataclass(frozen=True, slots=True)
class Example:
    """One row as tokens. label: its index; -1 where the objective knows no labels."""

    tokens: tuple[int, ...]
    label: int = -1


class Objective(Protocol):
    """How examples become a batch, and a batch a score.

    names: of the figures, in the order in which people look at them.
    """

    names: tuple[str, ...]

    def collate(self, examples: Sequence[Example], pad_token: int) -> Batch:
        """A batch of examples, padded to the longest."""
        ...

    def measure(self, model: CausalModel, batch: Batch, variants: int = 1) -> Score:
        """Of each variant, of a batch of this objective on the model's device; losses in float32 or better."""
        ...

    def count(self, batch: Batch) -> int:
        """What `Score.count_P` of each variant will be: known before anything is measured."""
        ...

    def figures(self, score: Score) -> dict[str, float]:
        """What people are shown of a whole score, by name, in the order of `names`."""
        ...
