"""What is not on the disk yet: the open group of the journal and, while the disk is full, everything that waits.

While the disk is full the node still receives what others send and relays it, because neighbours have it, too. Of its
own it sends nothing that it would forget in a crash. A message that says anything of ours is withheld here as a whole
until there is space; what it says of others reaches the neighbour by repair. The next round to be measured waits, too.

A node that adopts a sum must have space for it. If not, it ends with 74, and catches up when it is started again.
"""

from collections import deque
from typing import Any

from seedflood.errors import DiskFullError
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import AlgorithmMessage, Member, Members, Message
from seedflood.protocol.swarm.outputs import Outputs, Record

WITHHELD_MAX = 1024
"""The most withheld messages. Then the oldest are dropped, as if a link had broken."""

GROUP_BUNDLES_MAX = 4096
"""The most bundles in one group. Usually a window ends the group, but a node that catches up closes no windows."""

GROUP_BYTES_MAX = 4 << 20
"""The most bytes of payloads in one group."""

UNSAVED_BUNDLES_MAX = 1 << 18
"""The most bundles that wait for space, about 100 MB in memory. Beyond that the node ends (exit code 74). After a
restart it pulls them again."""

UNSAVED_BYTES_MAX = 256 << 20
"""The most bytes of payloads that wait for space."""


class Backlog:
    """Statements and records since the last commit, and bundles, if the algorithm has them. is_stuck: they could not be
    written because the disk was full."""

    def __init__(self, origin: OriginId) -> None:
        self.members: dict[tuple[OriginId, bool], Member] = {}
        """By (origin, has_spoken), as the journal keeps them."""
        self.records: dict[bytes, Record] = {}
        self.bundles: list[Any] = []
        self.is_stuck = False
        self.stated: Member | None = None
        """The last statement of ours that is on the disk."""
        self._origin = origin
        self._bytes = 0
        self._withheld: deque[tuple[OriginId, Message]] = deque(maxlen=WITHHELD_MAX)

    @property
    def is_large(self) -> bool:
        return len(self.bundles) >= GROUP_BUNDLES_MAX or self._bytes >= GROUP_BYTES_MAX

    @property
    def unwritten(self) -> list[Any]:
        """The bundles that are not even in an open group of the journal, because the disk is full."""
        return self.bundles if self.is_stuck else []

    def add(self, out: Outputs) -> None:
        """Takes what is to be written. Raises DiskFullError if too much of it waits for space."""
        self.members |= {(member.origin, member.has_spoken): member for member in out.members}
        self.records |= {record.key: record for record in out.records}
        self.bundles += out.bundles
        self._bytes += out.payload_bytes
        if len(self.bundles) > UNSAVED_BUNDLES_MAX or self._bytes > UNSAVED_BYTES_MAX:
            raise DiskFullError("the disk was full for too long; free some space and restart.")

    def group(self) -> Outputs:
        """All of it."""
        return Outputs([*self.members.values()], records=[*self.records.values()], bundles=self.bundles)

    def clear(self) -> None:
        """All of it is on the disk."""
        for member in self.members.values():
            if member.origin == self._origin and (self.stated is None or member.age >= self.stated.age):
                self.stated = member
        self.members.clear()
        self.records.clear()
        self.bundles.clear()
        self._bytes = 0

    def holds_back(self, peer: OriginId, message: Message) -> bool:
        """May this not be sent yet? Then it is withheld."""
        if not self.is_stuck or not self._is_ours(message):
            return False
        self._withheld.append((peer, message))
        return True

    def _is_ours(self, message: Message) -> bool:
        match message:
            case Members(members):
                return any(map(self.is_early, members))
            case AlgorithmMessage():
                return message.is_of(self._origin)
        return False

    def is_early(self, member: Member) -> bool:
        """Is it our own statement, and not on the disk yet?"""
        return member.origin == self._origin and self.members.get((member.origin, member.has_spoken)) == member

    def as_kept(self, member: Member) -> Member:
        """Our statement as it is on the disk, if the newest one is not there yet; those of others as they are."""
        return self.stated if self.stated is not None and self.is_early(member) else member

    def release(self) -> list[tuple[OriginId, Message]]:
        """Called when there is space again and everything is written. Returns the withheld messages, to be sent."""
        withheld = list(self._withheld)
        self._withheld.clear()
        self.clear()
        self.is_stuck = False
        return withheld
