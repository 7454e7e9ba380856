"""What is not on the disk yet: the open group of the journal and, while the disk is full, everything that waits.

While the disk is full the node still hears others and relays their statements. Of its own it sends nothing that it
would forget in a crash: such messages are withheld here until there is space.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import AlgorithmMessage, Member, Members, Message
from seedflood.protocol.swarm.outputs import Record

WITHHELD_MAX = 1024
"""The most withheld messages. Then the oldest are dropped, as if a link had broken."""


class Backlog:
    """Statements and records since the last commit. is_stuck: they could not be written because the disk was full."""

    def __init__(self, origin: OriginId) -> None:
        self.members: dict[tuple[OriginId, bool], Member] = {}
        """By (origin, has_spoken), as the journal keeps them."""
        self.records: dict[bytes, Record] = {}
        self.is_stuck = False
        self._origin = origin
        self._withheld: deque[tuple[OriginId, Message]] = deque(maxlen=WITHHELD_MAX)

    def add(self, members: Iterable[Member], records: Iterable[Record]) -> None:
        """Takes what is to be written."""
        self.members |= {(member.origin, member.has_spoken): member for member in members}
        self.records |= {record.key: record for record in records}

    def clear(self) -> None:
        """Forgets everything, because it was written."""
        self.members.clear()
        self.records.clear()

    def sift(self, peer: OriginId, message: Message) -> Message | None:
        """The part of the message that may be sent now, None if there is none. The rest is withheld."""
        now, later = self._divide(message) if self.is_stuck else (message, None)
        if later is None:
            return message
        self._withheld.append((peer, later))
        return now

    def _divide(self, message: Message) -> tuple[Message | None, Message | None]:
        """(the part that may be sent while the disk is full, the part that may not)."""
        match message:
            case Members(members):
                return divided(Members, members, self.is_early)
            case AlgorithmMessage():
                return None, message
        return message, None

    def is_early(self, member: Member) -> bool:
        """Is it our own statement, and not on the disk yet?"""
        return member.origin == self._origin and member in self.members.values()

    def release(self) -> list[tuple[OriginId, Message]]:
        """Called when there is space again and everything is written. Returns the withheld messages, to be sent."""
        withheld = list(self._withheld)
        self._withheld.clear()
        self.clear()
        self.is_stuck = False
        return withheld


Item = TypeVar("Item")
Whole = TypeVar("Whole")


def divided(
    whole: Callable[[tuple[Item, ...]], Whole], items: Iterable[Item], is_early: Callable[[Item], bool]
) -> tuple[Whole | None, Whole | None]:
    """(A message of the items that may be sent, one of the early ones). whole: makes a message of its items."""
    parts: tuple[list[Item], list[Item]] = ([], [])
    for item in items:
        parts[is_early(item)].append(item)
    now, later = (whole(tuple(part)) if part else None for part in parts)
    return now, later
