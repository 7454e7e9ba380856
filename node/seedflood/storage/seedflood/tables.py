"""The tables of SeedFlood: segments of bundles, and the sums that replace the bundles of an epoch.

Every method raises JournalError. Writes join the open group.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from seedflood.errors import JournalError
from seedflood.protocol.frontier import Frontier, Held, spans
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.seedflood.bundles import Bundle, cut_bundles
from seedflood.protocol.seedflood.messages import ClosedEpoch, pack_votes, read_votes
from seedflood.storage.records import SEAL_BYTES, sealed, unsealed
from seedflood.storage.seedflood.records import (
    SEGMENT_BYTES_MAX,
    SEGMENT_COLUMNS,
    Segment,
    decode_frontier,
    decode_segments,
    encode_frontier,
    encode_segment,
)
from seedflood.storage.store import Store
from seedflood.storage.tables import signed

Stretch = tuple[OriginId, int, int, int]
"""(origin, first, last, end): the segments of an origin that begin at one of the steps first..last and end by `end`."""

READ_BYTES = 4 << 20
READ_SEGMENTS = 2048
"""How much is read at once, about. A segment of pairs is one page at most, a segment of payloads up to 64 pages."""

FIRST_SEGMENTS = 16
"""How many segments are read at first, when their size is not known yet."""

PAGE_SEGMENTS, PAGE_BYTES = 128, 512 << 10
LOOKS_MAX = 16
"""Segments and bytes per read, and reads per batch, when a neighbour is served while others wait: a read takes a few
milliseconds at most, usually less than one."""

_INSERT = f"INSERT INTO segments ({SEGMENT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"
_AFTER = "SELECT MIN(step) FROM segments WHERE origin = ? AND step > ?"
_LAST = "SELECT last FROM segments WHERE origin = ? ORDER BY step DESC LIMIT 1"
_BEFORE = "SELECT MAX(step) FROM segments WHERE origin = ? AND step <= ?"
_SELECT = f"SELECT {SEGMENT_COLUMNS} FROM segments WHERE origin = ? AND step BETWEEN ? AND ? ORDER BY step LIMIT ?"
_REPLAY = f"SELECT {SEGMENT_COLUMNS}, number FROM segments WHERE number > ? ORDER BY number LIMIT ?"
_NEXT_ORIGIN = "SELECT origin FROM segments WHERE origin >= ? ORDER BY origin LIMIT 1"

_STRETCH = "FROM segments WHERE origin = ? AND step BETWEEN ? AND ? AND last <= ?"
_COUNT = f"SELECT IFNULL(SUM(bundles), 0) {_STRETCH}"
_DELETE = f"DELETE {_STRETCH}"

_FRONTIERS = "SELECT epoch, frontier FROM epochs WHERE epoch BETWEEN ? AND ? ORDER BY epoch"
_EPOCHS = "SELECT epoch FROM epochs ORDER BY epoch"
_SUM = "SELECT frontier, coefficients, certificate FROM epochs WHERE epoch = ?"
_PUT = (
    "INSERT INTO epochs VALUES (?, ?, ?, ?) ON CONFLICT (epoch) DO UPDATE SET frontier = excluded.frontier, "
    "coefficients = excluded.coefficients, certificate = excluded.certificate"
)

_STEP: Final = 1
_END: Final = 3
_RECORD: Final = 5
"""Columns of a segment: its first and its last step, and its record."""

_NO_GAP = (0, -1)


class Bundles:
    """All bundles, in segments. They can be read in the order in which segments were begun, or by origin and step.

    No two segments of an origin share a step.
    """

    def __init__(self, store: Store, refresh_period: int, count: int) -> None:
        """count: how many bundles are there already."""
        self._store = store
        self._refresh_period = refresh_period
        self._gaps: dict[OriginId, tuple[int, int]] = {}
        """For each origin, steps (first, last) that no segment has: from behind the bundle that was added last up to
        the next segment. A bundle for one of them is new without a look into the table."""
        self.total = self._total_before = count
        """How many bundles there are now, and before the open group, which may be rolled back. To count them anew would
        read all rows."""
        self._group = 0
        store.when_undone.append(self._forget_what_was_undone)

    def add(self, bundles: Iterable[Bundle]) -> int:
        """Writes the bundles that are new, and returns how many these are. Raises JournalError if one differs from the
        bundle that is there."""
        self._remember_total()
        new = 0
        segments: list[list[Bundle]] = []
        latest: dict[OriginId, list[Bundle]] = {}
        room: dict[OriginId, int] = {}
        gaps = self._gaps
        for bundle in bundles:
            origin, step, length, _, data = bundle
            first, last = gaps.get(origin, _NO_GAP)
            if not first <= step <= last:
                self._insert(segments)  # so that the look into the table finds them
                segments, latest = [], {}
                if self._is_there(bundle):
                    continue
                last = self._gap_end(origin, step)
            gaps[origin] = (step + length, last)
            new += 1
            segment = latest.get(origin)
            if segment is not None and len(data) <= room[origin] and self._continues(segment, bundle):
                segment.append(bundle)
                room[origin] -= len(data)
            else:
                latest[origin] = segment = [bundle]
                room[origin] = SEGMENT_BYTES_MAX - SEAL_BYTES - len(data)
                segments.append(segment)
        self._insert(segments)
        self.total += new
        return new

    def delete(self, stretches: Iterable[Stretch]) -> int:
        """Deletes the segments of these stretches. Returns how many bundles these were."""
        self._remember_total()
        deleted = 0
        for stretch in stretches:
            if there := self.count([stretch]):
                origin, *steps = stretch
                self._store.connection.execute(_DELETE, (signed(origin), *steps))
                deleted += there
        self.total -= deleted
        return deleted

    def thin(self, held: Iterable[Held], first: int, last: int) -> list[Bundle]:
        """Deletes those bundles of the steps first..last that are held. Returns the others of these steps."""
        frontier = Frontier(held)
        found = (bundle for origin in self._origins() for bundle in self.read(origin, first, last))
        bundles = [one for one in found if one.step >= first]  # one that begins earlier may end in these steps
        others = [bundle for bundle in bundles if not frontier.holds(bundle.origin, bundle.step)]
        self.delete((origin, first, last, STEP_MAX) for origin in {bundle.origin for bundle in bundles})
        self.add(others)
        return others

    def find(self, origin: OriginId, step: int) -> Bundle | None:
        return next((one for one in self.read(origin, step, step) if one.step == step), None)

    def cut(self, origin: OriginId, first: int, last: int, *, is_meant: Callable[[Bundle], bool]) -> list[Bundle]:
        """Deletes those bundles of an origin that have the steps first..last and are meant. Returns them."""
        gone = [bundle for bundle in self.read(origin, first, last) if is_meant(bundle)]
        for bundle in gone:
            (row,) = self._page(origin, bundle.step, bundle.step, 1)
            rest = [one for one in self._decode([row]) if one.step != bundle.step]
            self.delete([(origin, row[_STEP], row[_STEP], STEP_MAX)])
            self.add(rest)
        return gone

    def count(self, stretches: Iterable[Stretch]) -> int:
        return sum(int(self._store.rows(_COUNT, signed(origin), *steps)[0][0]) for origin, *steps in stretches)

    def last(self, origin: OriginId) -> int:
        """The greatest step that is there; -1 if none."""
        rows = self._store.rows(_LAST, signed(origin))
        return int(rows[0][0]) if rows else -1

    def replay(self) -> Iterator[Bundle]:
        """All bundles, segment by segment, as a stream."""
        number, count = 0, FIRST_SEGMENTS
        while rows := self._store.rows(_REPLAY, number, count):
            number, count = rows[-1][-1], _count_next(rows)
            yield from self._decode([row[:-1] for row in rows])

    def missing(self, held: Frontier, limit: int, first: int = 0, last: int = STEP_MAX) -> Iterator[list[Bundle]]:
        """The bundles of the steps first..last that are not held, per origin by step, in batches of up to `limit`. One
        of which only the skipped steps are not held belongs to them: it may contradict what the asker has.

        After LOOKS_MAX reads a batch comes even if it is not full or empty, so that the caller can serve others
        meanwhile.
        """
        batch: list[Bundle] = []
        looks = 0
        for origin in self._origins() if first <= last else ():
            for found in self._lacking(origin, held, first, last):
                looks += 1
                parts = [list(part) for part in cut_bundles(batch + found, limit)] or [[]]
                batch = parts.pop() if looks < LOOKS_MAX else []
                looks = 0 if parts else looks
                yield from parts
        if batch:
            yield batch

    def _lacking(self, origin: OriginId, held: Frontier, first: int, last: int) -> Iterator[list[Bundle]]:
        """The bundles of an origin's steps first..last that are not held, by step: a list for each read."""
        step, count = held.next_lacking(origin, first), FIRST_SEGMENTS
        while step <= last and (page := self._page(origin, step, last, count)):
            begins = [
                step,
                *(row[_END] + 1 for row in page),
            ]  # the first bundle of a segment may skip what is before it
            spans = zip(map(min, begins, (row[_STEP] for row in page)), page, strict=False)
            wanted = [row for begin, row in spans if row[_END] >= step and not held.holds(origin, begin, row[_END])]
            there = [one for one in self._decode(wanted) if one.last >= step and first <= one.step <= last]
            yield [one for one in there if not held.holds(*one.span)]
            if len(page) < count:
                return
            step = held.next_lacking(origin, page[-1][_END] + 1)
            count = min(PAGE_SEGMENTS, _count_next(page, PAGE_BYTES))

    def _page(self, origin: OriginId, step: int, last: int, count: int) -> list[Segment]:
        """Up to `count` segments of an origin: from the one that covers the step, to those that begin at `last`."""
        ((start,),) = self._store.rows(_BEFORE, signed(origin), step)
        return self._store.rows(_SELECT, signed(origin), step if start is None else start, last, count)

    def _remember_total(self) -> None:
        """Called before each change: keeps the count as it was when the open group began."""
        if self._group != self._store.group:
            self._group, self._total_before = self._store.group, self.total

    def _forget_what_was_undone(self) -> None:
        self._gaps.clear()
        if self._group == self._store.group:
            self.total = self._total_before

    def _continues(self, segment: list[Bundle], bundle: Bundle) -> bool:
        is_next = bundle.first_covered == segment[-1].last + 1
        return is_next and segment[0].step // self._refresh_period == bundle.step // self._refresh_period

    def _insert(self, segments: Iterable[Sequence[Bundle]]) -> None:
        self._store.connection.executemany(_INSERT, map(encode_segment, segments))

    def _gap_end(self, origin: OriginId, step: int) -> int:
        """The last step before the next segment of the origin. step: one that no segment covers."""
        ((after,),) = self._store.rows(_AFTER, signed(origin), step)
        return STEP_MAX if after is None else int(after) - 1

    def _is_there(self, bundle: Bundle) -> bool:
        """Is the bundle in the table? Raises JournalError if there is another one with its origin and step."""
        there = self.find(bundle.origin, bundle.step)
        if there not in (None, bundle):
            raise JournalError(
                f"{self._store.path}: origin {bundle.origin:016x} has another bundle at step {bundle.step} "
                "already; nothing was written (two processes with one identity?)"
            )
        return there is not None

    def read(self, origin: OriginId, first: int, last: int) -> Iterator[Bundle]:
        """The bundles of an origin that have one of the steps first..last, in order."""
        ((start,),) = self._store.rows(_BEFORE, signed(origin), first)
        start, count = first if start is None else start, FIRST_SEGMENTS
        while rows := self._store.rows(_SELECT, signed(origin), start, last, count):
            count = _count_next(rows)
            for bundle in self._decode(rows):
                start = bundle.step + 1
                if first <= bundle.last and bundle.step <= last:
                    yield bundle

    def _origins(self) -> Iterator[OriginId]:
        """All origins that have segments. Jumps from origin to origin in the index, instead of reading all of it."""
        origin = -(1 << 63) - 1
        while origin + 1 < 1 << 63 and (rows := self._store.rows(_NEXT_ORIGIN, origin + 1)):
            ((origin,),) = rows
            yield origin % (1 << 64)

    def _decode(self, segments: Iterable[Segment]) -> Iterator[Bundle]:
        with self._store.reading("a segment of bundles"):
            yield from decode_segments(segments)


