"""The frontier: a version vector with gaps. It says which steps of each origin a node holds, in memory that does not
grow with the run.

For each origin it has a high-water mark (every step below it is held), and the disjoint ranges above the mark of what
arrived out of order. Bundles declare the steps that their origin skipped, so ranges join and the mark catches up: after
any finite delay a frontier is one integer for each origin. The number of ranges above a mark is bounded. A frontier
refuses what comes beyond that, and repair fetches it later, in order.

Duplicates are detected by this structure alone. A time-to-live or an LRU set would forget some.
"""

import hashlib
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from seedflood.protocol.origin import STEP_MAX, OriginId

Span = tuple[OriginId, int, int]
"""(origin, first step, last step)."""

RANGES_MAX = 1024
"""The most ranges above the mark of one origin (16 KiB). A lost bundle costs one range, so this allows 1,024 losses in
a repair period. Sums of epochs may bring more ranges than that; then only the first ones are sent."""

FRONTIER_ORIGINS_MAX = FRONTIER_RANGES_MAX = 16_384
"""The most origins, and the most ranges of all origins together, in a frontier that is sent: half a megabyte, and 30 ms
for its reader. The rest is left out. Then the node claims less than it holds, and is sent more than it lacks, but
nothing is lost."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a node holds of one origin: every step below `mark`, and the ranges (first, last) above it."""

    origin: OriginId
    mark: int
    beyond: tuple[tuple[int, int], ...] = ()


_first = itemgetter(0)
_last = itemgetter(1)
_HELD = struct.Struct(">QQI")
"""(origin, mark, how many ranges follow)."""
_RANGE = struct.Struct(">QQ")


def is_sendable(held: Sequence[Held]) -> bool:
    """Is this short enough for every node to accept it?"""
    if len(held) > FRONTIER_ORIGINS_MAX:
        return False
    ranges = [len(one.beyond) for one in held]
    return sum(ranges) <= FRONTIER_RANGES_MAX and max(ranges, default=0) <= RANGES_MAX


def sendable(held: Sequence[Held]) -> tuple[Held, ...]:
    """The same, cut down to what every node accepts: the first origins, and their first ranges."""
    if is_sendable(held):
        return tuple(held)
    room = FRONTIER_RANGES_MAX
    sent = []
    for one in held[:FRONTIER_ORIGINS_MAX]:
        beyond = one.beyond[: min(room, RANGES_MAX)]
        room -= len(beyond)
        sent.append(Held(one.origin, one.mark, beyond))
    return tuple(sent)


