"""One sqlite file in write-ahead mode, written with group commit.

A *group* is one transaction. The first write opens it. It ends in one of two ways:

* durably: on the disk before the write returns. sqlite commits with synchronous = NORMAL, which writes the log file but
  does not wait for the disk. Then one fdatasync of the log file, called here, covers everything that was written so
  far. sqlite could do that itself (synchronous = FULL), but this must be set before a group opens, and nobody knows
  then how the group will end.
* by `commit`: the data is with the operating system, so `kill -9` loses nothing; a power failure may lose the last
  groups.

A write that fails rolls back the whole group. Reads see the open group. No SQL statement stays open after a read.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from seedflood.durable import sync_folder
from seedflood.errors import JournalError
from seedflood.storage.disk import disk_errors
from seedflood.storage.records import ChecksumError

WAL_BYTES_MAX = 64 << 20
"""After a checkpoint the log file is cut back to this size."""

CHECKPOINT_PAGES = 4096
"""Pages of log between two checkpoints: 16 MB. A checkpoint waits for the disk; with fewer of them, pages that are
written often are copied less often."""

CACHE_BYTES = 16 << 20
"""Enough for one epoch, whose pages are read once per origin: 9 MB for 64 origins and 1,000 steps."""


class Store:
    """`Store.open` an existing file, then `writing`, `commit`, `rows`; `close`. For one thread at a time."""

    def __init__(self, path: Path, connection: sqlite3.Connection, log: int = -1) -> None:
        self.path = path
        self.connection = connection
        self.group = 0
        """The number of the open group, or of the last one if none is open."""
        self.when_undone: list[Callable[[], None]] = []
        """Called when a group is rolled back: whoever caches content of the file must drop what that group wrote."""
        self._log = log

    @classmethod
    def open(cls, path: Path) -> Self:
        """Raises sqlite3.Error, OSError."""
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # so sqlite needs no index of its log in a file
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_MAX}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            connection.execute(f"PRAGMA cache_size = {-CACHE_BYTES >> 10}")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA secure_delete = OFF")  # there is nothing secret in it
            connection.execute("BEGIN IMMEDIATE")  # creates the log file
            connection.execute("COMMIT")
            log = os.open(f"{path}-wal", os.O_RDONLY | os.O_CLOEXEC)
            sync_folder(path.parent)
        except BaseException:
            connection.close()
            raise
        return cls(path, connection, log)

    def close(self) -> None:
        """Commits and closes; idempotent. Afterwards everything is in one file, if there is space. Raises
        JournalError."""
        if self._log < 0:
            return
        try:
            self.commit()
        finally:
            os.close(self._log)
            self._log = -1
            with disk_errors(self.path, "close"):
                self.connection.close()

    @contextlib.contextmanager
    def writing(self, *, durable: bool) -> Iterator[None]:
        """A block of writes in the open group, or in a new one. durable: the group also ends with the block. Raises
        JournalError."""
        with self._undoing():
            if not self.connection.in_transaction:
                self.connection.execute("BEGIN IMMEDIATE")
                self.group += 1
            yield
        if durable:
            self.commit()
            self._force()

    def commit(self) -> None:
        """Ends the open group, if there is one. Raises JournalError."""
        with self._undoing():
            if self.connection.in_transaction:
                self.connection.execute("COMMIT")

    def rows(self, query: str, *values: int | bytes) -> list[Any]:
        """All rows at once, so that no SQL statement stays open. Raises JournalError."""
        with disk_errors(self.path, "read"):
            return self.connection.execute(query, values).fetchall()

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """A record is read in this block. A wrong checksum raises JournalError, which calls the record by this name."""
        try:
            yield
        except ChecksumError:
            raise JournalError(
                f"{self.path}: {name} fails its checksum, so the disk has changed it; check the disk, then start "
                "again: the neighbours have what is lost"
            ) from None

    @contextlib.contextmanager
    def _undoing(self) -> Iterator[None]:
        with disk_errors(self.path, "write"):
            try:
                yield
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                for forget in self.when_undone:
                    forget()
                raise

    def _force(self) -> None:
        """Fsyncs the log. An error is final: the kernel drops pages that it could not write, so a retry proves
        nothing."""
        try:
            os.fdatasync(self._log)
        except OSError as error:
            raise JournalError(
                f"cannot force the journal {self.path} onto the disk: {error}; check that the disk is healthy"
            ) from error
