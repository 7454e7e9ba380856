"""What is not on the disk yet: the open group of the journal, and, while the disk is full, all that waits for it.

While it is full the node goes on hearing others and passing on what they state. Of itself it says nothing that a crash
could make it forget: what it would have sent is withheld here until there is space.
"""

from collections import deque
from collections.abc import Iterable

from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import AlgorithmMessage, Member, Members, Message
from seedflood.protocol.swarm.outputs import Record

WITHHELD_MAX = 1024
"""Messages. Of more the oldest are dropped, as a broken link drops them."""


class Backlog:
    """Statements and records since the last commit. is_stuck: the disk was full when they should have been written."""

    def __init__(self, origin: OriginId) -> None:
        self.members: dict[tuple[OriginId, bool], Member] = {}
        """By (origin, does the statement speak of its steps), as the journal keeps them."""
        self.records: dict[bytes, Record] = {}
        self.is_stuck = False
        self._origin = origin
        self._withheld: deque[tuple[OriginId, Message]] = deque(maxlen=WITHHELD_MAX)

    def add(self, members: Iterable[Member], records: Iterable[Record]) -> None:
        """They are to be written."""
        self.members |= {(member.origin, member.has_spoken): member for member in members}
        self.records |= {record.key: record for record in records}

    def clear(self) -> None:
        """Everything was written."""
        self.members.clear()
        self.records.clear()

    def sift(self, peer: OriginId, message: Message) -> Message | None:
        """What of the message may be sent now; the rest is withheld."""
        if not self.is_stuck:
            return message
        if isinstance(message, AlgorithmMessage):
            self._withheld.append((peer, message))
            return None
        return self._sift_members(peer, message) if isinstance(message, Members) else message

    def _sift_members(self, peer: OriginId, message: Members) -> Message | None:
        """Statements of ours that are not kept wait."""
        early = [member for member in message.members if self.is_early(member)]
        if not early:
            return message
        self._withheld.append((peer, Members(tuple(early))))
        others = tuple(member for member in message.members if member not in early)
        return Members(others) if others else None

    def is_early(self, member: Member) -> bool:
        """Is it a statement of ours that is not kept yet?"""
        return member.origin == self._origin and member in self.members.values()

    def release(self) -> list[tuple[OriginId, Message]]:
        """There is space again, and all is written: what to send."""
        withheld = list(self._withheld)
        self._withheld.clear()
        self.clear()
        self.is_stuck = False
        return withheld
