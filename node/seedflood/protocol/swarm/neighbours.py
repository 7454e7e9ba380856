"""The linked neighbours, and the statements that are queued for each of them.

A new statement goes once to every neighbour but the one it came from. This is for speed: a full queue or a broken link
may lose it. So neighbours also compare what they know, and tell each other everything when they link.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Member, Members


@dataclass(slots=True)
class Neighbour:
    """A linked peer. incarnation: of the process that we are linked with. members: queued statements."""

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
        """Queues a statement for every neighbour but its source and the process that made it. A neighbour does hear of
        a statement that another process made with its key: a past life that it forgot, or a copy of its key."""
        made_by = (member.origin, member.incarnation)
        for neighbour in self._linked.values():
            if neighbour.origin != source and (neighbour.origin, neighbour.incarnation) != made_by:
                neighbour.members.append(member)

    def offer(self, peer: OriginId, members: Iterable[Member]) -> None:
        """Replaces what is queued for a neighbour by the statements that are news to it: our hello may be out of
        date."""
        self._linked[peer].members = list(members)

    def take(self, peer: OriginId) -> Members | None:
        """Takes the statements that are queued for a neighbour; None if there are none."""
        neighbour = self._linked[peer]
        if not neighbour.members:
            return None
        members, neighbour.members = Members(tuple(neighbour.members)), []
        return members
