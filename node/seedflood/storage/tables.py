"""The tables of what was learned: bundles, and the sums that stand for all bundles of an epoch.

Every method raises JournalError; those that write join the open group.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from seedflood.errors import JournalError
from seedflood.protocol.frontier import Frontier
from seedflood.protocol.messages import BUNDLE_UPDATES_MAX, STEP_MAX, Bundle, ClosedEpoch, Held, OriginId
from seedflood.storage.records import (
    coefficients_salt,
    decode_bundle,
    decode_coefficients,
    decode_epoch,
    encode_bundle,
    encode_coefficients,
    encode_epoch,
)
from seedflood.storage.store import Store

Span = tuple[OriginId, int, int]
"""(origin, first step, last step)."""

BATCH_BUNDLES = 4096

_INSERT = "INSERT INTO bundles (origin, step, record) VALUES (?, ?, ?) ON CONFLICT (origin, step) DO NOTHING"
_RECORD = "SELECT record FROM bundles WHERE origin = ? AND step = ?"
_REPLAY = "SELECT number, record FROM bundles WHERE number > ? ORDER BY number LIMIT ?"
_SELECT = "SELECT number, record FROM bundles WHERE origin = ? AND step BETWEEN ? AND ? ORDER BY step LIMIT ?"
_BYTES = "SELECT TOTAL(LENGTH(record)) FROM bundles WHERE origin = ? AND step BETWEEN ? AND ?"
_COUNT = "SELECT COUNT(*) FROM bundles WHERE origin = ? AND step BETWEEN ? AND ?"
_DELETE = "DELETE FROM bundles WHERE origin = ? AND step BETWEEN ? AND ?"
_NEXT_ORIGIN = "SELECT origin FROM bundles WHERE origin >= ? ORDER BY origin LIMIT 1"

_FRONTIERS = "SELECT epoch, frontier FROM epochs WHERE epoch BETWEEN ? AND ? ORDER BY epoch"
_SUM = "SELECT frontier, coefficients FROM epochs WHERE epoch = ?"
_PUT = "INSERT OR REPLACE INTO epochs VALUES (?, ?, ?)"


class Bundles:
    """In the order in which they were learned, and by origin and step."""

    def __init__(self, store: Store, salt: int) -> None:
        self._store = store
        self._salt = salt

    def add(self, bundles: Sequence[Bundle]) -> int:
        """Skips what is there already; returns how many were new. JournalError if one differs from what is there."""
        connection, salt = self._store.connection, self._salt
        before = connection.total_changes
        connection.executemany(
            _INSERT, [(signed(bundle.origin), bundle.step, encode_bundle(bundle, salt)) for bundle in bundles]
        )
        new = connection.total_changes - before
        if new < len(bundles):
            self._check_equal(bundles)
        return new

    def delete(self, spans: Iterable[Span]) -> int:
        """Those with these steps; returns how many."""
        execute = self._store.connection.execute
        return sum(execute(_DELETE, (signed(origin), first, last)).rowcount for origin, first, last in spans)

    def count(self, spans: Iterable[Span]) -> int:
        """How many have these steps."""
        return sum(int(self._store.rows(_COUNT, signed(origin), *steps)[0][0]) for origin, *steps in spans)

    def take_more(self, room: int, spans: Iterable[Span]) -> bool:
        """Do those with these steps take more bytes? No more of them are read than it needs to tell."""
        records = (int(self._store.rows(_BYTES, signed(origin), *steps)[0][0]) for origin, *steps in spans)
        return any(taken > room for taken in accumulate(records))

    def replay(self) -> Iterator[Bundle]:
        """All of them in the order in which they were added, streamed."""
        number = 0
        while rows := self._store.rows(_REPLAY, number, BATCH_BUNDLES):
            for number, record in rows:
                yield self._decode(number, record)

    def between(self, first: int, last: int) -> list[Bundle]:
        """Those of all origins with these steps."""
        return [
            self._decode(*row)
            for origin in self._origins()
            for row in self._store.rows(_SELECT, signed(origin), first, last, -1)
        ]

    def missing(self, held: Iterable[Held], limit: int) -> Iterator[list[Bundle]]:
        """What is not held, per origin by step, in batches of 1 to `limit`."""
        held_of = {one.origin: one for one in held}
        batch: list[Bundle] = []
        for origin in self._origins():
            done = -1
            for first, last in _gaps(held_of.get(origin)):
                start = max(done + 1, first - BUNDLE_UPDATES_MAX + 1)
                while rows := self._store.rows(_SELECT, signed(origin), start, last, limit):
                    for row in rows:
                        bundle = self._decode(*row)
                        start = bundle.step + 1
                        if bundle.last >= first:
                            done = bundle.step
                            batch.append(bundle)
                            if len(batch) == limit:
                                yield batch
                                batch = []
        if batch:
            yield batch

    def _origins(self) -> Iterator[OriginId]:
        """The index is skipped through, origin by origin, instead of being read."""
        origin = -(1 << 63) - 1
        while origin + 1 < 1 << 63 and (rows := self._store.rows(_NEXT_ORIGIN, origin + 1)):
            ((origin,),) = rows
            yield origin % (1 << 64)

    def _check_equal(self, bundles: Iterable[Bundle]) -> None:
        for bundle in bundles:
            ((record,),) = self._store.rows(_RECORD, signed(bundle.origin), bundle.step)
            if record != encode_bundle(bundle, self._salt):
                raise JournalError(
                    f"{self._store.path}: origin {bundle.origin:016x} has another bundle at step {bundle.step} "
                    "already; nothing was written (two processes with one identity?)",
                    path=str(self._store.path),
                )

    def _decode(self, number: int, record: bytes) -> Bundle:
        return self._store.decode(decode_bundle, record, self._salt, f"record {number}")


class Sums:
    """By epoch, each with the frontier of the bundles that it stands for."""

    def __init__(self, store: Store, salt: int) -> None:
        self._store = store
        self._salt = salt
        self._all: Frontier | None = None

    def all(self) -> Frontier:
        """What all sums together stand for. Read once: there may be thousands."""
        if self._all is None:
            self._all = Frontier(ranges_max=sys.maxsize)
            for frontier in self.frontiers().values():
                for one in frontier:
                    self._all.add_held(one)
        return self._all

    def frontiers(self, first: int = 0, last: int = STEP_MAX) -> dict[int, tuple[Held, ...]]:
        """Of these epochs, in order."""
        return {epoch: self._decode(epoch, record) for epoch, record in self._store.rows(_FRONTIERS, first, last)}

    def frontier(self, epoch: int) -> tuple[Held, ...]:
        """Empty if there is no sum of the epoch."""
        return self.frontiers(epoch, epoch).get(epoch, ())

    def get(self, epoch: int) -> ClosedEpoch:
        ((record, coefficients),) = self._store.rows(_SUM, epoch)
        salt = coefficients_salt(record)
        unpacked = self._store.decode(decode_coefficients, coefficients, salt, f"the sum of epoch {epoch}")
        return ClosedEpoch(epoch, self._decode(epoch, record), unpacked)

    def put(self, closed: ClosedEpoch) -> None:
        record = encode_epoch(closed.epoch, closed.frontier, self._salt)
        coefficients = encode_coefficients(closed.coefficients, coefficients_salt(record))
        self._store.connection.execute(_PUT, (closed.epoch, record, coefficients))
        self._all = None if self._all is None else _joined(self._all, closed.frontier)

    def _decode(self, epoch: int, record: bytes) -> tuple[Held, ...]:
        return self._store.decode(decode_epoch, record, self._salt, f"epoch {epoch}")[1]


def _joined(frontier: Frontier, held: Iterable[Held]) -> Frontier:
    for one in held:
        frontier.add_held(one)
    return frontier


def steps_of(epoch: int, refresh_period: int) -> tuple[int, int]:
    """The first and the last step of an epoch."""
    return epoch * refresh_period, (epoch + 1) * refresh_period - 1


def spans(held: Iterable[Held], first: int, last: int) -> list[Span]:
    """What is held of the steps first..last."""
    return [
        (one.origin, max(low, first), min(high, last))
        for one in held
        for low, high in ((0, one.mark - 1), *one.beyond)
        if low <= last and high >= first and low <= high
    ]


def signed(origin: OriginId) -> int:
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
