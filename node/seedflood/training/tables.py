"""Tables of arrow as rows: parquet files, and what the library `datasets` writes.

Columns of images and sounds are not read, let alone decoded: they are large, and no task has a use for bytes.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seedflood.training.rows import Row, Table, rows_in_memory

UNREAD = b""
"""Stands in a row for bytes that were not read, so that the column is known, and is no text."""


def read_parquet(path: Path) -> Table:
    """The rows of a file; the library `datasets` leaves the names of labels in its description."""
    import pyarrow.parquet

    schema = pyarrow.parquet.read_schema(path)
    table = pyarrow.parquet.read_table(path, columns=_read_columns(schema), partitioning=None)
    schema_facts = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    features = schema_facts.get("info", {}).get("features", {})
    names = {
        column: tuple(one["names"]) for column, one in features.items() if isinstance(one, dict) and "names" in one
    }
    return Table(_rows_of(table, schema, str(path)), names)


def read_arrow(path: Path) -> Table:
    """The rows of a file that the library `datasets` keeps in its cache, or in a folder that it saved."""
    import datasets

    return of_dataset(datasets.Dataset.from_file(str(path)), str(path))


def of_dataset(found: Any, name: str) -> Table:
    """The rows of a data set of the library `datasets`. name: what stands in errors in place of a file."""
    named = {column: getattr(feature, "names", None) for column, feature in found.features.items()}
    names = {column: tuple(labels) for column, labels in named.items() if labels}
    schema = found.features.arrow_schema
    table = found.select_columns(_read_columns(schema)).with_format("arrow")[:]
    return Table(_rows_of(table, schema, name), names)


def _read_columns(schema: Any) -> list[str]:
    return [field.name for field in schema if not _is_bytes(field.type)]


def _is_bytes(kind: Any) -> bool:
    """Bytes, an image or a sound (an object of bytes and a path), or a list of these. kind: of arrow."""
    from pyarrow import types

    if types.is_struct(kind):
        return any(field.name == "bytes" and _is_bytes(field.type) for field in kind)
    if _is_list(kind):
        return _is_bytes(kind.value_type)
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    )


def _rows_of(table: Any, schema: Any, name: str) -> list[Row]:
    """schema: of all columns, of which the table lacks those that were not read."""
    restore = {field.name: _restorer(field.type) for field in table.schema}
    rows = []
    for cells in table.to_pylist():
        row = dict.fromkeys(schema.names, UNREAD)
        row.update((column, restore[column](value)) for column, value in cells.items())
        rows.append(row)
    return rows_in_memory(rows, name)


def _restorer(kind: Any) -> Callable[[Any], Any]:
    """What makes a cell of a table what its row had. kind: of arrow.

    A table gives all objects of a column every key that one of them has, so keys of nothing are left out of these. Maps
    and columns of JSON have keys of their own, where nothing is data.
    """
    restore = _restorer_of_some(kind)
    return lambda value: None if value is None else restore(value)


def _restorer_of_some(kind: Any) -> Callable[[Any], Any]:
    """The same for cells that are not empty."""
    from pyarrow import types

    if getattr(kind, "extension_name", None) == "arrow.json":
        return json.loads
    if types.is_map(kind):
        restore = _restorer(kind.item_type)
        return lambda pairs: {key: restore(one) for key, one in pairs}
    if types.is_struct(kind):
        fields = {field.name: _restorer_of_some(field.type) for field in kind}
        return lambda value: {key: fields[key](one) for key, one in value.items() if one is not None}
    if _is_list(kind):
        restore = _restorer(kind.value_type)
        return lambda value: [restore(one) for one in value]
    return lambda value: value


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))
