"""The tables of any journal: run and starts of the node (`Meta`), statements of members, records of an algorithm.

Methods that are called while a journal is opened may raise sqlite3.Error, all others JournalError. Writes join the open
group. All tables have a rowid, because `sqlite_pages` can read no others.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.outputs import Record
from seedflood.storage.layout import check_identity
from seedflood.storage.records import (
    ChecksumError,
    Identity,
    decode_identity,
    decode_member,
    decode_number,
    encode_identity,
    encode_member,
    encode_number,
    is_whole,
    sealed,
    unsealed,
    value_salt,
)
from seedflood.storage.sqlite_pages import Row
from seedflood.storage.store import Store

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
_SELECT_RECORD = "SELECT number, record FROM records WHERE key = ?"
_PUT_RECORD = "INSERT OR REPLACE INTO records VALUES (?, ?, ?)"


class Table(ABC):
    """A table of a journal, or some that belong together. These methods serve the opening of a journal: create the
    table, check it, and take over rows that were found in a damaged file.

    schema: the SQL statements that create it. sqlite keeps their text, and a text that differs counts as damage.
    """

    schema: ClassVar[tuple[str, ...]]

    def counts(self) -> dict[str, int]:
        """How many items of each kind there are; shown to operators when a journal was damaged."""
        return {}

    @abstractmethod
    def is_whole(self) -> bool:
        """Is every record what was written? Reads row by row, for a journal may be larger than memory."""

    @abstractmethod
    def rescue(self, row: Row) -> None:
        """Takes over a row that was found in a damaged file, if it belongs to this table and passes its checksum. Rows
        come in any order. Some come twice, some in versions that have been replaced since."""

    def settle(self) -> None:  # noqa: B027  # most tables have nothing left to do
        """Called once, when all rows have been passed to `rescue`."""


class Meta(Table):
    """To which run the journal belongs, and the incarnation of its node."""

    schema = ("CREATE TABLE meta (key INTEGER PRIMARY KEY, record BLOB NOT NULL)",)

    def __init__(self, store: Store, identity: Identity) -> None:
        self._store = store
        self._identity = identity
        self._salt = identity.salt("number")

    def put_identity(self) -> None:
        self._store.connection.execute(_PUT_META, (_IDENTITY, encode_identity(self._identity)))

    def check(self) -> None:
        """Raises ConfigError if the journal belongs to another run, ChecksumError if that cannot be read."""
        rows = self._store.connection.execute(_SELECT_META, (_IDENTITY,)).fetchall()
        if not rows or not isinstance(rows[0][0], bytes):
            raise ChecksumError
        self._check(rows[0][0])

    def last_incarnation(self) -> int:
        """The newest incarnation of the node; 0 before its first start."""
        rows = self._store.rows(_SELECT_META, _INCARNATION)
        return self._store.decode(decode_number, rows[0][0], self._salt, "the incarnation") if rows else 0

    def put_incarnation(self, incarnation: int) -> None:
        self._store.connection.execute(_PUT_META, (_INCARNATION, encode_number(incarnation, self._salt)))

    def is_whole(self) -> bool:
        rows = self._store.connection.execute(_SELECT_META, (_INCARNATION,))
        return all(is_whole(record, self._salt) for (record,) in rows)

    def rescue(self, row: Row) -> None:
        """Raises ConfigError if the row says that the journal belongs to another run."""
        match row:
            case (int(key), (None, bytes(record))):
                with contextlib.suppress(ChecksumError):
                    if key == _IDENTITY:
                        self._check(record)
                    if key == _INCARNATION:
                        self.put_incarnation(max(self.last_incarnation(), decode_number(record, self._salt)))

    def _check(self, record: bytes) -> None:
        check_identity(self._store.path, decode_identity(record), self._identity)


class Members(Table):
    """For each origin, the newest statement that speaks of its steps and the newest one that does not."""

    schema = (
        "CREATE TABLE members (number INTEGER PRIMARY KEY, origin INTEGER NOT NULL, has_spoken INTEGER NOT NULL, "
        "record BLOB NOT NULL)",
        "CREATE UNIQUE INDEX members_by_origin ON members (origin, has_spoken)",
    )

    def __init__(self, store: Store, identity: Identity) -> None:
        self._store = store
        self._salt = identity.salt("member")

    def all(self) -> list[Member]:
        rows = self._store.rows("SELECT record FROM members")
        return [self._store.decode(decode_member, record, self._salt, "a member") for (record,) in rows]

    def put(self, member: Member) -> None:
        """Writes a statement, unless a newer one of its origin is there."""
        name = _name(member)
        for (record,) in self._store.rows(_SELECT_MEMBER, *name):
            there = self._store.decode(decode_member, record, self._salt, f"the member {member.name}")
            if there.age > member.age:
                return
        self._store.connection.execute(_PUT_MEMBER, (*name, encode_member(member, self._salt)))

    def is_whole(self) -> bool:
        rows = self._store.connection.execute("SELECT record, origin, has_spoken FROM members")
        return all(
            is_whole(record, self._salt) and _name(decode_member(record, self._salt)) == tuple(name)
            for record, *name in rows
        )

    def rescue(self, row: Row) -> None:
        match row:
            case (_, (None, int(), int(), bytes(record))):
                with contextlib.suppress(ChecksumError):
                    self.put(decode_member(record, self._salt))


class Records(Table):
    """What an algorithm keeps, by keys of its own. Each write has a number: in a damaged file an earlier value of a key
    may be found beside a later one."""

    schema = (
        "CREATE TABLE records (number INTEGER PRIMARY KEY, key BLOB NOT NULL, record BLOB NOT NULL)",
        "CREATE UNIQUE INDEX records_by_key ON records (key)",
    )

    def __init__(self, store: Store, identity: Identity) -> None:
        self._store = store
        self._salt = identity.salt("record")

    def all(self) -> dict[bytes, bytes]:
        """The values by key, in the order in which they were written."""
        rows = self._store.rows("SELECT number, key, record FROM records ORDER BY number")
        return {key: self._decode(number, key, record) for number, key, record in rows}

    def get(self, key: bytes) -> bytes | None:
        """The value of a key; None if it has none."""
        rows = self._store.rows(_SELECT_RECORD, key)
        return self._decode(rows[0][0], key, rows[0][1]) if rows else None

    def put(self, records: Iterable[Record]) -> None:
        ((last,),) = self._store.rows(_LAST_NUMBER)
        rows = (
            (number, key, sealed(value, value_salt(key, number, self._salt)))
            for number, (key, value) in enumerate(records, last + 1)
        )
        self._store.connection.executemany(_PUT_RECORD, rows)

    def count(self) -> int:
        ((count,),) = self._store.rows("SELECT COUNT(*) FROM records")
        return int(count)

    def counts(self) -> dict[str, int]:
        ((count,),) = self._store.connection.execute("SELECT COUNT(*) FROM records")
        return {"records": count}

    def is_whole(self) -> bool:
        rows = self._store.connection.execute("SELECT number, key, record FROM records")
        return all(self._is_record(*row) for row in rows)

    def rescue(self, row: Row) -> None:
        """Of several values of a key, keeps the one that was written last."""
        match row:
            case (int(number), (None, bytes(key), bytes(record))) if self._is_record(number, key, record):
                later = "SELECT 1 FROM records WHERE key = ? AND number >= ?"
                if not self._store.connection.execute(later, (key, number)).fetchall():
                    self._store.connection.execute(_PUT_RECORD, (number, key, record))

    def _is_record(self, number: int, key: object, record: object) -> bool:
        return isinstance(key, bytes) and is_whole(record, value_salt(key, number, self._salt))

    def _decode(self, number: int, key: bytes, record: bytes) -> bytes:
        salt = value_salt(key, number, self._salt)
        return self._store.decode(unsealed, record, salt, f"the record {key.hex()}")


def signed(origin: OriginId) -> int:
    """An origin id as sqlite stores it: its integers are signed."""
    return origin - (1 << 64) if origin >= 1 << 63 else origin


def _name(member: Member) -> tuple[int, int]:
    """The key of a statement: origin (signed), has_spoken."""
    return signed(member.origin), int(member.has_spoken)