class Sums:
    """The sums by epoch, each with the frontier of the bundles that it replaces."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._all: Frontier | None = None
        store.when_undone.append(self._forget_what_was_undone)

    def all(self) -> Frontier:
        """All steps that are in a sum. Cached: there may be thousands of sums."""
        if self._all is None:
            self._all = Frontier()
            for held in self.frontiers().values():
                self._all.add_held(held)
        return self._all

    def frontiers(self, first: int = 0, last: int = STEP_MAX) -> dict[int, tuple[Held, ...]]:
        """The frontier of each sum of the epochs first..last, in order of epochs."""
        return {epoch: self._decode(epoch, record) for epoch, record in self._store.rows(_FRONTIERS, first, last)}

    def epochs(self) -> list[int]:
        """The epochs that have a sum, in order."""
        return [epoch for (epoch,) in self._store.rows(_EPOCHS)]

    def frontier(self, epoch: int) -> tuple[Held, ...]:
        """The frontier of an epoch's sum; empty if it has none."""
        return self.frontiers(epoch, epoch).get(epoch, ())

    def get(self, epoch: int) -> ClosedEpoch:
        ((frontier, coefficients, certificate),) = self._store.rows(_SUM, epoch)
        with self._store.reading(f"the sum of epoch {epoch}"):
            return ClosedEpoch(
                epoch,
                decode_frontier(epoch, frontier),
                unsealed(coefficients, epoch),
                certificate=read_votes(unsealed(certificate, epoch)),
            )

    def put(self, closed: ClosedEpoch) -> None:
        """Writes a sum with its certificate."""
        epoch, votes = closed.epoch, pack_votes(closed.certificate)
        row = epoch, encode_frontier(epoch, closed.frontier), sealed(closed.coefficients, epoch), sealed(votes, epoch)
        self._store.connection.execute(_PUT, row)
        if self._all is not None:
            self._all.add_held(closed.frontier)

    def _forget_what_was_undone(self) -> None:
        self._all = None

    def _decode(self, epoch: int, record: bytes) -> tuple[Held, ...]:
        with self._store.reading(f"epoch {epoch}"):
            return decode_frontier(epoch, record)


def steps_of(epoch: int, refresh_period: int) -> tuple[int, int]:
    """The first and the last step of an epoch."""
    return epoch * refresh_period, (epoch + 1) * refresh_period - 1


def stretches(held: Iterable[Held], first: int, last: int) -> list[Stretch]:
    """The held ranges that overlap with the steps first..last, as stretches: they begin in these steps, and end where
    the held range ends."""
    return [
        (origin, max(low, first), min(high, last), high)
        for origin, low, high in spans(held)
        if low <= last and high >= first
    ]


def _count_next(rows: Sequence[tuple[Any, ...]], room: int = READ_BYTES) -> int:
    """How many segments to read next, if all are as large as the largest of these rows."""
    return min(READ_SEGMENTS, max(1, room // max(len(row[_RECORD]) for row in rows)))
