"""The linked neighbours, and the statements that are on their way to each.

A statement that is news goes once to every neighbour but the one it came from. This is for speed: a full queue or a
broken link may lose it, so neighbours also compare what they know, and tell each other all of it when they link.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Member, Members


@dataclass(slots=True)
class Neighbour:
    """A linked peer. incarnation: of its process; what it says of itself comes from it."""

    origin: OriginId
    incarnation: int
    members: list[Member] = field(default_factory=list)


class Neighbours:
    """Iterates over those who are linked, in the order in which they linked."""

    def __init__(self) -> None:
        self._linked: dict[OriginId, Neighbour] = {}

    def __iter__(self) -> Iterator[OriginId]:
        return iter(self._linked)

    def __len__(self) -> int:
        return len(self._linked)

    def __contains__(self, origin: object) -> bool:
        return origin in self._linked

    def connect(self, peer: OriginId, incarnation: int = 0) -> None:
        self._linked[peer] = Neighbour(peer, incarnation)

    def disconnect(self, peer: OriginId) -> None:
        self._linked.pop(peer, None)

    def spread(self, member: Member, source: OriginId | None = None) -> None:
        """Queues the statement for every neighbour but its source and the process that made it. One that another
        process made with a neighbour's key is news to that: a past life that it forgot, or a copy of its key."""
        made_by = (member.origin, member.incarnation)
        for neighbour in self._linked.values():
            if neighbour.origin != source and (neighbour.origin, neighbour.incarnation) != made_by:
                neighbour.members.append(member)

    def offer(self, peer: OriginId, members: Iterable[Member]) -> None:
        """Queues for one neighbour what is news to it, instead of what is queued: our hello may be out of date."""
        self._linked[peer].members = list(members)

    def take(self, peer: OriginId) -> Members | None:
        """What is queued for one of them."""
        neighbour = self._linked[peer]
        if not neighbour.members:
            return None
        members, neighbour.members = Members(tuple(neighbour.members)), []
        return members
