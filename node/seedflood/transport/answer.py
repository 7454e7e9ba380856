"""The answer to a pull: the donor cuts it into parts, the asker puts them together again.

Parts are small so that live frames can pass between them: eight parts of an epoch in flight are half a megabyte. The
asker holds one epoch at most, still compressed. Only the core can check coefficients, even their size. `Opaque`
messages are not cut here: their algorithm cuts its answers itself, also into 64 KiB.
"""

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator

from seedflood.errors import PeerError, check
from seedflood.protocol.frontier import Held
from seedflood.protocol.seedflood.bundles import Updates, cut_bundles
from seedflood.protocol.seedflood.messages import EPOCH_PART_BYTES, ClosedEpoch, Equivocation, Standing
from seedflood.protocol.swarm.messages import Members, Opaque
from seedflood.transport.codec import AnswerPart, EpochPart, Pull, PullEnd, PullMore, PullPart

PULL_BUNDLES = 256
"""Bundles per part, about 22 KB. A part with payloads has 64 KiB of them at most, or one bundle."""

EPOCH_BYTES_MAX = 64 << 20
"""The most bytes of one epoch's coefficients, compressed: enough for rank 128 in 500 matrices even if compression gains
nothing."""

PULL_PARTS = 8
"""The most parts in flight. In one round trip these are 2,048 bundles (180 KB), which take the asker a quarter of a
second, or 512 KB of coefficients, which cost it nothing before the last part."""

AnswerItem = Members | Equivocation | ClosedEpoch | Updates | Standing | Opaque
"""An answer consists of these: as the donor's journal gives them, and as the asker's core receives them."""


def cut(answer: Iterable[AnswerItem]) -> Iterator[AnswerPart | None]:
    """The parts of an answer, made one at a time. None means: nothing found yet, let other tasks run."""
    for item in answer:
        match item:
            case ClosedEpoch():
                yield from _cut_epoch(item)
            case Updates(()):
                yield None
            case Updates(bundles):
                yield from map(Updates, cut_bundles(bundles, PULL_BUNDLES))
            case _:
                yield item


def _cut_epoch(closed: ClosedEpoch) -> Iterator[EpochPart]:
    data = closed.coefficients
    for k in range(0, len(data) or 1, EPOCH_PART_BYTES):
        end = k + EPOCH_PART_BYTES
        frontier, votes = (None, ()) if k else (closed.frontier, closed.certificate)
        yield EpochPart(closed.epoch, frontier, data[k:end], is_last=end >= len(data), certificate=votes)


class Answering:
    """Answers the last pull of a peer, part by part, as it takes them. items: everything that a frontier lacks, read
    while it is sent. failed: is called with a fault of ours, which ends the answer."""

    def __init__(
        self, items: Callable[[tuple[Held, ...]], Iterator[AnswerItem]], failed: Callable[[Exception], None]
    ) -> None:
        self._items = items
        self._failed = failed
        self._id = self._allowed = 0
        """Of the pull, and how many parts may still go."""
        self._untaken = 0
        """How many parts of all pulls the peer has not taken yet, as far as it says."""
        self._parts: Generator[PullPart | PullEnd | None, None, None] | None = None

    def begin(self, pull: Pull) -> None:
        self.end()
        self._id, self._allowed, self._parts = pull.id, PULL_PARTS, self._answer(pull)

    def go_on(self, more: PullMore) -> bool:
        """The peer has taken a part. Returns whether there was one."""
        if more.id == self._id:
            self._allowed = min(self._allowed + 1, PULL_PARTS)
        is_due, self._untaken = self._untaken > 0, max(0, self._untaken - 1)
        return is_due

    @property
    def is_due(self) -> bool:
        return self._parts is not None and self._allowed > 0

    def take(self) -> PullPart | PullEnd | None:
        """The next part. None, while `is_due`, means that the search goes on: ask again soon."""
        if not self.is_due or self._parts is None:
            return None
        part = next(self._parts)
        self._allowed -= part is not None
        self._untaken += isinstance(part, PullPart)
        if isinstance(part, PullEnd):
            self._parts = None
        return part

    def end(self) -> None:
        """Nothing more of it is sent."""
        if self._parts is not None:
            with contextlib.suppress(Exception):
                self._parts.close()
            self._parts = None

    def _answer(self, pull: Pull) -> Generator[PullPart | PullEnd | None, None, None]:
        is_complete = True
        try:
            for part in cut(self._items(pull.frontier)):
                yield None if part is None else PullPart(pull.id, part)
        except Exception as error:
            self._failed(error)
            is_complete = False
        yield PullEnd(pull.id, is_complete=is_complete)


class Assembly:
    """Puts the parts of one answer together. `join` and `end` raise PeerError for parts that are out of order or too
    large."""

    def __init__(self, epoch_bytes_max: int = EPOCH_BYTES_MAX) -> None:
        self._epoch_bytes_max = epoch_bytes_max
        self._first: EpochPart | None = None
        self._data = bytearray()

    def join(self, part: AnswerPart) -> AnswerItem | None:
        """The item that this part completes: the part itself, an epoch, or None while more parts of one must come."""
        if not isinstance(part, EpochPart):
            self.end()
            return part
        if part.frontier is not None:
            self.end()
            self._first = part
        first = self._first
        if first is None or first.frontier is None or part.epoch != first.epoch:
            raise PeerError("a part of an epoch that does not follow the part before", reason="order")
        most = self._epoch_bytes_max
        check(len(self._data) + len(part.data) <= most, f"an epoch of more than {most} bytes")
        self._data += part.data
        if not part.is_last:
            return None
        closed = ClosedEpoch(first.epoch, first.frontier, bytes(self._data), certificate=first.certificate)
        self._first = None
        self._data.clear()
        return closed

    def end(self) -> None:
        """Raises PeerError if an epoch is incomplete."""
        if self._first is not None:
            raise PeerError("the last part of an epoch is missing", reason="order")
