"""Files of rows: JSON lines, JSON, CSV, TSV, parquet, arrow and plain text, and all of these in a folder.

Text stays text: no cell of a CSV file becomes a number or a missing value. All kinds but parquet and arrow may be
compressed. The files of a folder belong to the splits that their names tell (`train-00001.parquet`, `dev.csv`).
"""

import bz2
import codecs
import csv
import gzip
import io
import json
import lzma
import re
import sys
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from seedflood.errors import DataError
from seedflood.training.rows import Reader, Row, Table
from seedflood.training.tables import of_dataset, read_arrow, read_parquet

SPLIT_WORDS = {
    "train": ("train", "training", "trainset"),
    "validation": ("validation", "valid", "val", "valset", "dev", "devset", "eval", "evaluation"),
    "test": ("test", "testing", "testset"),
}
"""By split: the words that name it in a path."""

CHATS = "messages", "conversations"
"""Columns that hold a chat of one row each."""

REPEATED = 100
"""A first line whose cell stands in its column again, in more than one row of so many, is a row."""

LOOKED_AT = 1024
"""So many bytes of a file tell whether it is a list."""

NOT_UTF_8 = "not text in UTF-8: save it as UTF-8."

SAVED = ("dataset_dict.json", "state.json")
"""In a folder that `datasets` has saved."""


def read_file(path: Path) -> Table:
    """The rows of one file. Raises DataError if it is of no known kind, broken or empty."""
    reader = KINDS.get(kind_of(path))
    if reader is None:
        raise DataError(f"{path} is of no known kind: {WHAT_IS_READ}.")
    try:
        table = reader(path)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is {NOT_UTF_8}") from error
    except (EOFError, zlib.error, lzma.LZMAError, OSError, ValueError) as error:
        raise DataError(_complaint(path, error)) from error
    if not table.rows:
        raise DataError(f"{path} has no rows: add some, or name another file.")
    return table


def read_folder(folder: Path) -> dict[str, Reader]:
    """What reads the rows of a folder, by split: of files, also in folders below, or as `datasets` saves them.

    Files whose paths name no split count only if none is named for training: then they are. Raises DataError.
    """
    if any((folder / name).is_file() for name in SAVED):
        return _read_saved(folder)
    files: dict[str | None, list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("*")):
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        has_plain_form = path.suffix.lower() in OPENERS and path.with_suffix("").is_file()
        if path.is_file() and kind_of(path) in KINDS and not is_hidden and not has_plain_form:
            files[split_of(path.relative_to(folder))].append(path)
    unnamed = files.pop(None, [])
    splits = files if "train" in files or not unnamed else {"train": unnamed, **files}
    if not splits:
        raise DataError(f"The folder {folder} has no rows: {WHAT_IS_READ}.")
    return {str(split): partial(_read_files, folder, paths) for split, paths in splits.items()}


def kind_of(path: Path) -> str:
    """The ending of a file's name that says what it holds, without that of its compression: ".jsonl"."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return next((suffix for suffix in reversed(suffixes) if suffix not in OPENERS), "")


def split_of(path: Path) -> str | None:
    """The split that a path names, by its file if that names one, else by its folders."""
    for part in reversed(path.parts):
        words = re.split(r"[\W\d_]+", re.sub("(?<=[a-z])(?=[A-Z])", " ", part).lower())
        if (found := next((split for split, known in SPLIT_WORDS.items() if {*known} & {*words}), None)) is not None:
            return found
    return None


def _read_files(folder: Path, paths: list[Path]) -> Table:
    """Files of one split. Raises DataError if they are of several kinds: the same rows twice, most likely."""
    if len({kind_of(path) for path in paths}) > 1:
        names = ", ".join(str(path.relative_to(folder)) for path in paths[:4])
        raise DataError(f"{folder} has files of several kinds ({names}): name the one that is meant.")
    tables = [read_file(path) for path in paths]
    if other := next((n for n, one in enumerate(tables) if one.label_names != tables[0].label_names), 0):
        raise DataError(
            f"{paths[0]} and {paths[other]} name labels differently: write the names in place of the numbers."
        )
    return Table([row for table in tables for row in table.rows], tables[0].label_names)


def _complaint(path: Path, error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return f"Cannot read {path} ({error.strerror}): correct `data`."
    if path.suffix.lower() in OPENERS:
        return f"Cannot decompress {path} ({error}): copy the file anew."
    return f"Cannot read {path} ({(str(error).splitlines() or [''])[0]}): copy the file anew."


def _read_json(path: Path) -> Table:
    """A list of objects, perhaps as the only list of an object around it, or columns; else one object per line. All
    that a .json does not hold as one value is lines."""
    with _open(path) as file:
        head = file.peek(LOOKED_AT)[:LOOKED_AT]
    is_list = head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")
    if not is_list and kind_of(path) != ".json":
        return _read_json_lines(path, head)
    with _open(path) as file:
        text = file.read()
    try:
        whole = _parse(text, path)
    except DataError:
        if is_list:
            raise
        return _read_json_lines(path, head)
    halves = _has_halves(text)
    numbered = enumerate(_rows_of(whole), start=1)
    return Table([_checked(columns, path, number, has_halves=halves) for number, columns in numbered])


def _read_json_lines(path: Path, head: bytes) -> Table:
    """head: how the file begins."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{path} is {NOT_UTF_8}")
    rows = []
    with _open(path) as lines:
        for number, line in enumerate(lines, start=1):
            if text := line.strip():
                rows.append(_checked(_parse(text, path, number), path, number, has_halves=_has_halves(text)))
    return Table(rows)


