"""Rows of a data set: from a folder of JSON lines (gzip, too), the hub's data sets (offline first), or memory.

A row is a dictionary of columns. Every row remembers where it came from, so that an error can name file and line.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from seedflood import embedded
from seedflood.errors import DataError
from seedflood.training import hub

TRAIN_FILE = "train.jsonl"
VALIDATION_FILE = "validation.jsonl"
PACKED = ".gz"
"""Either file may be compressed, and has this behind its name."""


@dataclass(frozen=True, slots=True)
class Row:
    """columns: by name. path and line (from 1): where the row stands."""

    columns: Mapping[str, Any]
    path: str
    line: int

    def error(self, problem: str) -> DataError:
        """A DataError that says where."""
        return DataError(f"{self.path}, line {self.line}: {problem}", path=self.path, line=self.line)


class Source(Protocol):
    """Where the rows of a built-in task come from."""

    @property
    def name(self) -> str: ...

    def read(self) -> tuple[list[Row], list[Row]]:
        """Training and validation rows. Raises DataError."""
        ...


@dataclass(frozen=True, slots=True)
class HubSource:
    """A data set of the hub."""

    name: str
    configuration: str | None = None
    validation_split: str = "validation"

    def read(self) -> tuple[list[Row], list[Row]]:
        return read_hub(self.name, self.configuration, self.validation_split)


@dataclass(frozen=True, slots=True)
class EmbeddedSource:
    """Rows that come with the package. of: makes those of a split (`embedded`)."""

    of: Callable[[embedded.Split], Iterable[Mapping[str, Any]]]
    name: str = "embedded"

    def read(self) -> tuple[list[Row], list[Row]]:
        train, validation = (rows_in_memory(self.of(split), f"embedded {split}") for split in embedded.SPLITS)
        return train, validation


def rows_in_memory(rows: Iterable[Mapping[str, Any]], name: str) -> list[Row]:
    """Rows that a program made. name: what stands in errors in place of a file."""
    return [Row(columns, name, line) for line, columns in enumerate(rows, start=1)]


def read_folder(folder: Path) -> tuple[list[Row], list[Row]]:
    """Training and validation rows of a folder with train.jsonl and validation.jsonl, or .gz of these. Raises
    DataError."""
    train, validation = (read_json_lines(_find(folder / name)) for name in (TRAIN_FILE, VALIDATION_FILE))
    return train, validation


def read_json_lines(path: Path) -> list[Row]:
    """Rows of a file with one JSON object per line; empty lines are skipped. Raises DataError."""
    rows: list[Row] = []
    try:
        with _open(path) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    rows.append(_parse(line, str(path), number))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"Cannot decompress {path} ({error}): copy the file anew.", path=str(path)) from error
    except OSError as error:
        raise DataError(
            f"Cannot read {path} ({error.strerror}): a data folder needs {TRAIN_FILE} and {VALIDATION_FILE} (or "
            f"{PACKED} of these), one JSON object per line.",
            path=str(path),
        ) from error
    if not rows:
        raise DataError(f"{path} has no rows: write one JSON object per line.", path=str(path))
    return rows


def _find(path: Path) -> Path:
    """This file, or its compressed form if there is only that."""
    packed = path.with_name(path.name + PACKED)
    return packed if packed.exists() and not path.exists() else path


def _open(path: Path) -> BinaryIO | gzip.GzipFile:
    return gzip.open(path, "rb") if path.suffix == PACKED else path.open("rb")


def _parse(line: bytes, path: str, number: int) -> Row:
    try:
        columns = json.loads(line)
    except (ValueError, RecursionError) as error:
        problem = error.msg if isinstance(error, json.JSONDecodeError) else "not text in UTF-8"
        raise Row({}, path, number).error(f"not valid JSON ({problem}): correct or remove this line.") from error
    row = Row(columns, path, number)
    if not isinstance(columns, dict):
        raise row.error('not a JSON object: a row looks like {"sentence": "...", "label": 0}.')
    return row


def read_hub(name: str, configuration: str | None, validation_split: str) -> tuple[list[Row], list[Row]]:
    """Training and validation rows of a data set of the hub, from the local cache first. Raises DataError."""
    import datasets  # takes a second to import, and folders do not need it

    datasets.disable_progress_bars()  # stderr is for logs
    try:
        with _offline():
            return _read_splits(name, configuration, validation_split)
    except Exception:  # Libraries that read caches and parse foreign files may raise anything.
        fault = hub.find_fault("dataset", name)
    try:
        if fault is None:
            return _read_splits(name, configuration, validation_split)
    except Exception as error:
        fault = hub.first_line(error)
    raise DataError(
        f'Data set "{name}" is neither a folder nor in the local cache, and the hub did not give it: set `data` to a '
        f"folder with {TRAIN_FILE} and {VALIDATION_FILE}, or fetch the data set with network access ({fault}).",
        path=name,
    )


def _read_splits(name: str, configuration: str | None, validation_split: str) -> tuple[list[Row], list[Row]]:
    import datasets

    found = datasets.load_dataset(name, configuration)
    split = validation_split if validation_split in found else "validation"
    train, validation = rows_in_memory(found["train"], f"{name} train"), rows_in_memory(found[split], f"{name} {split}")
    if not (train and validation):  # also of a cache that another process is still writing
        raise ValueError("it has no rows")
    return train, validation


@contextmanager
def _offline() -> Iterator[None]:
    """Within, the network is not used: `datasets` has no argument for that, only these two switches."""
    import datasets
    import huggingface_hub

    places = [datasets.config, huggingface_hub.constants]
    before = [place.HF_HUB_OFFLINE for place in places]
    try:
        for place in places:
            place.HF_HUB_OFFLINE = True
        yield
    finally:
        for place, value in zip(places, before, strict=True):
            place.HF_HUB_OFFLINE = value
