"""Task "own": the loss of a step is computed in a script of each host (`seedflood.join`), on rows that only that script
knows. What the code computes is the users' agreement."""

from collections.abc import Iterator, Sequence
from typing import Any

from seedflood.errors import ConfigError, DataError
from seedflood.training.causal import CausalModel
from seedflood.training.objectives.batches import Batch
from seedflood.training.objectives.example import Example
from seedflood.training.objectives.objective import Objective, Score
from seedflood.training.shards import Shard
from seedflood.training.tasks import Task

NOT_HERE = (
    'task = "own" is for scripts that compute the loss themselves: run one that calls seedflood.join(model, '
    '"peers.toml") (docs/how-to/library.md), or choose another task in [run.objective].'
)

NO_ROWS = 'the rows of task = "own" are known to its scripts alone'


class OwnTask(Task):
    """Stands for rows that are not known here."""

    def __init__(self) -> None:
        self.name = "own"
        self.shard = Shard()
        self.train_rows = []
        self.validation_rows = []
        self.validation_examples = []
        self._of_run = []

    @property
    def objective(self) -> Objective:
        return _OwnObjective()

    def describe(self) -> dict[str, Any]:
        return {"task": self.name}

    def validation(self, tokens_max: int) -> Iterator[Batch]:
        """Raises DataError."""
        raise DataError(f"{NO_ROWS}: name rows with --data, and with --task what they are.")

    def batch(self, origin: int, step: int) -> Batch:
        """Raises ConfigError."""
        raise ConfigError(NOT_HERE)


class _OwnObjective(Objective):
    names = ()

    def collate(self, examples: Sequence[Example], pad_token: int) -> Batch:
        raise ConfigError(NOT_HERE)

    def measure(self, model: CausalModel, batch: Batch, variants: int = 1) -> Score:
        raise ConfigError(NOT_HERE)
