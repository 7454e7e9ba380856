"""A disk in memory, with crashes, power failures and lack of space.

It behaves like `storage.Journal`, and loses as much or more. What is written is *open* until its group is committed;
then `kill -9` cannot take it. A power failure can take the last of what was committed, until something durable is
written after it.
"""

import random
from collections.abc import Iterable
from itertools import count
from typing import Any, Protocol

from seedflood.errors import DiskFullError
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.outputs import Record


class Owner(Protocol):
    """The host of the disk."""

    def writing(self) -> None:
        """Called before every write. It may raise to end the process at this moment."""


class MemoryJournal:
    """The disk of one host, over all its lives. is_full: every write is refused.

    incarnation: how often the host was started with this disk.
    """

    def __init__(self, owner: Owner) -> None:
        self.incarnation = 0
        self.is_full = False
        self._owner = owner
        self._members: dict[tuple[OriginId, bool], Member] = {}
        """By (origin, has_spoken)."""
        self._records: dict[bytes, tuple[int, bytes]] = {}
        """The newest value of each key, with the number of its write."""
        self._order = count()
        self._undo: list[tuple[object, dict[Any, Any], Any, Any]] = []
        """For each write that is not durable, oldest first: its name, the table, the key in it, and what was there."""
        self._committed = 0
        """How many of these belong to committed groups."""

    def members(self) -> list[Member]:
        return list(self._members.values())

    def records(self) -> dict[bytes, bytes]:
        """The newest value of each key, in the order in which these values were written."""
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
        """SIGKILL: loses the open group from a random write on. Returns how many writes were lost."""
        return self._end(rng.randint(self._committed, len(self._undo)))

    def tear(self, rng: random.Random) -> int:
        """Power failure: loses what is not durable from a random write on. Returns how many writes were lost."""
        return self._end(rng.randint(0, len(self._undo)))

    def is_open(self, name: object) -> bool:
        """Could a power failure undo the last write of this name? name: as `_put` and its like record it."""
        return any(name == undone for undone, *_ in self._undo)

    def _put(self, record: Record) -> None:
        known = self._records.get(record.key)
        self._undo.append((record.key, self._records, record.key, known))
        self._records[record.key] = (next(self._order), record.value)

    def _believe(self, member: Member) -> None:
        key = (member.origin, member.has_spoken)
        known = self._members.get(key)
        if known is None or known.age <= member.age:
            self._undo.append((None, self._members, key, known))
            self._members[key] = member

    def _begin(self) -> None:
        """Raises DiskFullError if there is no space. The open group is then rolled back, as in sqlite."""
        self._owner.writing()
        if self.is_full:
            self._lose(self._committed)
            raise DiskFullError("no space left on the simulated disk; wait until the fault ends.")

    def _sync(self) -> None:
        self._undo.clear()
        self._committed = 0

    def _end(self, kept: int) -> int:
        """The process ends. The next one finds `kept` of the writes that can be undone, and cannot undo them."""
        lost = self._lose(kept)
        self._committed = len(self._undo)
        return lost

    def _lose(self, kept: int) -> int:
        lost = self._undo[kept:]
        for _, table, key, known in reversed(lost):
            if known is None:
                table.pop(key, None)
            else:
                table[key] = known
        del self._undo[kept:]
        self._committed = min(self._committed, kept)
        return len(lost)
