"""The file behind a journal: how it is created, and a check that it belongs to this run.

A journal is made as a draft, and renamed when it is complete and on the disk. So a file under its name that has no
tables is damaged, not new.

Pages that compaction frees are used again. While they are more than half of the file, every commit gives some back to
the file system (auto_vacuum = INCREMENTAL). Only one process has the file open, so sqlite needs no index of its log in
shared memory (locking_mode = EXCLUSIVE in `store`): one file less that can be damaged or run out of space.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from seedflood import durable
from seedflood.errors import ConfigError
from seedflood.storage.records import Identity

FORMAT_VERSION = 6
"""Format 5 had no records, and kept members in a table that `sqlite_pages` cannot read."""

PAGE_BYTES = 4096


@contextlib.contextmanager
def draft(place: Path) -> Iterator[sqlite3.Connection]:
    """A new file (mode 0600), for the block to create tables in. After the block it is on the disk, named `place`."""
    with (
        durable.draft(place) as path,
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection,
    ):
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = OFF")  # a draft that fails is thrown away
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")


def check_identity(path: Path, found: Identity, wanted: Identity) -> None:
    """Raises ConfigError if the journal belongs to another run or base model, or has another format."""
    if found.format != wanted.format:
        raise ConfigError(
            f"{path} has journal format {found.format}, this release reads {wanted.format}; use the release that "
            "wrote it or another --state folder"
        )
    if found.run_id != wanted.run_id:
        raise ConfigError(
            f"{path} belongs to run {found.run_id.hex()[:16]}, [run] here is {wanted.run_id.hex()[:16]}; use another "
            "--state folder or put back the [run] settings it was made with"
        )
    if found.base_digest != wanted.base_digest:
        raise ConfigError(
            f"{path} was made with other base model weights; use another --state folder or the same weights"
        )
