"""The journal: every bundle a node has, in the order in which it learned them, and the newest statement of each member.

The weights follow from the journal alone, and a peer that lacks something is served from it. One sqlite file in
write-ahead mode, one transaction per append (group commit):

* durable (own bundles): on the disk before `append` returns, so that after any crash, power failure included, the
  origin never says something else under the same step. sqlite: synchronous = FULL.
* not durable (bundles of others): handed to the operating system, so kill -9 loses nothing; a power failure may lose
  the tail, which neighbours have and repair brings back. sqlite: synchronous = NORMAL.

A durable append also makes everything appended before it durable: both go through the same log file.

Reads never hold a statement open between batches: a slow peer blocks neither appends nor the checkpoint that keeps the
log file small. Not known here: whether signatures are right, or whether steps follow each other; that is the core's.
"""

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self, TypeVar

from seedflood.errors import ConfigError, ExitCode, JournalError
from seedflood.protocol.messages import BUNDLE_UPDATES_MAX, STEP_MAX, Bundle, Held, Member, OriginId
from seedflood.storage.records import ChecksumError, decode_bundle, decode_member, encode_bundle, encode_member

FORMAT_VERSION = 1
BATCH_BUNDLES = 4096
WAL_BYTES_MAX = 64 << 20
"""What the log file is cut back to after a checkpoint."""

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE bundles (number INTEGER PRIMARY KEY, origin INTEGER NOT NULL, step INTEGER NOT NULL, record BLOB NOT NULL);
CREATE UNIQUE INDEX bundles_by_origin ON bundles (origin, step);
CREATE TABLE members (origin INTEGER PRIMARY KEY, record BLOB NOT NULL);
"""
_SELECT = "SELECT number, record FROM bundles WHERE origin = ? AND step BETWEEN ? AND ? ORDER BY step LIMIT ?"
_INSERT = "INSERT INTO bundles (origin, step, record) VALUES (?, ?, ?) ON CONFLICT (origin, step) DO NOTHING"

_Decoded = TypeVar("_Decoded")


class JournalLockedError(JournalError):
    """Another living process has the journal: it may be on its way out, so trying again is right."""

    exit_code = ExitCode.TRY_AGAIN


class Journal:
    """`Journal.open`, then `append`, `replay`, `read_missing`; `close`. One thread at a time."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: int) -> None:
        self.path = path
        self._connection = connection
        self._lock = lock
        self._synchronous = ""
        self._count = 0

    @classmethod
    def open(cls, path: Path | str, run_id: bytes, base_digest: bytes) -> Self:
        """Opens or creates the file (mode 0600).

        Raises JournalLockedError if another process has it, ConfigError if it belongs to another run or base model,
        JournalError if it cannot be read or written.
        """
        path = Path(path)
        lock = _take_lock(path)
        try:
            with _told(path, "open"):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
                connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            journal = cls(path, connection, lock)
            try:
                with _told(path, "open"):
                    journal._prepare(run_id, base_digest)
            except BaseException:
                connection.close()
                raise
        except BaseException:
            os.close(lock)
            raise
        return journal

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent. What was appended is on disk in one file afterwards."""
        if self._lock < 0:
            return
        try:
            with _told(self.path, "close"):
                self._connection.close()
        finally:
            os.close(self._lock)
            self._lock = -1

    def append(self, bundles: Sequence[Bundle], members: Iterable[Member] = (), *, durable: bool) -> int:
        """Writes all or nothing; returns how many bundles were new. Raises JournalError.

        What is there already is skipped, as is a statement older than the one that is there. A bundle that differs from
        the one under its (origin, step) is a JournalError: the caller must not let equivocation come this far.
        """
        with self._transaction(durable=durable):
            before = self._connection.total_changes
            self._connection.executemany(
                _INSERT, ((_signed(bundle.origin), bundle.step, encode_bundle(bundle)) for bundle in bundles)
            )
            new = self._connection.total_changes - before
            if new < len(bundles):
                self._check_equal(bundles)
            for member in members:
                self._put_member(member)
        self._count += new
        return new

    def count(self) -> int:
        """How many bundles there are."""
        return self._count

    def members(self) -> list[Member]:
        """The newest statement of each origin."""
        with _told(self.path, "read"):
            rows = self._connection.execute("SELECT origin, record FROM members").fetchall()
        return [self._decode(decode_member, record, f"the member {origin % (1 << 64):016x}") for origin, record in rows]

    def replay(self) -> Iterator[Bundle]:
        """All bundles in the order in which they were appended, streamed. Raises JournalError."""
        number = 0
        while rows := self._rows(
            "SELECT number, record FROM bundles WHERE number > ? ORDER BY number LIMIT ?", number, BATCH_BUNDLES
        ):
            for number, record in rows:
                yield self._decode(decode_bundle, record, f"record {number}")

    def read_missing(self, frontier: Iterable[Held], limit: int = 1024) -> Iterator[list[Bundle]]:
        """What the frontier lacks, per origin by step, in batches of 1 to `limit`. Raises JournalError."""
        held = {one.origin: one for one in frontier}
        batch: list[Bundle] = []
        for origin in self._origins():
            done = -1
            for first, last in _gaps(held.get(origin)):
                start = max(done + 1, first - BUNDLE_UPDATES_MAX + 1)
                while rows := self._rows(_SELECT, _signed(origin), start, last, limit):
                    for number, record in rows:
                        bundle = self._decode(decode_bundle, record, f"record {number}")
                        start = bundle.step + 1
                        if bundle.last >= first:
                            done = bundle.step
                            batch.append(bundle)
                            if len(batch) == limit:
                                yield batch
                                batch = []
        if batch:
            yield batch

    def next_incarnation(self, at_least: int = 1) -> int:
        """Counts the starts of this node, durably. at_least: the clock, so that a lost journal does not count again."""
        with self._transaction(durable=True):
            last = self._meta("incarnation")
            incarnation = max(last + 1 if isinstance(last, int) else 1, at_least)
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES ('incarnation', ?)", (incarnation,))
        return incarnation

    def _prepare(self, run_id: bytes, base_digest: bytes) -> None:
        connection = self._connection
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_MAX}")
        if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            with self._transaction(durable=True):
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    connection.execute(statement)
                facts = {"format": FORMAT_VERSION, "run_id": run_id, "base_digest": base_digest}
                connection.executemany("INSERT INTO meta VALUES (?, ?)", facts.items())
            _sync_folder(self.path.parent)
        found = self._meta("format")
        if found != FORMAT_VERSION:
            raise ConfigError(
                f"{self.path} has journal format {found}, this release reads {FORMAT_VERSION}; use the release that "
                "wrote it or another --state folder"
            )
        their_run = self._meta("run_id")
        if their_run != run_id:
            shown = their_run.hex()[:16] if isinstance(their_run, bytes) else "?"
            raise ConfigError(
                f"{self.path} belongs to run {shown}, [run] here is {run_id.hex()[:16]}; use another --state folder or "
                "put back the [run] settings it was made with"
            )
        if self._meta("base_digest") != base_digest:
            raise ConfigError(
                f"{self.path} was made with other base model weights; use another --state folder or the same weights"
            )
        (self._count,) = connection.execute("SELECT COUNT(*) FROM bundles").fetchone()

    @contextlib.contextmanager
    def _transaction(self, *, durable: bool) -> Iterator[None]:
        with _told(self.path, "write"):
            synchronous = "FULL" if durable else "NORMAL"
            if synchronous != self._synchronous:
                self._connection.execute(f"PRAGMA synchronous = {synchronous}")
                self._synchronous = synchronous
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _meta(self, key: str) -> object:
        row = self._connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def _rows(self, query: str, *values: int) -> list[tuple[int, bytes]]:
        with _told(self.path, "read"):
            return self._connection.execute(query, values).fetchall()

    def _decode(self, decode: Callable[[bytes], _Decoded], record: bytes, name: str) -> _Decoded:
        try:
            return decode(record)
        except ChecksumError:
            raise JournalError(
                f"{self.path}: {name} fails its checksum, so the disk has changed it; check the disk, then move the "
                "file away and start again: the neighbours have all of it",
                path=str(self.path),
            ) from None

    def _origins(self) -> Iterator[OriginId]:
        """The index is skipped through, origin by origin, instead of being read."""
        origin = -(1 << 63) - 1
        query = "SELECT origin, NULL FROM bundles WHERE origin >= ? ORDER BY origin LIMIT 1"
        while origin + 1 < 1 << 63 and (rows := self._rows(query, origin + 1)):
            origin = rows[0][0]
            yield origin % (1 << 64)

    def _check_equal(self, bundles: Iterable[Bundle]) -> None:
        for bundle in bundles:
            (record,) = self._connection.execute(
                "SELECT record FROM bundles WHERE origin = ? AND step = ?", (_signed(bundle.origin), bundle.step)
            ).fetchone()
            if record != encode_bundle(bundle):
                raise JournalError(
                    f"{self.path}: origin {bundle.origin:016x} has another bundle at step {bundle.step} already; "
                    "nothing was written (two processes with one identity?)",
                    path=str(self.path),
                )

    def _put_member(self, member: Member) -> None:
        origin = _signed(member.origin)
        row = self._connection.execute("SELECT record FROM members WHERE origin = ?", (origin,)).fetchone()
        if row is None or self._decode(decode_member, row[0], f"the member {member.name}").age <= member.age:
            self._connection.execute("INSERT OR REPLACE INTO members VALUES (?, ?)", (origin, encode_member(member)))


def _signed(origin: OriginId) -> int:
    """sqlite's integers are signed."""
    return origin - (1 << 64) if origin >= 1 << 63 else origin


def _gaps(held: Held | None) -> Iterator[tuple[int, int]]:
    """The steps (first, last) that are not held, in order."""
    if held is None:
        yield 0, STEP_MAX
        return
    first = held.mark
    for low, high in held.beyond:
        yield first, low - 1
        first = high + 1
    yield first, STEP_MAX


@contextlib.contextmanager
def _told(path: Path, verb: str) -> Iterator[None]:
    """Tells an operator what sqlite and the operating system tell programs."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise JournalError(
            f"cannot {verb} the journal {path}: {error}; check that the disk is not full, is healthy and that this "
            "user may write there",
            path=str(path),
        ) from error


def _take_lock(path: Path) -> int:
    """The lock is a file of its own and falls with the process, however that ends."""
    with _told(path, "open"):
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise JournalLockedError(
            f"another seedflood process uses {path}; stop it, or give this one another --state folder", path=str(path)
        ) from None
    return lock


def _sync_folder(folder: Path) -> None:
    """Makes the name of a new file durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
