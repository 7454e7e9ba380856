"""The disk of a host beside its journal: checkpoints, and contents that arrive.

Checkpoints are written atomically and durably (`durable`). A file of a content grows as chunks arrive, and goes with
the process.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from weakref import WeakValueDictionary

from seedflood.errors import DiskFullError, PeerError
from seedflood.protocol.gasloc.transfer import Sink
from seedflood.protocol.origin import OriginId
from simulation.gasloc.replica import Own, Pair, Values
from simulation.journal import MemoryJournal, Owner

CHECKPOINTS_KEPT = 2


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint. round: the one with which to resume. mixed, own: of the replica, for the checks."""

    round: int
    data: bytes
    mixed: dict[Pair, Values]
    own: Own | None


class MemorySink(Sink):
    """A file that grows."""

    def __init__(self, disk: "ReplicaDisk", name: str) -> None:
        self.data = disk.incoming.setdefault(name, bytearray())
        self.name = name
        self._disk = disk

    @property
    def held(self) -> int:
        return len(self.data)

    def write(self, data: memoryview | bytes) -> None:
        self._disk.begin_file()
        self.data += data


class ReplicaDisk(MemoryJournal):
    """The disk of one host. size_max: the size of the largest content, in bytes."""

    def __init__(self, owner: Owner, size_max: int) -> None:
        super().__init__(owner)
        self.checkpoints: list[Checkpoint] = []
        self.incoming: dict[str, bytearray] = {}
        self._open: WeakValueDictionary[str, MemorySink] = WeakValueDictionary()
        """Sinks that are still in use."""
        self._size_max = size_max

    def begin_file(self) -> None:
        """Raises DiskFullError."""
        self._owner.writing()
        if self.is_full:
            raise DiskFullError("no space left on the simulated disk; wait until the fault ends.")

    # Contents that come in (`transfer.Sinks`)

    def open(self, peer: OriginId, digest: bytes, size: int) -> MemorySink:
        if size > self._size_max:
            raise PeerError(f"{size} bytes are not parameters of this run", reason="size")
        names = (f"{peer:016x}-{digest.hex()}-{number}" for number in count())
        name = next(name for name in names if name not in self._open)
        if len(self.incoming.get(name, b"")) > size:
            del self.incoming[name]
        sink = self._open[name] = MemorySink(self, name)
        return sink

    def close(self, sink: MemorySink) -> bytes:
        """Deletes the file of a sink, and returns its bytes."""
        self.remove([sink.name])
        return bytes(sink.data)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self.incoming.pop(name, None)

    # Checkpoints

    def save(self, checkpoint: Checkpoint) -> None:
        """In place of another one for the same round."""
        self.begin_file()
        others = [one for one in self.checkpoints if one.round != checkpoint.round]
        self.checkpoints = sorted([*others, checkpoint], key=lambda one: one.round)[-CHECKPOINTS_KEPT:]
        self._owner.writing()

    # What happens to disks

    def crash(self, rng: random.Random) -> int:
        self.incoming.clear()
        self._open.clear()
        return super().crash(rng)
