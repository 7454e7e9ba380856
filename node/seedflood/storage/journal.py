"""The journal, a write-ahead log: what any node has to find again after a crash, whatever it trains by.

It holds the newest statement of each member, how often the node was started, and the records of the algorithm: values
under keys that the algorithm chooses. An algorithm that keeps more derives a journal with more tables
(`storage/seedflood`). Each write joins a group (`store`), which ends in one of two ways:

* durably, for what we are about to say: the group is on the disk before `keep` returns. So after any crash, even a
  power failure, nobody gets something different from this node;
* by `commit`, for what others published: a power failure may lose the last groups. Neighbours have them, and repair
  brings them back.

A damaged file is recognised when it is opened, and set aside (`opening`). No SQL statement stays open between two
batches of a read, so a slow peer blocks neither writes nor the checkpoint that keeps the log file small.
"""

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.outputs import Record
from seedflood.storage.disk import disk_errors
from seedflood.storage.opening import FORMAT_VERSION, open_sound
from seedflood.storage.records import RunMark
from seedflood.storage.store import Store
from seedflood.storage.tables import JournalTable, MemberTable, Meta, RecordTable


class Journal:
    """`Journal.open`, then `keep`, `commit`; `close`. For one thread at a time.

    Every method raises JournalError; those that write raise DiskFullError if there is no space. A write that fails
    rolls back the whole open group. damaged: where the file is that was found damaged when this one was opened; None if
    none was.
    """

    def __init__(self, store: Store) -> None:
        self.path = store.path
        self.damaged: Path | None = None
        self._store = store
        self._meta, self._members, self._records = Meta(store), MemberTable(store), RecordTable(store)

    @classmethod
    def open(cls, path: Path | str, run_id: bytes, base_digest: bytes) -> Self:
        """Opens or creates the file (mode 0600). A damaged one is set aside.

        Raises ConfigError if it belongs to another run or base model, JournalError if it cannot be read or written.
        """
        return cls._open(path, run_id, base_digest, cls)

    @classmethod
    def _open(cls, path: Path | str, run_id: bytes, base_digest: bytes, make: Callable[[Store], Self]) -> Self:
        path = Path(path)
        with contextlib.ExitStack() as undo:
            with disk_errors(path, "open"):
                journal, damaged = open_sound(path, RunMark(FORMAT_VERSION, run_id, base_digest), make)
            undo.callback(journal._store.close)
            journal._begin()
            undo.pop_all()
        journal.damaged = damaged
        return journal

    @property
    def tables(self) -> tuple[JournalTable, ...]:
        """All tables but `Meta`."""
        return self._members, self._records

    def _begin(self) -> None:
        """Called once the file is known to be whole."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Commits the open group and closes the file; idempotent. Afterwards everything is in one file."""
        self._store.close()

    def keep(self, members: Iterable[Member], records: Iterable[Record] = (), *, durable: bool) -> None:
        """Adds to the open group. durable: the group is on the disk before this returns.

        A statement is skipped if a newer one of its origin is there. A record replaces the one with its key.
        """
        with self._store.writing(durable=durable):
            for member in members:
                self._members.put(member)
            self._records.put(records)

    def commit(self) -> None:
        """Ends the open group: afterwards `kill -9` cannot undo it."""
        self._store.commit()

    def members(self) -> list[Member]:
        """For each origin, the newest statement that speaks of its steps and the newest one that does not."""
        return self._members.all()

    def records(self) -> dict[bytes, bytes]:
        """The newest value of each key, in the order in which these values were written."""
        return self._records.all()

    def size(self) -> dict[str, int]:
        """For operators: the bytes of the file and its log, and how many items of each kind it holds."""
        size = 0
        for path in (self.path, self.path.with_name(f"{self.path.name}-wal")):
            with contextlib.suppress(OSError):
                size += path.stat().st_size
        return {"bytes": size, "records": self._records.count()}

    def next_incarnation(self, at_least: int = 1) -> int:
        """Counts the starts of this node, durably, and returns the new number. at_least: taken from the clock, so that
        a node that lost its journal does not use its old numbers again."""
        incarnation = max(self._meta.last_incarnation() + 1, at_least)
        with self._store.writing(durable=True):
            self._meta.put_incarnation(incarnation)
        return incarnation