class Frontier:
    """The steps that are held of each origin. `Frontier(x.held())` makes a copy."""

    def __init__(self, held: Iterable[Held] = (), *, ranges_max: int = RANGES_MAX) -> None:
        self._marks: dict[OriginId, int] = {}
        """By origin: its mark. No entry is 0."""
        self._beyond: dict[OriginId, list[tuple[int, int]]] = {}
        """By origin: the ranges (first, last) above its mark, in order. None touches the mark or another range, and no
        entry is empty."""
        self._ranges_max = ranges_max
        self._digest: bytes | None = None
        """The digest of everything that is held; None if it is not known since the last change."""
        for one in held:
            if one.mark:
                self._marks[one.origin] = one.mark
            if one.beyond:
                self._beyond[one.origin] = list(one.beyond)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Frontier):
            return NotImplemented
        return self._marks == other._marks and self._beyond == other._beyond

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Frontier({self.held()!r})"

    @property
    def origins(self) -> Iterator[OriginId]:
        return iter(self._marks.keys() | self._beyond.keys())

    def mark(self, origin: OriginId) -> int:
        """The first step of the origin that is not held."""
        return self._marks.get(origin, 0)

    def last(self, origin: OriginId) -> int:
        """The greatest step held of the origin, -1 if none."""
        ranges = self._beyond.get(origin)
        if ranges:
            return ranges[-1][1]
        return self._marks.get(origin, 0) - 1

    def holds(self, origin: OriginId, first: int, last: int | None = None) -> bool:
        """Are all steps first..last held?"""
        if last is None:
            last = first
        if last < self._marks.get(origin, 0):
            return True
        ranges = self._beyond.get(origin)
        if not ranges:
            return False
        first = max(first, self._marks.get(origin, 0))
        k = bisect_right(ranges, first, key=_first) - 1  # the last range that begins at or below `first`
        return k >= 0 and last <= ranges[k][1]

    def holds_any(self, origin: OriginId, first: int, last: int) -> bool:
        """Is at least one of the steps first..last held?"""
        if first < self._marks.get(origin, 0):
            return True
        ranges = self._beyond.get(origin, [])
        k = bisect_left(ranges, first, key=_last)  # the first range that ends at or above `first`
        return k < len(ranges) and ranges[k][0] <= last

    def next_lacking(self, origin: OriginId, step: int) -> int:
        """The first step from this one on that is not held."""
        step = max(step, self._marks.get(origin, 0))
        ranges = self._beyond.get(origin, [])
        k = bisect_right(ranges, step, key=_first) - 1
        is_held = k >= 0 and step <= ranges[k][1]
        return ranges[k][1] + 1 if is_held else step

    def gaps(self, origin: OriginId, end: int) -> list[tuple[int, int]]:
        """The ranges (first, last) up to step `end` that are not held."""
        found = []
        first = self._marks.get(origin, 0)
        for low, high in self._beyond.get(origin, ()):
            if first <= end:
                found.append((first, min(low - 1, end)))
            first = high + 1
        if first <= end:
            found.append((first, end))
        return found

    def can_add(self, origin: OriginId, first: int) -> bool:
        """Is there room for a range that starts at this step?"""
        if first <= self._marks.get(origin, 0):
            return True
        return len(self._beyond.get(origin, ())) < self._ranges_max

    def add(self, origin: OriginId, first: int, last: int) -> None:
        """Notes steps first..last as held; what was held stays held."""
        self._digest = None
        mark = self._marks.get(origin, 0)
        ranges = self._beyond.get(origin)
        if first == mark and (ranges is None or last + 1 < ranges[0][0]):  # the next one: nearly always
            self._marks[origin] = last + 1
            return
        if not ranges:
            if first <= mark:
                self._marks[origin] = max(mark, last + 1)
            else:
                self._beyond[origin] = [(first, last)]
            return
        # The ranges from `low` to before `high` touch the new one, and become one with it.
        low = bisect_left(ranges, first - 1, key=_last)
        high = bisect_right(ranges, last + 1, key=_first)
        if low < high:
            first = min(first, ranges[low][0])
            last = max(last, ranges[high - 1][1])
        ranges[low:high] = [(first, last)]
        if first <= mark:
            self._marks[origin] = max(mark, last + 1)
            del ranges[: low + 1]
        if not ranges:
            del self._beyond[origin]

    def add_new(self, origin: OriginId, first: int, last: int) -> bool:
        """If none of the steps first..last is held and there is room for them: notes them, and returns True."""
        ranges = self._beyond.get(origin)
        if first == self._marks.get(origin, 0) and (ranges is None or last + 1 < ranges[0][0]):  # as in `add`
            self._marks[origin] = last + 1
            self._digest = None
            return True
        if self.holds_any(origin, first, last) or not self.can_add(origin, first):
            return False
        self.add(origin, first, last)
        return True

    def of(self, origin: OriginId) -> Held:
        """What is held of one origin."""
        return Held(origin, self._marks.get(origin, 0), tuple(self._beyond.get(origin, ())))

    def put(self, held: Held) -> None:
        """From now on exactly this is held of the origin."""
        self._digest = None
        self._marks[held.origin] = held.mark
        self._beyond[held.origin] = list(held.beyond)
        if not held.beyond:
            del self._beyond[held.origin]
        if not held.mark:
            del self._marks[held.origin]

    def add_held(self, held: Iterable[Held]) -> None:
        """Notes everything that another frontier holds."""
        for span in spans(held):
            self.add(*span)

    def below(self, ends: Mapping[OriginId, int]) -> "Frontier":
        """A copy that is cut off before these steps. It has everything of an origin that is not named."""
        parts = []
        for one in self.held():
            end = ends.get(one.origin, STEP_MAX + 1)
            beyond = tuple((first, min(last, end - 1)) for first, last in one.beyond if first < end)
            parts.append(Held(one.origin, min(one.mark, end), beyond))
        return Frontier(parts)

    def held(self) -> tuple[Held, ...]:
        """The frontier as values, sorted by origin: for the wire and for copies."""
        origins = sorted(self._marks.keys() | self._beyond.keys())
        return tuple(map(self.of, origins))

    def count(self) -> int:
        """How many steps of all origins together are held or declared as skipped."""
        ranges = (last - first + 1 for spans in self._beyond.values() for first, last in spans)
        return sum(self._marks.values()) + sum(ranges)

    def covers(self, held: Iterable[Held]) -> bool:
        """Is everything in the other frontier held here too?"""
        return all(self.holds(*span) for span in spans(held))

    def digest(self, before: int = STEP_MAX) -> bytes:
        """32 bytes, equal exactly if two frontiers hold the same steps below `before`, whatever the order of
        arrival."""
        if before < STEP_MAX:
            return self._hash(before)
        if self._digest is None:
            self._digest = self._hash(before)
        return self._digest

    def _hash(self, before: int) -> bytes:
        rows = []
        marks = self._marks
        for origin in sorted(marks.keys() | self._beyond.keys()):
            mark = min(marks.get(origin, 0), before)
            beyond: Sequence[tuple[int, int]] = ()
            ranges = self._beyond.get(origin)
            if ranges is not None:  # of few origins
                beyond = [(first, min(last, before - 1)) for first, last in ranges if first < before]
            if mark or beyond:
                rows.append((origin, mark, beyond))
        return hashlib.sha256(b"seedflood frontier 1\0" + _pack(rows)).digest()


