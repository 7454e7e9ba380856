"""Flooding: every new bundle goes once to every neighbour that is not known to hold it.

Per neighbour the node keeps a frontier of what that neighbour is known to hold: what it said in its hello, what it
sent, what it was sent. It makes three rules one: never back to where it came from, never twice over one link, and
never what is old to a neighbour that reconnects.

This is for speed. Certainty is the business of `repair`: a full queue or a broken link may lose what was sent here.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.messages import Bundle, ClosedEpoch, Held, Member, Members, Message, OriginId, Updates


@dataclass(slots=True)
class Neighbour:
    """A linked peer and what it is known to hold."""

    origin: OriginId
    knows: Frontier
    bundles: list[Bundle] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)

    def offer(self, bundle: Bundle) -> bool:
        """Queues the bundle unless it is known to be there; says whether."""
        span = bundle.span
        if self.knows.holds(*span):
            return False
        self.knows.add(*span)
        self.bundles.append(bundle)
        return True


class Flood:
    """The linked neighbours, and what is on its way to each."""

    def __init__(self) -> None:
        self.neighbours: dict[OriginId, Neighbour] = {}

    def connect(self, peer: OriginId, frontier: Iterable[Held]) -> None:
        self.neighbours[peer] = Neighbour(peer, Frontier(frontier))

    def disconnect(self, peer: OriginId) -> None:
        self.neighbours.pop(peer, None)

    def heard(self, peer: OriginId, bundle: Bundle) -> None:
        """Notes that the peer holds the bundle: it sent it."""
        self.neighbours[peer].knows.add(*bundle.span)

    def heard_epoch(self, peer: OriginId, closed: ClosedEpoch) -> None:
        """Notes that the peer holds what the epoch covers."""
        for held in closed.frontier:
            self.neighbours[peer].knows.add_held(held)

    def spread(self, bundle: Bundle) -> int:
        """Queues the bundle for every neighbour that is not known to hold it; says for how many."""
        return sum([neighbour.offer(bundle) for neighbour in self.neighbours.values()])

    def spread_member(self, member: Member, source: OriginId | None = None) -> None:
        """Queues the statement for every neighbour but its source and its subject."""
        for neighbour in self.neighbours.values():
            if neighbour.origin not in (source, member.origin):
                neighbour.members.append(member)

    def offer_members(self, peer: OriginId, members: Iterable[Member]) -> None:
        """Queues for one neighbour what is news to it, instead of what is queued: our hello may be out of date."""
        self.neighbours[peer].members = [member for member in members if member.origin != peer]

    def offer(self, peer: OriginId, bundles: Iterable[Bundle]) -> None:
        """Queues for one neighbour those bundles that it is not known to hold."""
        neighbour = self.neighbours[peer]
        for bundle in bundles:
            neighbour.offer(bundle)

    def collect(self) -> list[tuple[OriginId, Message]]:
        """Takes what is queued: statements before bundles, so that an origin's key precedes its updates."""
        messages: list[tuple[OriginId, Message]] = []
        for peer, neighbour in self.neighbours.items():
            if neighbour.members:
                messages.append((peer, Members(tuple(neighbour.members))))
                neighbour.members = []
            if neighbour.bundles:
                messages.append((peer, Updates(tuple(neighbour.bundles))))
                neighbour.bundles = []
        return messages
