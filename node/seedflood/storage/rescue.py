"""Rows that were found in a damaged journal, checked one by one and put into a new one."""

import contextlib
import sqlite3
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.messages import ClosedEpoch, Member, OriginId
from seedflood.storage.layout import IDENTITY, INCARNATION, check_identity
from seedflood.storage.records import (
    ChecksumError,
    Identity,
    Salts,
    coefficients_salt,
    decode_coefficients,
    decode_epoch,
    decode_identity,
    decode_member,
    decode_number,
    encode_member,
    encode_number,
    is_bundle,
)
from seedflood.storage.remains import Row
from seedflood.storage.store import Store
from seedflood.storage.tables import Bundles, Sums, signed, spans, steps_of

_BATCH_ROWS = 4096
_AT_ITS_NUMBER = "INSERT OR IGNORE INTO bundles (number, origin, step, record) VALUES (?, ?, ?, ?)"
_AT_THE_END = "INSERT OR IGNORE INTO bundles (origin, step, record) VALUES (?, ?, ?)"
_Found = tuple[int, int, int, bytes]


class Rescue:
    """`take` what was found into the empty tables of a new journal.

    bundles, epochs: how many were taken.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, identity: Identity, salts: Salts) -> None:
        store = Store(path, connection)
        self.bundles = 0
        self.epochs = 0
        self._connection = connection
        self._path = path
        self._identity = identity
        self._salts = salts
        self._bundles = Bundles(store, salts.bundle)
        self._sums = Sums(store, salts.epoch)
        self._members: dict[OriginId, Member] = {}
        self._incarnation = 0

    def take(self, rows: Iterable[Row], refresh_period: int) -> None:
        """Rows may come twice, and in versions that were replaced since. ConfigError: of another run."""
        found = (bundle for row in rows if (bundle := self._bundle_or_other(row)) is not None)
        while batch := list(islice(found, _BATCH_ROWS)):
            self._connection.executemany(_AT_ITS_NUMBER, batch)  # the numbers are the order, but a deleted row's may
            self._connection.executemany(_AT_THE_END, (bundle[1:] for bundle in batch))  # have been used again
        self._connection.executemany(
            "INSERT INTO members VALUES (?, ?)",
            ((signed(origin), encode_member(one, self._salts.member)) for origin, one in self._members.items()),
        )
        if self._incarnation:
            record = encode_number(self._incarnation, self._salts.number)
            self._connection.execute("INSERT INTO meta VALUES (?, ?)", (INCARNATION, record))
        for epoch, held in self._sums.frontiers().items():  # bundles that are long deleted are often still found
            self._bundles.delete(spans(held, *steps_of(epoch, refresh_period)))
        ((self.bundles,),) = self._connection.execute("SELECT COUNT(*) FROM bundles")
        ((self.epochs,),) = self._connection.execute("SELECT COUNT(*) FROM epochs")

    def _bundle_or_other(self, row: Row) -> _Found | None:
        """The bundle that a row is; any other record is taken at once."""
        match row:
            case (int(number), (None, int(origin), int(step), bytes(record))):
                is_one = number > 0 and is_bundle(self._salts.bundle, record, origin, step)
                return (number, origin, step, record) if is_one else None
            case (int(epoch), (None, bytes(frontier), bytes(coefficients))):
                with contextlib.suppress(ChecksumError):
                    self._take_epoch(epoch, frontier, coefficients)
            case (int(number), (None, bytes(record))):
                self._take_small(number, record)
        return None

    def _take_epoch(self, epoch: int, frontier: bytes, coefficients: bytes) -> None:
        """Of several sums of an epoch the one that stands for most."""
        found, held = decode_epoch(frontier, self._salts.epoch)
        whole = ClosedEpoch(epoch, held, decode_coefficients(coefficients, coefficients_salt(frontier)))
        if found == epoch and not Frontier(self._sums.frontier(epoch)).covers(held):
            self._sums.put(whole)

    def _take_small(self, number: int, record: bytes) -> None:
        with contextlib.suppress(ChecksumError):
            member = decode_member(record, self._salts.member)
            earlier = self._members.get(member.origin)
            if earlier is None or earlier.age <= member.age:
                self._members[member.origin] = member
        if number == INCARNATION:
            with contextlib.suppress(ChecksumError):
                self._incarnation = max(self._incarnation, decode_number(record, self._salts.number))
        if number == IDENTITY:
            with contextlib.suppress(ChecksumError):
                check_identity(self._path, decode_identity(record), self._identity)
