"""Rows of a data set. A row is a dictionary of columns, and remembers where it came from, so that an error can name
file and line."""

import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from seedflood.errors import DataError

HELD_OUT_DIVISOR, HELD_OUT_MIN, HELD_OUT_MAX = 20, 16, 1000
"""Without validation rows every 20th distinct row is held out, at least 16, or a quarter if these are fewer, and at
most a thousand."""

OPTIONAL = ("system", "history", "input", "context")
"""Columns that a row may lack, as rows of Alpaca do."""


@dataclass(frozen=True, slots=True)
class Row:
    """columns: by name. path and line (from 1): where the row stands."""

    columns: Mapping[str, Any]
    path: str
    line: int

    def error(self, problem: str) -> DataError:
        """A DataError that says where."""
        return DataError(f"{self.path}, line {self.line}: {problem}")

    def texts(self, columns: Collection[str]) -> dict[str, str]:
        """What stands in these columns; numbers as they are written. Of several, one with nothing in it (null) counts
        as empty, and so does one of `OPTIONAL` that is missing. Raises DataError if one is missing, or is not text."""
        found_texts: dict[str, str] = {}
        for column in columns:
            value = self.columns.get(column)
            if value is None and len(columns) > 1 and (column in OPTIONAL or column in self.columns):
                value = ""
            text = as_text(value)
            if text is None:
                found = ", ".join(map(str, self.columns))
                problem = f'no column "{column}"' if column not in self.columns else f'column "{column}" is not text'
                raise self.error(
                    f"{problem} (columns: {found}): correct the row, or task, template or column of the run."
                )
            found_texts[column] = text
        return found_texts

    def spelled(self, names: Iterable[str] | None = None) -> bytes:
        """The columns, or those of these names, as bytes, which are equal if the columns are."""
        columns = self.columns if names is None else {name: self.columns.get(name) for name in names}
        return json.dumps(dict(columns), sort_keys=True, default=str).encode()


def as_text(value: Any) -> str | None:
    """A text or a number as text, and pairs of texts (the history of a chat before a row) line by line; None: it is
    none of these."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return str(value) if math.isfinite(value) else None
    is_history = isinstance(value, list) and all(isinstance(one, list) for one in value)
    if not is_history or not all(isinstance(text, str) for pair in value for text in pair):
        return None
    return "".join(f"{text}\n" for pair in value for text in pair)


def names_of(rows: Iterable[Row]) -> list[str]:
    """The columns that any of the rows has."""
    return list(dict.fromkeys(name for row in rows for name in row.columns))


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that belong together. label_names: by column, of a column that holds the index of a label."""

    rows: list[Row]
    label_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


Reader = Callable[[], Table]
"""Reads the rows of one split when they are wanted. Raises DataError."""


@dataclass(frozen=True, slots=True)
class Splits:
    """What a run trains on, and what it is evaluated on. copies: so many training rows were left out, as copies of rows
    that were held out of them for validation; None: validation rows are a split of their own."""

    train: Table
    validation: Table
    copies: int | None = None

    @property
    def rows(self) -> list[Row]:
        """All of them, those for training first."""
        return [*self.train.rows, *self.validation.rows]


def rows_in_memory(rows: Iterable[Mapping[str, Any]], name: str) -> list[Row]:
    """Rows that a program made. name: what stands in errors in place of a file."""
    return [Row(columns, name, line) for line, columns in enumerate(rows, start=1)]


def choose_splits(readers: Mapping[str, Reader], wanted: Sequence[str], name: str) -> Splits:
    """Reads training and validation rows. wanted: the names of the splits to train and to evaluate on. What it leaves
    out is "train" and "validation", or the only split there is if that is not "test", and a share of the training rows.
    One split named twice is both. Raises DataError."""
    if not wanted and "train" not in readers and (len(readers) > 1 or "test" in readers):
        first = next(iter(readers))
        raise DataError(f"{name} has no split train: name one of {', '.join(readers)} behind it, as in {name}#{first}.")
    for one in wanted:
        if one not in readers:
            raise DataError(f'{name} has no split "{one}": it has {", ".join(readers)}.')
    if not wanted:
        train = "train" if "train" in readers else next(iter(readers))
        has_validation = "validation" in readers and train != "validation"
        wanted = (train, "validation") if has_validation else (train,)
    rows = readers[wanted[0]]()
    if len(wanted) == 1:
        return hold_out(rows, name)
    return Splits(rows, readers[wanted[1]]())


def hold_out(table: Table, name: str) -> Splits:
    """Takes a share of the rows for validation, by the hashes of their contents: the same on every host, in whatever
    order they stand. No row that is held out is trained on elsewhere. Raises DataError if nothing is left."""
    hashes = [hashlib.sha256(row.spelled()).digest() for row in table.rows]
    distinct = sorted(set(hashes))
    if len(distinct) < 2:
        times = f", {len(hashes)} times" if len(hashes) > 1 else ""
        raise DataError(f"{name} has only one row{times}: one is needed to train, and another to evaluate.")
    least = max(1, min(HELD_OUT_MIN, len(distinct) // 4))
    chosen = set(distinct[: min(HELD_OUT_MAX, max(least, len(distinct) // HELD_OUT_DIVISOR))])
    held = {one: row for one, row in zip(hashes, table.rows, strict=True) if one in chosen}
    kept = [row for one, row in zip(hashes, table.rows, strict=True) if one not in chosen]
    copies = len(table.rows) - len(kept) - len(held)
    return Splits(Table(kept, table.label_names), Table(list(held.values()), table.label_names), copies)


def without_copies(train: Sequence[Row], held_out: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """The training rows without those that are equal to one that was held out in these columns, which are all that is
    read: the others may number them. Raises DataError if none is left."""
    held = {row.spelled(names) for row in held_out}
    kept = [row for row in train if row.spelled(names) not in held]
    if not kept:
        raise DataError("There are too few different rows: all are among those that are held out to evaluate.")
    return kept
