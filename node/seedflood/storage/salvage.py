"""Makes a journal usable, whatever has happened to its file.

Opening checks everything: the pages (sqlite's integrity check, which covers the indexes), the log, and the CRC of every
record. A file that fails is replaced by a new one with every record that can still be read; the damaged file stays
beside it. The operator has nothing to decide: the node pulls what is lost from its neighbours.

The run is part of each record's checksum (`records`). So no record of another run is ever taken over, even if the
record that names the run can no longer be read. If that one can be read and names another run, the file is left as it
is.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seedflood.durable import sync_folder
from seedflood.storage.layout import draft
from seedflood.storage.records import ChecksumError, Identity
from seedflood.storage.sqlite_pages import Row, SqlitePages
from seedflood.storage.store import Store
from seedflood.storage.tables import Meta, Table

TablesOf = Callable[[Store], Sequence[Table]]
"""The tables that a class of journals has beside `Meta`, in an open file."""

_SALVAGED = ".salvaged"
_DAMAGED = ".damaged"
_FAULTS_OF_THE_HOST = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_NOLFS,
}
_UNREADABLE = {sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS}


@dataclass(frozen=True, slots=True)
class Damage:
    """A journal was damaged when it was opened. kept, lost: how many items of each kind; lost is None if it cannot be
    known. kept_at: the damaged file."""

    kept: Mapping[str, int]
    lost: Mapping[str, int | None]
    kept_at: Path

    def facts(self) -> dict[str, object]:
        """As plain values, for a line of the log."""
        kept = {f"{kind}_kept": count for kind, count in self.kept.items()}
        lost = {f"{kind}_lost": count for kind, count in self.lost.items()}
        return {**kept, **lost, "kept_at": str(self.kept_at)}


def make_usable(path: Path, identity: Identity, tables_of: TablesOf) -> Damage | None:
    """Creates the journal, finds it sound, or salvages it. Returns the damage, None if there was none.

    Afterwards all its tables have passed `Table.is_whole`. Raises ConfigError, sqlite3.Error, OSError.
    """
    is_interrupted = _with(path, _SALVAGED).exists()
    if is_interrupted:
        _replace(path)
    if not _is_there(path):
        with draft(path) as connection:
            _Tables(path, connection, identity, tables_of).create()
            return None
    with SqlitePages(path) as pages:
        found: dict[str, int] = {}
        is_readable = pages.is_header_intact and pages.is_log_intact
        if is_readable and _is_sound(path, identity, tables_of, found):
            return Damage(found, dict.fromkeys(found), _with(path, _DAMAGED)) if is_interrupted else None
        with draft(_with(path, _SALVAGED)) as connection:
            tables = _Tables(path, connection, identity, tables_of)
            tables.create()
            tables.rescue(pages.rows())
            kept, are_whole = tables.counts(), tables.are_whole()
            assert are_whole, "what was taken is whole"
    _replace(path)
    lost = {kind: max(0, found[kind] - count) if kind in found else None for kind, count in kept.items()}
    return Damage(kept, lost, _with(path, _DAMAGED))


class _Tables:
    """All tables of an open file."""

    def __init__(self, path: Path, connection: sqlite3.Connection, identity: Identity, tables_of: TablesOf) -> None:
        """path: of the journal, even if the open file is a draft of it."""
        store = Store(path, connection)
        self._connection = connection
        self._meta = Meta(store, identity)
        self._all = [self._meta, *tables_of(store)]

    def create(self) -> None:
        for statement in self._schema():
            self._connection.execute(statement)
        self._meta.put_identity()

    def are_there(self) -> bool:
        """Is the schema the expected one? Raises ConfigError if the file belongs to another run."""
        schema = self._connection.execute("SELECT CAST(sql AS BLOB) FROM sqlite_master ORDER BY rowid").fetchall()
        if schema != [(statement.encode(),) for statement in self._schema()]:
            return False
        self._meta.check()
        return True

    def counts(self) -> dict[str, int]:
        return {kind: count for table in self._all for kind, count in table.counts().items()}

    def are_whole(self) -> bool:
        return all(table.is_whole() for table in self._all)

    def rescue(self, rows: Iterable[Row]) -> None:
        """Raises ConfigError if the rows belong to another run."""
        for row in rows:
            for table in self._all:
                table.rescue(row)
        for table in self._all:
            table.settle()

    def _schema(self) -> list[str]:
        return [statement for table in self._all for statement in table.schema]


def _is_there(path: Path) -> bool:
    """Is there a file or a log that is not empty?"""
    return any(file.exists() and file.stat().st_size for file in (path, _with(path, "-wal")))


def _is_sound(path: Path, identity: Identity, tables_of: TablesOf, counts: dict[str, int]) -> bool:
    """Does the journal pass all checks? Also fills `counts`, if sqlite can read so much. Raises ConfigError if the
    journal belongs to another run. A file that sqlite cannot read is not sound, and no error."""
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            tables = _Tables(path, connection, identity, tables_of)
            if not tables.are_there():
                return False
            counts.update(tables.counts())
            is_consistent = connection.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]
            return is_consistent and tables.are_whole()
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
        if code & 0xFF in _FAULTS_OF_THE_HOST and code not in _UNREADABLE:
            raise
    except (ChecksumError, UnicodeDecodeError):  # the latter: sqlite quotes a damaged schema in its error message
        pass
    return False


def _replace(path: Path) -> None:
    """Puts the salvaged file in the place of the damaged one. After a crash in between, the next opening finishes
    this."""
    damaged = _with(path, _DAMAGED)
    for suffix in ("-wal", "-shm", "-journal"):  # sqlite would apply the log of the old file to the new one
        _with(damaged, suffix).unlink(missing_ok=True)
        if _with(path, suffix).exists():
            os.replace(_with(path, suffix), _with(damaged, suffix))
    if path.exists():
        os.replace(path, damaged)
    sync_folder(path.parent)
    os.replace(_with(path, _SALVAGED), path)
    sync_folder(path.parent)


def _with(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