def pack_frontier(held: Iterable[Held]) -> bytes:
    """A frontier as the bytes that its digest covers. They take a tenth of the memory of the values, and a node keeps
    one frontier for each compacted epoch."""
    return _pack((one.origin, one.mark, one.beyond) for one in held)


def _pack(rows: Iterable[tuple[OriginId, int, Sequence[tuple[int, int]]]]) -> bytes:
    parts: list[bytes] = []
    for origin, mark, ranges in rows:
        parts.append(_HELD.pack(origin, mark, len(ranges)))
        if ranges:
            parts += [_RANGE.pack(*span) for span in ranges]
    return b"".join(parts)


def unpack_frontier(packed: bytes) -> tuple[Held, ...]:
    """Undoes `pack_frontier`."""
    held: list[Held] = []
    at = 0
    while at < len(packed):
        origin, mark, count = _HELD.unpack_from(packed, at)
        at += _HELD.size
        end = at + count * _RANGE.size
        held.append(Held(origin, mark, tuple(_RANGE.iter_unpack(packed[at:end]))))
        at = end
    return tuple(held)


def count_steps(held: Iterable[Held], first: int, end: int) -> int:
    """How many of the steps from `first` to before `end` are held, of all origins together."""
    count = 0
    for _, low, high in spans(held):
        count += max(0, min(high + 1, end) - max(low, first))
    return count


def spans(held: Iterable[Held]) -> Iterator[Span]:
    """Every range of steps that is held, one after the other."""
    for one in held:
        if one.mark:
            yield one.origin, 0, one.mark - 1
        for first, last in one.beyond:
            yield one.origin, first, last


def without(held: Iterable[Held], spans: Iterable[Span]) -> tuple[Held, ...]:
    """The same without these steps."""
    ranges: dict[OriginId, list[tuple[int, int]]] = {}
    for one in held:
        below_mark = [(0, one.mark - 1)] if one.mark else []
        ranges[one.origin] = [*below_mark, *one.beyond]
    for origin, first, last in spans:
        before = ranges.get(origin, [])
        lower = [(low, min(high, first - 1)) for low, high in before if low < first]
        upper = [(max(low, last + 1), high) for low, high in before if high > last]
        ranges[origin] = lower + upper
    return held_of((origin, *span) for origin, rest in ranges.items() for span in rest)


def held_of(spans: Iterable[Span]) -> tuple[Held, ...]:
    """These steps as values of a frontier."""
    frontier = Frontier()
    for span in spans:
        frontier.add(*span)
    return frontier.held()
