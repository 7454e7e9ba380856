"""A disk in memory: what is written, what of it a crash or a power failure spares, and what a full disk refuses.

It answers like `storage.Journal`, and loses like it or worse. What is written is *open* until its group is committed:
then kill -9 cannot take it; a power failure can, from the end, until something durable is written behind it.
"""

import random
from collections.abc import Callable, Iterable
from itertools import count
from typing import Protocol

from seedflood.errors import DiskFullError
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.outputs import Record


class Owner(Protocol):
    """The host of the disk."""

    def writing(self) -> None:
        """Called before every write; may raise to end the process at this instant."""


class MemoryJournal:
    """What is on the disk of one host, over all its lives. is_full: whatever wants to write is refused.

    incarnation: how often the host was started with this disk.
    """

    def __init__(self, owner: Owner) -> None:
        self.incarnation = 0
        self.is_full = False
        self._owner = owner
        self._members: dict[tuple[OriginId, bool], Member] = {}
        """By (origin, does the statement speak of its steps)."""
        self._records: dict[bytes, tuple[int, bytes]] = {}
        """The newest value of each key, and when it was kept."""
        self._order = count()
        self._undo: list[tuple[object, Callable[[], object]]] = []
        """For everything that is not durable, oldest first: its name, and how it is undone."""
        self._committed = 0
        """How many of these belong to groups that were committed."""

    def members(self) -> list[Member]:
        return list(self._members.values())

    def records(self) -> dict[bytes, bytes]:
        """In the order in which they were kept."""
        newest = sorted(self._records.items(), key=lambda record: record[1])
        return {key: value for key, (_, value) in newest}

    # The seam of the driver

    def keep(self, members: Iterable[Member], records: Iterable[Record] = (), *, durable: bool) -> None:
        self._begin()
        for member in members:
            self._believe(member)
        for record in records:
            self._put(record)
        if durable:
            self._sync()

    def commit(self) -> None:
        if self._committed < len(self._undo):
            self._begin()
        self._committed = len(self._undo)

    # What happens to disks

    def crash(self, rng: random.Random) -> int:
        """SIGKILL: the end of the open group is lost, from a random place on. Returns how much was lost."""
        return self._end(rng.randint(self._committed, len(self._undo)))

    def tear(self, rng: random.Random) -> int:
        """Power failure: the end of all that is not durable is lost. Returns how much was lost."""
        return self._end(rng.randint(0, len(self._undo)))

    def is_open(self, name: object) -> bool:
        """Could a power failure take back what was written last under this name? It has the form that `_put` and the
        like give it."""
        return any(name == undone for undone, _ in self._undo)

    def _put(self, record: Record) -> None:
        known = self._records.get(record.key)
        if known is None:
            self._undo.append((record.key, lambda: self._records.pop(record.key, None)))
        else:
            self._undo.append((record.key, lambda: self._records.__setitem__(record.key, known)))
        self._records[record.key] = (next(self._order), record.value)

    def _believe(self, member: Member) -> None:
        key = (member.origin, member.has_spoken)
        known = self._members.get(key)
        if known is None:
            self._undo.append((None, lambda: self._members.pop(key, None)))
        elif known.age <= member.age:
            self._undo.append((None, lambda: self._members.__setitem__(key, known)))
        else:
            return
        self._members[key] = member

    def _begin(self) -> None:
        """Raises DiskFullError if there is no space; the open group is undone, as sqlite rolls back."""
        self._owner.writing()
        if self.is_full:
            self._lose(self._committed)
            raise DiskFullError("no space left on the simulated disk; wait until the fault ends.")

    def _sync(self) -> None:
        self._undo.clear()
        self._committed = 0

    def _end(self, kept: int) -> int:
        """The process ends: so much of what is open is found again by the next one, which cannot undo it."""
        lost = self._lose(kept)
        self._committed = len(self._undo)
        return lost

    def _lose(self, kept: int) -> int:
        lost = self._undo[kept:]
        for _, undo in reversed(lost):
            undo()
        del self._undo[kept:]
        self._committed = min(self._committed, kept)
        return len(lost)
