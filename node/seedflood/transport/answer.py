"""The answer to a pull: the donor cuts it into parts, the asker puts them together again.

Parts are small so that live frames can pass between them: eight parts of an epoch in flight are half a megabyte. The
asker holds one epoch at most, still compressed. Only the core can check coefficients, even their size. `Opaque`
messages are not cut here: their algorithm cuts its answers itself, also into 64 KiB.
"""

from collections.abc import Iterable, Iterator

from seedflood.errors import PeerError
from seedflood.protocol.seedflood.batches import cut_bundles
from seedflood.protocol.seedflood.messages import ClosedEpoch, Equivocation, Standing, Updates, Votes
from seedflood.protocol.swarm.messages import Members, Opaque
from seedflood.transport.codec import AnswerPart, EpochPart
from seedflood.wire.columns import check

PULL_BUNDLES = 256
"""Bundles per part, about 22 KB. A part with payloads has 64 KiB of them at most, or one bundle."""

EPOCH_PART_BYTES = 64 << 10
EPOCH_BYTES_MAX = 64 << 20
"""The most bytes of one epoch's coefficients, compressed: enough for rank 128 in 500 matrices even if compression gains
nothing."""

AnswerItem = Members | Votes | Equivocation | ClosedEpoch | Updates | Standing | Opaque
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
