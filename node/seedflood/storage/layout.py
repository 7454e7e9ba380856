"""The file behind a journal: its tables, and how it comes into being.

A journal is made as a draft and renamed when it is complete and on the disk, so that a file in its place without
tables is a damaged one, never a young one.

Pages that compaction frees are used again; while they are more than half of the file, some are given back to the file
system with every commit (auto_vacuum = INCREMENTAL). One process has the file at a time, so sqlite needs no index of
its log in shared memory (locking_mode = EXCLUSIVE in `store`): one file less that can be damaged or run out of space.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from seedflood import durable
from seedflood.errors import ConfigError
from seedflood.storage.records import Identity, encode_identity

FORMAT_VERSION = 5
PAGE_BYTES = 4096

IDENTITY, INCARNATION = 1, 2
"""Keys of `meta`."""

SCHEMA = (
    "CREATE TABLE meta (key INTEGER PRIMARY KEY, record BLOB NOT NULL)",
    "CREATE TABLE strands (number INTEGER PRIMARY KEY, origin INTEGER NOT NULL, step INTEGER NOT NULL, "
    "last INTEGER NOT NULL, bundles INTEGER NOT NULL, record BLOB NOT NULL)",
    "CREATE UNIQUE INDEX strands_by_origin ON strands (origin, step)",
    "CREATE TABLE members (origin INTEGER NOT NULL, has_spoken INTEGER NOT NULL, record BLOB NOT NULL, "
    "PRIMARY KEY (origin, has_spoken)) WITHOUT ROWID",
    "CREATE TABLE epochs (epoch INTEGER PRIMARY KEY, frontier BLOB NOT NULL, coefficients BLOB NOT NULL)",
)


@contextlib.contextmanager
def draft(place: Path, identity: Identity) -> Iterator[sqlite3.Connection]:
    """A new journal with empty tables (mode 0600) to be filled; at the end it is on the disk and named `place`."""
    with (
        durable.draft(place) as path,
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection,
    ):
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = OFF")  # a draft that fails is thrown away
        connection.execute("BEGIN IMMEDIATE")
        for statement in SCHEMA:
            connection.execute(statement)
        connection.execute("INSERT INTO meta VALUES (?, ?)", (IDENTITY, encode_identity(identity)))
        yield connection
        connection.execute("COMMIT")


def check_identity(path: Path, found: Identity, wanted: Identity) -> None:
    """Raises ConfigError if the journal is not that of this run, or made by another release."""
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
