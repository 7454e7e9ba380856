"""A cell: one method on one problem with one seed, the smallest part of a study that is run and kept.

Everything that its result depends on is in it, so a result is found again by its cell alone.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from study.methods.method import Initial, Option


@dataclass(frozen=True, slots=True)
class Cell:
    """rows: a digest of training, validation and test rows. skew: Dirichlet concentration of labels; None: equal
    shares. steps: of every client. options: of the method, as sorted pairs. points: measurements on validation rows.
    is_test: the test rows are measured at the end; else it is a try, to choose options by."""

    model: str
    task: str
    rows: str
    method: str
    topology: str
    clients: int
    skew: float | None
    steps: int
    local_steps: int
    batch_size: int
    seed: int
    points: int
    options: tuple[tuple[str, Option], ...] = ()
    initial: Initial = "pretrained"
    is_test: bool = True

    def with_options(self, options: Mapping[str, Option]) -> Self:
        """The same with these options as well."""
        return replace(self, options=tuple(sorted({**dict(self.options), **options}.items())))

    @property
    def work(self) -> int:
        """How long it takes, in no unit: batches."""
        return self.steps * self.clients

    def facts(self) -> dict[str, Any]:
        return asdict(self) | {"options": dict(self.options)}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        return cls(**{**facts, "options": tuple(sorted(facts["options"].items()))})


@dataclass(frozen=True, slots=True)
class Result:
    """course: figures on validation rows and the cost up to there, point by point, from before the first step on. test:
    figures on test rows at the end; None of a try. seconds: of computing, the whole cell. commit: of the code."""

    cell: Cell
    commit: str
    seconds: float
    course: tuple[Mapping[str, Any], ...]
    test: Mapping[str, float | None] | None

    @property
    def loss(self) -> float:
        """On validation rows, at the end; infinite if it is no finite number."""
        loss = self.course[-1]["loss"]
        return math.inf if loss is None else float(loss)

    def facts(self) -> dict[str, Any]:
        return {
            "cell": self.cell.facts(),
            "commit": self.commit,
            "seconds": round(self.seconds, 3),
            "course": list(self.course),
            "test": self.test,
        }

    def line(self) -> str:
        """One line of JSON."""
        return json.dumps(self.facts(), allow_nan=False) + "\n"

    @classmethod
    def parse(cls, line: str) -> Self:
        """Undoes `line`. Raises ValueError."""
        try:
            facts = json.loads(line)
            cell = Cell.from_facts(facts["cell"])
            return cls(cell, facts["commit"], facts["seconds"], tuple(facts["course"]), facts["test"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("it is no result of a study") from error


def best(results: Iterator[Result]) -> Result:
    """The try with the least validation loss; of equals the first."""
    return min(results, key=lambda result: result.loss)
