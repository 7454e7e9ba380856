"""The linked neighbours, and what is queued for each of them: statements, and what an algorithm gathers.

A new statement goes once to every neighbour but the one it came from. This is for speed: a full queue or a broken link
may lose it. So neighbours also compare what they know, and send each other everything when they link.

In a large swarm news of all hosts come one by one, by each link. So those of others are gathered for a moment
(`Swarm.collect`) and sent together. What the neighbour sends us meanwhile need not be sent to it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Member, Members


@dataclass(slots=True)
class Neighbour:
    """A linked peer. incarnation: of the process that we are linked with. members: queued statements, by (origin,
    has_spoken). is_urgent: one of them may not wait. gathered: what an algorithm wants to be passed on, in order."""

    origin: OriginId
    incarnation: int
    members: dict[tuple[OriginId, bool], Member] = field(default_factory=dict)
    is_urgent: bool = False
    gathered: dict[Any, None] = field(default_factory=dict)

    def outdate(self, member: Member) -> None:
        """Takes out what nobody needs who knows this statement. A last word is needed beside a newer one without
        steps."""
        for key in ((member.origin, False), (member.origin, member.has_spoken)):
            if (queued := self.members.get(key)) is not None and queued.age <= member.age:
                del self.members[key]


class Neighbours:
    """Iterates over those who are linked, in the order in which they linked. has_gathered: may anything wait to be
    passed on?"""

    def __init__(self) -> None:
        self.has_gathered = False
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

    def spread(self, member: Member, source: OriginId | None = None, *, is_urgent: bool = False) -> None:
        """Queues a statement for every neighbour but its source and the process that made it. A neighbour does get
        a statement that another process made with its key: a past life that it forgot, or a copy of its key."""
        made_by = (member.origin, member.incarnation)
        for neighbour in self._linked.values():
            if neighbour.origin != source and (neighbour.origin, neighbour.incarnation) != made_by:
                neighbour.outdate(member)
                neighbour.members[member.origin, member.has_spoken] = member
                neighbour.is_urgent = neighbour.is_urgent or is_urgent
                self.has_gathered = True

    def receive(self, peer: OriginId, member: Member) -> None:
        """A neighbour has sent us this statement, so it need not be sent to it, nor an older one."""
        if (neighbour := self._linked.get(peer)) is not None:
            neighbour.outdate(member)

    def offer(self, peer: OriginId, members: Iterable[Member]) -> None:
        """Replaces what is queued for a neighbour by the statements that are news to it: our hello may be out of
        date."""
        neighbour = self._linked[peer]
        neighbour.members = {(member.origin, member.has_spoken): member for member in members}
        neighbour.is_urgent = bool(neighbour.members)

    def take(self, peer: OriginId, *, is_urgent: bool = False) -> Members | None:
        """Takes the statements that are queued for a neighbour; None if there are none, or, if only what is urgent is
        wanted, none that may not wait."""
        neighbour = self._linked[peer]
        if not neighbour.members or (is_urgent and not neighbour.is_urgent):
            return None
        members, neighbour.members, neighbour.is_urgent = Members(tuple(neighbour.members.values())), {}, False
        return members

    def gather(self, news: Iterable[Any], source: OriginId | None = None) -> None:
        """Queues an algorithm's news for every neighbour but their source."""
        news = dict.fromkeys(news)
        for neighbour in self._linked.values():
            if neighbour.origin != source:
                neighbour.gathered |= news
                self.has_gathered = True

    def receive_gathered(self, peer: OriginId, news: Iterable[Any]) -> None:
        """A neighbour has sent us these, so they need not be sent to it."""
        if (neighbour := self._linked.get(peer)) is not None and neighbour.gathered:
            for one in news:
                neighbour.gathered.pop(one, None)

    def take_gathered(self, peer: OriginId) -> list[Any]:
        neighbour = self._linked[peer]
        news, neighbour.gathered = list(neighbour.gathered), {}
        return news
