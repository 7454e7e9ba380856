"""Opens the file of a journal: creates it, finds it sound, or sets it aside.

Opening checks everything: the pages (sqlite's integrity check, which covers the indexes), the schema, the seal of every
record, and the log. A file that fails is *damaged*. It is renamed, and an empty one takes its place. So the node has
lost its past, as with a lost disk: it is amnesic (`protocol/seedflood/catchup`), and pulls everything from its
neighbours. Nothing is salvaged: what was lost besides is unknown, so every neighbour has to be asked anyway. An error
of the disk is no damage: it is raised, and ends the process.

A *log* ends early after a power failure, in the writes that nobody forced onto the disk. sqlite takes what stands
before that for the whole log, and so do we. The same goes for a log in which the disk changed what was forced. Then the
node does not know that it forgot something; its first neighbours show it (`tests/system/test_disks.py`).

A journal is made as a draft, and renamed when it is complete and on the disk. So an empty file under its name is
damaged, not new. Pages that compaction frees are used again; the file never becomes smaller.
"""

import contextlib
import os
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from seedflood import durable
from seedflood.errors import ConfigError, JournalError
from seedflood.storage.records import ChecksumError, RunMark
from seedflood.storage.store import Store
from seedflood.storage.tables import Meta

if TYPE_CHECKING:
    from seedflood.storage.journal import Journal

FORMAT_VERSION = 13
"""Formats up to 6 were packed bytes; rows of this one are protobuf. Up to 8 no rows of tokens were sent."""

PAGE_BYTES = 4096
DAMAGED_SUFFIX = ".damaged"

_MAGIC = b"SQLite format 3\0" + struct.pack(">H", PAGE_BYTES)
_READABLE = (b"\1\1", b"\2\2")
"""Versions of the file format, for writing and for reading: with any other, sqlite would open it for reading only."""

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA}


_Journal = TypeVar("_Journal", bound="Journal")


def open_sound(path: Path, identity: RunMark, make: Callable[[Store], _Journal]) -> tuple[_Journal, Path | None]:
    """The journal that `make` makes of a file that is whole; and where the file is that was set aside, if it was.

    Raises ConfigError if it belongs to another run, sqlite3.Error, OSError.
    """
    damaged = None
    if path.exists() or _with(path, "-wal").exists():
        if (journal := _open_whole(path, identity, make)) is not None:
            return journal, None
        damaged = _set_aside(path)
    _create(path, identity, make)
    return make(Store.open(path)), damaged


def check_run(path: Path, run_id: bytes, base_digest: bytes | None) -> None:
    """Raises ConfigError if this file, which may be in use, belongs to another run or base model (None: any). Nothing
    is locked, made or written, and the identity is never in the log."""
    with contextlib.suppress(sqlite3.Error, ChecksumError):  # damaged or none: one that is whole takes its place
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            found = Meta(Store(path, connection)).identity()
        _check_identity(path, found, RunMark(FORMAT_VERSION, run_id, base_digest or found.base_digest))


def _create(path: Path, identity: RunMark, make: Callable[[Store], "Journal"]) -> None:
    """A new file (mode 0600)."""
    with (
        durable.draft(path) as draft,
        contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection,
    ):
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = OFF")  # a draft that fails is thrown away
        connection.execute("BEGIN IMMEDIATE")
        store = Store(path, connection)
        for statement in _schema(make(store)):
            connection.execute(statement)
        Meta(store).put_identity(identity)
        connection.execute("COMMIT")


def _open_whole(path: Path, identity: RunMark, make: Callable[[Store], _Journal]) -> _Journal | None:
    """None if the file is damaged. A file that sqlite cannot read is damaged; one that the host cannot read is an
    error."""
    if not _has_readable_header(path):
        return None
    with contextlib.ExitStack() as undo:
        try:
            store = Store.open(path)
            undo.callback(_discard, store)
            journal = make(store)
            if _is_sound(store, identity, journal):
                undo.pop_all()
                return journal
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
            if code & 0xFF not in _DAMAGED and code != sqlite3.SQLITE_IOERR_SHORT_READ:
                raise
        except (ChecksumError, UnicodeDecodeError):  # the latter: sqlite quotes a damaged schema in its error message
            pass
    return None


def _is_sound(store: Store, identity: RunMark, journal: "Journal") -> bool:
    """Raises ConfigError if the file belongs to another run, ChecksumError or sqlite3.Error if it is damaged."""
    meta, connection = Meta(store), store.connection
    _check_identity(store.path, meta.identity(), identity)
    schema = connection.execute("SELECT CAST(sql AS BLOB) FROM sqlite_master ORDER BY rowid").fetchall()
    if schema != [(statement.encode(),) for statement in _schema(journal)]:
        return False
    is_consistent = connection.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]
    return is_consistent and all(table.is_whole() for table in (meta, *journal.tables))


def _schema(journal: "Journal") -> list[str]:
    return [statement for schema in (Meta.schema, *(one.schema for one in journal.tables)) for statement in schema]


def _check_identity(path: Path, found: RunMark, wanted: RunMark) -> None:
    """Raises ConfigError if the journal belongs to another run or base model, or has another format."""
    if found.format != wanted.format:
        raise ConfigError(
            f"{path} has journal format {found.format}, this release reads {wanted.format}; use the release that "
            "wrote it or another --state folder"
        )
    if found.run_id != wanted.run_id:
        raise ConfigError(
            f"{path} belongs to run {found.run_id.hex()[:16]}, [run] here is {wanted.run_id.hex()[:16]}; put back "
            "the [run] settings it was made with and let `seedflood continue` make the next run from it, or use "
            "another --state folder"
        )
    if found.base_digest != wanted.base_digest:
        raise ConfigError(
            f"{path} was made with other base model weights: put those back, or delete {path.name}* to begin anew (not "
            "identity.pem beside it, the key by which others know this host)"
        )


def _has_readable_header(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC) + 2)
    except FileNotFoundError:  # only its log is there
        return False
    return head.startswith(_MAGIC) and head[len(_MAGIC) :] in _READABLE


def _set_aside(path: Path) -> Path:
    """Renames the file and its log: sqlite would apply the log to the new file. The file goes first, for without its
    log it might pass for whole. A log without a file does not, so after a crash in between this is done again."""
    damaged = _with(path, DAMAGED_SUFFIX)
    for suffix in ("", "-wal", "-shm", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            os.replace(_with(path, suffix), _with(damaged, suffix))
            durable.sync_folder(path.parent)
    return damaged


def _discard(store: Store) -> None:
    with contextlib.suppress(JournalError):
        store.close()


def _with(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