def _parse(text: bytes, path: Path, line: int = 1) -> Any:
    """line: where the text begins in the file."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = "not text in UTF-8"
        if isinstance(error, json.JSONDecodeError):
            problem, line = error.msg, line + error.lineno - 1
        raise Row({}, str(path), line).error(f"not valid JSON ({problem}): correct or remove this line.") from error


def _checked(columns: Any, path: Path, number: int, *, has_halves: bool) -> Row:
    row = Row(columns, str(path), number)
    if not isinstance(columns, dict):
        raise row.error('not a JSON object: a row looks like {"sentence": "...", "label": 0}.')
    if has_halves:
        try:
            json.dumps(columns, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise row.error("half of a character (a surrogate alone): correct or remove the row.") from error
    return row


def _has_halves(text: bytes) -> bool:
    """Has it escapes of surrogates, which are halves of characters and come in pairs?"""
    return b"\\ud" in text or b"\\uD" in text


def _rows_of(whole: Any) -> list[Any]:
    """Columns are lists, or objects by numbers of rows, which is what pandas writes unless it is told otherwise. It may
    also write rows by their numbers, or cells without names (orient="index" and "split")."""
    if not isinstance(whole, dict):
        return whole if isinstance(whole, list) else [whole]
    if whole.keys() == {"columns", "index", "data"} and {type(one) for one in whole.values()} == {list}:
        names, cells = whole["columns"], whole["data"]
        if all(isinstance(one, list) and len(one) == len(names) for one in cells):
            return [dict(zip(names, one, strict=True)) for one in cells]
    if whole and all(name.isdecimal() and isinstance(row, dict) for name, row in whole.items()):
        return list(whole.values())
    lists = [rows for name, rows in whole.items() if isinstance(rows, list) and name not in CHATS]
    lists = [rows for rows in lists if rows and all(isinstance(row, dict) for row in rows)]
    if len(lists) == 1:
        return lists[0]
    columns = [list(value.values()) if isinstance(value, dict) else value for value in whole.values()]
    if {type(value) for value in whole.values()} not in ({list}, {dict}) or len(set(map(len, columns))) > 1:
        return [whole]
    return [dict(zip(whole, cells, strict=True)) for cells in zip(*columns, strict=True)]


def _read_csv(path: Path) -> Table:
    """The first line names the columns. What divides the cells of a .csv is what its first line has most of."""
    csv.field_size_limit(sys.maxsize)
    with _open(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
        head = text.readline()
        divider = "\t" if kind_of(path) == ".tsv" else max(",;\t", key=head.count)
        has_spaces = f"{divider} " in head  # then cells have them, too
        reader = csv.DictReader(chain([head], text), delimiter=divider, strict=True, skipinitialspace=has_spaces)
        rows = []
        try:
            for columns in reader:
                rows.append(Row(columns, str(path), reader.line_num))  # noqa: PERF401  # line_num is of this row
        except csv.Error as error:
            problem = f'broken quotes ({error}): put a cell that has quotes into quotes, and double those ("").'
            raise Row({}, str(path), reader.reader.line_num).error(problem) from error
    names = reader.fieldnames or ()
    if head_row := next((row for row in rows if names and all(row.columns.get(name) == name for name in names)), None):
        raise head_row.error("the first line of the file comes again, with the names of the columns: remove it.")
    again = {name: sum(row.columns.get(name) == name for row in rows) for name in names if name}
    if any(name.isdecimal() or REPEATED * cells > len(rows) for name, cells in again.items()):
        raise DataError(f"{path} begins with a row: write the names of the columns into its first line.")
    if twice := next((name for name in names if name and list(names).count(name) > 1), None):
        raise DataError(f'{path} has several columns "{twice}": give each a name of its own.')
    for row in rows:
        if None in row.columns or None in row.columns.values():
            raise row.error(f"not as many cells as the first line, which has {len(names)}: correct it.")
    return Table(rows)


def _read_text(path: Path) -> Table:
    """Every line is a text; empty ones are skipped."""
    with _open(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig") as lines:
        texts = ((number, line.rstrip("\n")) for number, line in enumerate(lines, start=1))
        return Table([Row({"text": text}, str(path), number) for number, text in texts if text.strip()])


def _read_saved(folder: Path) -> dict[str, Reader]:
    """What `datasets.save_to_disk` wrote. Raises DataError."""
    import datasets

    try:
        found = datasets.load_from_disk(str(folder))
    except Exception as error:  # Foreign files may raise anything.
        raise DataError(_complaint(folder, error)) from error
    splits = found if isinstance(found, datasets.DatasetDict) else {"train": found}
    return {str(name): partial(of_dataset, rows, f"{folder} {name}") for name, rows in splits.items()}


def _open(path: Path) -> io.BufferedReader:
    opener = OPENERS.get(path.suffix.lower())
    return path.open("rb") if opener is None else opener(path)


def _open_zstd(path: Path) -> io.BufferedReader:
    import pyarrow

    return io.BufferedReader(pyarrow.input_stream(str(path), compression="zstd"))


OPENERS: Mapping[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _open_zstd,
}
"""By the ending of a compressed file: opens it for reading bytes."""

KINDS: Mapping[str, Callable[[Path], Table]] = {
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": read_parquet,
    ".arrow": read_arrow,
    ".txt": _read_text,
}
"""By the ending of a file: reads it."""

WHAT_IS_READ = f"rows are in files that end in {', '.join(KINDS)}, or in one of these and {', '.join(OPENERS)}"
