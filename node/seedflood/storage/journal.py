"""The journal: what any node has to find again after a crash, whatever it trains by.

That is the newest statement of each member, how often the node was started, and the records of its algorithm: values
under keys of its own. An algorithm that keeps more derives a journal with more tables (`storage/seedflood`). What is
kept joins a group (`store`), which ends

* durably (what we are about to say): on the disk before `keep` returns, so that after any crash, power failure
  included, nobody hears something else from this node;
* by `commit` (what others said): a power failure may lose the tail, which neighbours have and repair brings back.

A damaged file is found when it is opened, and what can be read of it is kept (`salvage`). Then an earlier value of a
record may take the place of one that was lost. Reads never hold a statement open between batches: a slow peer blocks
neither writes nor the checkpoint that keeps the log file small.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Self

from seedflood.errors import ExitCode, JournalError
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.outputs import Record
from seedflood.storage.disk import told
from seedflood.storage.layout import FORMAT_VERSION
from seedflood.storage.records import Identity
from seedflood.storage.salvage import Damage, TablesOf, make_usable
from seedflood.storage.store import Store
from seedflood.storage.tables import Members, Meta, Records, Table


class JournalLockedError(JournalError):
    """Another living process has the journal: it may be on its way out, so trying again is right."""

    exit_code = ExitCode.TRY_AGAIN


class Opened(NamedTuple):
    """A file that can be used. damage: what had happened to it. lock: the descriptor that keeps other processes out."""

    store: Store
    identity: Identity
    damage: Damage | None
    lock: int


class Journal:
    """`Journal.open`, then `keep`, `commit`; `close`. One thread at a time.

    Every method raises JournalError, those that write DiskFullError if there is no space. Whatever fails undoes the
    whole open group. damage: what had happened to the file when it was opened, if anything.
    """

    def __init__(self, file: Opened) -> None:
        self.path = file.store.path
        self.damage = file.damage
        self._store = file.store
        self._meta = Meta(file.store, file.identity)
        self._members = Members(file.store, file.identity)
        self._records = Records(file.store, file.identity)
        self._lock = file.lock

    @classmethod
    def open(cls, path: Path | str, run_id: bytes, base_digest: bytes) -> Self:
        """Opens or creates the file (mode 0600); what is damaged of it is lost, the rest is kept.

        Raises JournalLockedError if another process has it, ConfigError if it belongs to another run or base model,
        JournalError if it cannot be read or written.
        """
        identity = identity_of(run_id, base_digest)
        with opened(path, identity, lambda store: cls.tables_of(store, identity)) as file:
            return cls(file)

    @staticmethod
    def tables_of(store: Store, identity: Identity) -> list[Table]:
        """What any journal has in its file."""
        return [Members(store, identity), Records(store, identity)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the open group; idempotent. What was kept is in one file afterwards."""
        if self._lock < 0:
            return
        try:
            self._store.close()
        finally:
            os.close(self._lock)
            self._lock = -1

    def keep(self, members: Iterable[Member], records: Iterable[Record] = (), *, durable: bool) -> None:
        """Adds to the open group; `durable`: the group is on the disk before this returns.

        A statement older than the one that is there is skipped; a record takes the place of the one with its key.
        """
        with self._store.writing(durable=durable):
            for member in members:
                self._members.put(member)
            self._records.put(records)

    def commit(self) -> None:
        """Ends the open group: from here on kill -9 cannot take it away."""
        self._tidy()
        self._store.commit()

    def members(self) -> list[Member]:
        """Of each origin the newest statement that speaks of its steps, and the newest that does not."""
        return self._members.all()

    def records(self) -> dict[bytes, bytes]:
        """Of each key the newest value, in the order in which these were kept."""
        return self._records.all()

    def size(self) -> dict[str, int]:
        """What operators are shown: the bytes of the file and its log, and how much there is, by kind."""
        size = 0
        for path in (self.path, self.path.with_name(f"{self.path.name}-wal")):
            with contextlib.suppress(OSError):
                size += path.stat().st_size
        return {"bytes": size, "records": self._records.count()}

    def next_incarnation(self, at_least: int = 1) -> int:
        """Counts the starts of this node, durably. at_least: the clock, so that a lost journal does not count again."""
        incarnation = max(self._meta.last_incarnation() + 1, at_least)
        with self._store.writing(durable=True):
            self._meta.put_incarnation(incarnation)
        return incarnation

    def _tidy(self) -> None:
        """Joins the group before it ends."""
        self._store.shrink()


def identity_of(run_id: bytes, base_digest: bytes) -> Identity:
    """Of a journal that this release writes."""
    return Identity(FORMAT_VERSION, run_id, base_digest)


@contextlib.contextmanager
def opened(path: Path | str, identity: Identity, tables_of: TablesOf) -> Iterator[Opened]:
    """The file, locked and fit for use; closed again if the block that makes a journal of it fails. Raises like
    `Journal.open`."""
    path = Path(path)
    with contextlib.ExitStack() as undo:
        lock = _take_lock(path)
        undo.callback(os.close, lock)
        with told(path, "open"):
            damage = make_usable(path, identity, tables_of)
            store = Store.open(path)
        undo.callback(store.close)
        yield Opened(store, identity, damage, lock)
        undo.pop_all()


def _take_lock(path: Path) -> int:
    """The lock is a file of its own and falls with the process, however that ends."""
    with told(path, "open"):
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise JournalLockedError(
            f"another seedflood process uses {path}; stop it, or give this one another --state folder", path=str(path)
        ) from None
    return lock
