"""The tables of any journal: run and starts of the node (`Meta`), statements of members, records of an algorithm.

Methods that are called while a journal is opened may raise sqlite3.Error, all others JournalError. Writes join the open
group.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar
from zlib import crc32

from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.outputs import Record
from seedflood.storage.records import RunMark, is_whole, sealed, unsealed
from seedflood.storage.store import Store
from seedflood.wire import flood_pb2 as pb
from seedflood.wire.members import member_from_wire, member_to_wire

_IDENTITY, _INCARNATION = 1, 2
"""Keys of `meta`."""

_SELECT_META = "SELECT record FROM meta WHERE key = ?"
_PUT_META = "INSERT OR REPLACE INTO meta VALUES (?, ?)"

_SELECT_MEMBER = "SELECT record FROM members WHERE origin = ? AND has_spoken = ?"
_PUT_MEMBER = (
    "INSERT INTO members (origin, has_spoken, record) VALUES (?, ?, ?) "
    "ON CONFLICT (origin, has_spoken) DO UPDATE SET record = excluded.record"
)

_LAST_NUMBER = "SELECT IFNULL(MAX(number), 0) FROM records"
_PUT_RECORD = "INSERT OR REPLACE INTO records VALUES (?, ?, ?)"


class JournalTable(ABC):
    """A table of a journal, or some that belong together. schema: the SQL statements that create it. sqlite keeps their
    text, and a text that differs counts as damage."""

    schema: ClassVar[tuple[str, ...]]

    def __init__(self, store: Store) -> None:
        self._store = store

    @abstractmethod
    def is_whole(self) -> bool:
        """Is every record what was written? Reads row by row, for a journal may be larger than memory."""


class Meta(JournalTable):
    """To which run the journal belongs, and the incarnation of its node."""

    schema = ("CREATE TABLE meta (key INTEGER PRIMARY KEY, record BLOB NOT NULL)",)

    def put_identity(self, identity: RunMark) -> None:
        self._store.connection.execute(_PUT_META, (_IDENTITY, identity.packed()))

    def identity(self) -> RunMark:
        """Raises ChecksumError if it cannot be read."""
        rows = self._store.connection.execute(_SELECT_META, (_IDENTITY,)).fetchall()
        return RunMark.unpack(rows[0][0] if rows else b"")

    def last_incarnation(self) -> int:
        """The newest incarnation of the node; 0 before its first start."""
        with self._store.reading("the incarnation"):
            rows = self._store.rows(_SELECT_META, _INCARNATION)
            return int.from_bytes(unsealed(rows[0][0], _INCARNATION), "big") if rows else 0

    def put_incarnation(self, incarnation: int) -> None:
        record = sealed(incarnation.to_bytes(8, "big"), _INCARNATION)
        self._store.connection.execute(_PUT_META, (_INCARNATION, record))

    def is_whole(self) -> bool:
        """The identity was checked before."""
        rows = self._store.connection.execute("SELECT key, record FROM meta WHERE key != ?", (_IDENTITY,))
        return all(key == _INCARNATION and is_whole(record, key) for key, record in rows)


class MemberTable(JournalTable):
    """For each origin, the newest statement that speaks of its steps and the newest one that does not."""

    schema = (
        "CREATE TABLE members (number INTEGER PRIMARY KEY, origin INTEGER NOT NULL, has_spoken INTEGER NOT NULL, "
        "record BLOB NOT NULL)",
        "CREATE UNIQUE INDEX members_by_origin ON members (origin, has_spoken)",
    )

    def all(self) -> list[Member]:
        return [self._decode(record) for (record,) in self._store.rows("SELECT record FROM members")]

    def put(self, member: Member) -> None:
        """Writes a statement, unless a newer one of its origin is there."""
        name = signed(member.origin), int(member.has_spoken)
        if all(self._decode(record).age <= member.age for (record,) in self._store.rows(_SELECT_MEMBER, *name)):
            record = sealed(member_to_wire(member).SerializeToString())
            self._store.connection.execute(_PUT_MEMBER, (*name, record))

    def is_whole(self) -> bool:
        return all(is_whole(record) for (record,) in self._store.connection.execute("SELECT record FROM members"))

    def _decode(self, record: bytes) -> Member:
        with self._store.reading("a member"):
            return member_from_wire(pb.Member.FromString(unsealed(record)))


class RecordTable(JournalTable):
    """What an algorithm keeps, by keys of its own. Their numbers tell the order in which they were written."""

    schema = (
        "CREATE TABLE records (number INTEGER PRIMARY KEY, key BLOB NOT NULL, record BLOB NOT NULL)",
        "CREATE UNIQUE INDEX records_by_key ON records (key)",
    )

    def all(self) -> dict[bytes, bytes]:
        """The values by key, in the order in which they were written."""
        rows = self._store.rows("SELECT key, record FROM records ORDER BY number")
        with self._store.reading("a record"):
            return {key: unsealed(record, crc32(key)) for key, record in rows}

    def put(self, records: Iterable[Record]) -> None:
        ((last,),) = self._store.rows(_LAST_NUMBER)
        rows = ((number, key, sealed(value, crc32(key))) for number, (key, value) in enumerate(records, last + 1))
        self._store.connection.executemany(_PUT_RECORD, rows)

    def count(self) -> int:
        ((count,),) = self._store.rows("SELECT COUNT(*) FROM records")
        return int(count)

    def is_whole(self) -> bool:
        rows = self._store.connection.execute("SELECT key, record FROM records")
        return all(isinstance(key, bytes) and is_whole(record, crc32(key)) for key, record in rows)


def signed(origin: OriginId) -> int:
    """An origin id as sqlite stores it: its integers are signed."""
    return origin - (1 << 64) if origin >= 1 << 63 else origin
