"""The rows of a study: training, validation and test rows, the same for all methods.

Test rows are the data set's own validation rows, for the test rows of many data sets have no labels. Validation rows
are taken out of its training rows, and so are those that are trained on. They lie in two folders as a daemon reads
them: in the second one test rows stand for validation rows.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from seedflood import durable
from seedflood.config import ObjectiveSettings
from seedflood.config.run import TaskName
from seedflood.errors import DataError, UsageError
from seedflood.training.randomness import derive_key, permutation
from seedflood.training.rows import Row
from seedflood.training.tasks import read_rows

TRAIN_FILE, VALIDATION_FILE = "train.jsonl", "validation.jsonl"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many rows at most. Fewer test rows are taken if there are no more."""

    train: int
    validation: int
    test: int


@dataclass(frozen=True, slots=True)
class Split:
    """digest: names the rows. tuning: folder with the validation rows. final: with the test rows."""

    digest: str
    tuning: Path
    final: Path


def objective_of(task: str) -> ObjectiveSettings:
    """Raises UsageError."""
    try:
        return ObjectiveSettings.model_validate({"task": task})
    except ValidationError as error:
        raise UsageError(f'unknown task "{task}"; choose one of {", ".join(get_args(TaskName))}.') from error


def split(objective: ObjectiveSettings, data: str | None, sizes: Sizes, home: Path) -> Split:
    """Writes the rows of a task below `home`. data: as in [node]. Raises DataError or ConfigError."""
    splits = read_rows(objective, data)
    train, test = splits.train.rows, splits.validation.rows
    if len(train) < sizes.train + sizes.validation:
        raise DataError(
            f"The study needs {sizes.train:,} training and {sizes.validation:,} validation rows, but the data has "
            f"{len(train):,} training rows in all: take a smaller plan, or another data set."
        )
    order: list[int] = permutation(derive_key("study rows"), len(train)).tolist()
    chosen = [train[index] for index in order[: sizes.train + sizes.validation]]
    held_out = [test[index] for index in permutation(derive_key("study test rows"), len(test)).tolist()]
    parts = [_lines(part) for part in (chosen[: sizes.train], chosen[sizes.train :], held_out[: sizes.test])]
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    found = Split(digest, home / digest / "tuning", home / digest / "final")
    for folder, validation in ((found.tuning, parts[1]), (found.final, parts[2])):
        folder.mkdir(parents=True, exist_ok=True)
        durable.write(folder / TRAIN_FILE, parts[0], mode=0o644)
        durable.write(folder / VALIDATION_FILE, validation, mode=0o644)
    return found


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """One JSON object per line."""
    durable.write(path, _lines(rows), mode=0o644)


def _lines(rows: Sequence[Row]) -> bytes:
    return b"".join(row.spelled() + b"\n" for row in rows)
