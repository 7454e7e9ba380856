"""Rows that were found in a damaged journal, checked one by one and put into a new one."""

import contextlib
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from seedflood.errors import JournalError
from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.protocol.swarm.messages import Member
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
    decode_strand,
    encode_member,
    encode_number,
    is_strand,
)
from seedflood.storage.sqlite_pages import Row
from seedflood.storage.store import Store
from seedflood.storage.tables import Bundles, Sums, signed, steps_of


class Rescue:
    """`take` what was found into the empty tables of a new journal.

    bundles, epochs: how many were taken.
    """

    def __init__(
        self, connection: sqlite3.Connection, path: Path, identity: Identity, salts: Salts, refresh_period: int
    ) -> None:
        store = Store(path, connection)
        self.bundles = 0
        self.epochs = 0
        self._connection = connection
        self._path = path
        self._identity = identity
        self._salts = salts
        self._refresh_period = refresh_period
        self._bundles = Bundles(store, salts.strand, refresh_period)
        self._sums = Sums(store, salts.epoch)
        self._members: dict[tuple[OriginId, bool], Member] = {}
        self._incarnation = 0

    def take(self, rows: Iterable[Row]) -> None:
        """Rows may come twice, and in versions that were replaced since. ConfigError: of another run."""
        for row in rows:
            self._take_row(row)
        self._connection.executemany(
            "INSERT INTO members VALUES (?, ?, ?)",
            (
                (signed(origin), int(has_spoken), encode_member(one, self._salts.member))
                for (origin, has_spoken), one in self._members.items()
            ),
        )
        if self._incarnation:
            record = encode_number(self._incarnation, self._salts.number)
            self._connection.execute("INSERT INTO meta VALUES (?, ?)", (INCARNATION, record))
        for epoch, held in self._sums.frontiers().items():  # bundles that are long deleted are often still found
            self._bundles.thin(held, *steps_of(epoch, self._refresh_period))
        self.bundles = self._bundles.count_all()
        ((self.epochs,),) = self._connection.execute("SELECT COUNT(*) FROM epochs")

    def _take_row(self, row: Row) -> None:
        match row:
            case (_, (None, int(origin), int(step), int(last), int(bundles), bytes(record))):
                if is_strand(self._salts.strand, record, origin, step, last, bundles):
                    self._take_strand(record)
            case (int(epoch), (None, bytes(frontier), bytes(coefficients))):
                with contextlib.suppress(ChecksumError):
                    self._take_epoch(epoch, frontier, coefficients)
            case (int(number), (None, bytes(record))):
                self._take_small(number, record)

    def _take_strand(self, record: bytes) -> None:
        """Some may have been taken already: a bundle of an older row stands in another strand since."""
        bundles = decode_strand(record, self._salts.strand)
        try:
            self._bundles.add(bundles)
        except JournalError:  # two different ones under one name: the first is as good as the other
            for bundle in bundles:
                with contextlib.suppress(JournalError):
                    self._bundles.add([bundle])

    def _take_epoch(self, epoch: int, frontier: bytes, coefficients: bytes) -> None:
        """Of several sums of an epoch the one that stands for most."""
        found, held = decode_epoch(frontier, self._salts.epoch)
        whole = ClosedEpoch(epoch, held, decode_coefficients(coefficients, coefficients_salt(frontier)))
        if found == epoch and not Frontier(self._sums.frontier(epoch)).covers(held):
            self._sums.put(whole)

    def _take_small(self, number: int, record: bytes) -> None:
        with contextlib.suppress(ChecksumError):
            member = decode_member(record, self._salts.member)
            key = (member.origin, member.has_spoken)
            earlier = self._members.get(key)
            if earlier is None or earlier.age <= member.age:
                self._members[key] = member
        if number == INCARNATION:
            with contextlib.suppress(ChecksumError):
                self._incarnation = max(self._incarnation, decode_number(record, self._salts.number))
        if number == IDENTITY:
            with contextlib.suppress(ChecksumError):
                check_identity(self._path, decode_identity(record), self._identity)
