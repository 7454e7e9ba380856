"""One sqlite file in write-ahead mode, written in groups.

A *group* is one transaction. It opens with the first write and ends

* durably: on the disk before the write returns. sqlite commits (synchronous = NORMAL: it writes the log file and does
  not wait for the disk), then the log file is forced here: one fdatasync for all that was ever written. Asking sqlite
  for it (synchronous = FULL) must happen before the group opens, when nobody knows yet how it will end.
* by `commit`: handed to the operating system, so kill -9 loses nothing; a power failure may lose the tail.

Whatever fails undoes the whole group. Reads see the open group, and never hold a statement open.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

from seedflood.durable import sync_folder
from seedflood.errors import JournalError
from seedflood.storage.disk import told
from seedflood.storage.records import ChecksumError

WAL_BYTES_MAX = 64 << 20
"""What the log file is cut back to after a checkpoint."""

CHECKPOINT_PAGES = 4096
"""16 MB of log between two checkpoints, which wait for the disk: pages that are written often are copied less often."""

SHRINK_PAGES = 16
"""Given back to the file system at once: about 1 ms."""

CACHE_BYTES = 16 << 20
"""Who reads by origin meets every page of an epoch once per origin: 9 MB for 64 origins and 1,000 steps."""

_Decoded = TypeVar("_Decoded")


class Store:
    """`Store.open` an existing file, then `writing`, `commit`, `rows`; `close`. One thread at a time."""

    def __init__(self, path: Path, connection: sqlite3.Connection, log: int = -1) -> None:
        self.path = path
        self.connection = connection
        self.group = 0
        """The open group, or the last one: they are counted."""
        self.when_undone: list[Callable[[], None]] = []
        """Told when a group is undone: whoever remembers what is in the file has to forget what was in it."""
        self._log = log

    @classmethod
    def open(cls, path: Path) -> Self:
        """Raises sqlite3.Error, OSError."""
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # see `layout`
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_MAX}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            connection.execute(f"PRAGMA cache_size = {-CACHE_BYTES >> 10}")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA secure_delete = OFF")  # there is nothing secret in it
            connection.execute("BEGIN IMMEDIATE")  # from here on there is a log file
            connection.execute("COMMIT")
            log = os.open(f"{path}-wal", os.O_RDONLY | os.O_CLOEXEC)
            sync_folder(path.parent)
        except BaseException:
            connection.close()
            raise
        return cls(path, connection, log)

    def close(self) -> None:
        """Commits; idempotent. Afterwards all is in one file, if there is space for that. Raises JournalError."""
        if self._log < 0:
            return
        try:
            self.commit()
        finally:
            os.close(self._log)
            self._log = -1
            with told(self.path, "close"):
                self.connection.close()

    @contextlib.contextmanager
    def writing(self, *, durable: bool) -> Iterator[None]:
        """Joins or opens the group; `durable` also ends it. Raises JournalError."""
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

    def shrink(self) -> None:
        """Gives some pages back to the file system if more than half of the file is free; joins the group."""
        ((pages,),), ((free,),) = self.rows("PRAGMA page_count"), self.rows("PRAGMA freelist_count")
        if 2 * free > pages:
            with self.writing(durable=False):
                for _ in range(min(2 * free - pages, SHRINK_PAGES)):
                    self.connection.execute("PRAGMA incremental_vacuum(1)")  # gives no rows, so it goes one step only

    def rows(self, query: str, *values: int) -> list[Any]:
        """Everything at once: no statement stays open. Raises JournalError."""
        with told(self.path, "read"):
            return self.connection.execute(query, values).fetchall()

    def decode(self, decode: Callable[[bytes, int], _Decoded], record: bytes, salt: int, name: str) -> _Decoded:
        """Raises JournalError that names the record."""
        try:
            return decode(record, salt)
        except ChecksumError:
            raise JournalError(
                f"{self.path}: {name} fails its checksum, so the disk has changed it; check the disk, then start "
                "again: what can be read is kept, the neighbours have the rest",
                path=str(self.path),
            ) from None

    @contextlib.contextmanager
    def _undoing(self) -> Iterator[None]:
        with told(self.path, "write"):
            try:
                yield
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                for forget in self.when_undone:
                    forget()
                raise

    def _force(self) -> None:
        """A disk that fails here has failed for good: the kernel forgets what it could not write."""
        try:
            os.fdatasync(self._log)
        except OSError as error:
            raise JournalError(
                f"cannot force the journal {self.path} onto the disk: {error}; check that the disk is healthy",
                path=str(self.path),
            ) from error
