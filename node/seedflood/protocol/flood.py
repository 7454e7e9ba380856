"""Flooding: every new bundle goes once to every neighbour that is not known to hold it.

Three rules: never back to where it came from, never twice over one link, and never what is old to a neighbour that
reconnects. Only news is spread, and the node's own frontier tells news from duplicates, so the second rule needs
nothing here; the third needs what the neighbour said in its hello.

This is for speed. Certainty is the business of `repair`: a full queue or a broken link may lose what was sent here.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from seedflood.protocol.batches import cut_bundles
from seedflood.protocol.frontier import Frontier
from seedflood.protocol.messages import Bundle, Held, Member, Members, Message, OriginId, Updates


@dataclass(slots=True)
class Neighbour:
    """A linked peer. held: what it held when we linked; nothing in it is beyond held_last. incarnation: of its process;
    what it says of itself comes from it."""

    origin: OriginId
    held: Frontier
    held_last: int
    incarnation: int
    updates: list[Updates] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)

    def offer(self, updates: Updates, first: int) -> None:
        """Queues those that it did not hold. first: none of them is of an earlier step."""
        if first <= self.held_last:
            holds = self.held.holds
            updates = Updates(tuple([bundle for bundle in updates.bundles if not holds(*bundle.span)]))
        if updates.bundles:
            self.updates.append(updates)


class Flood:
    """The linked neighbours, and what is on its way to each."""

    def __init__(self) -> None:
        self.neighbours: dict[OriginId, Neighbour] = {}

    def connect(self, peer: OriginId, frontier: Iterable[Held], incarnation: int = 0) -> None:
        held = Frontier(frontier)
        self.neighbours[peer] = Neighbour(peer, held, max(map(held.last, held.origins), default=-1), incarnation)

    def disconnect(self, peer: OriginId) -> None:
        self.neighbours.pop(peer, None)

    def spread(self, bundles: Sequence[Bundle], source: OriginId | None = None) -> None:
        """Queues news for every neighbour but its source: the same batches for all of them."""
        for updates, first in _batches(bundles):
            for neighbour in self.neighbours.values():
                if neighbour.origin != source:
                    neighbour.offer(updates, first)

    def spread_member(self, member: Member, source: OriginId | None = None) -> None:
        """Queues the statement for every neighbour but its source and the process that made it. One that another
        process made with a neighbour's key is news to that: a past life that it forgot, or a copy of its key."""
        made_by = (member.origin, member.incarnation)
        for neighbour in self.neighbours.values():
            if neighbour.origin != source and (neighbour.origin, neighbour.incarnation) != made_by:
                neighbour.members.append(member)

    def offer_members(self, peer: OriginId, members: Iterable[Member]) -> None:
        """Queues for one neighbour what is news to it, instead of what is queued: our hello may be out of date."""
        self.neighbours[peer].members = list(members)

    def offer(self, peer: OriginId, bundles: Sequence[Bundle]) -> None:
        """Queues for a neighbour that has just linked what it did not hold."""
        for updates, first in _batches(bundles):
            self.neighbours[peer].offer(updates, first)

    def collect(self) -> list[tuple[OriginId, Message]]:
        """Takes what is queued: statements before bundles, so that an origin's key precedes its updates."""
        messages: list[tuple[OriginId, Message]] = []
        for peer, neighbour in self.neighbours.items():
            if neighbour.members:
                messages.append((peer, Members(tuple(neighbour.members))))
                neighbour.members = []
            messages += [(peer, updates) for updates in neighbour.updates]
            neighbour.updates.clear()
        return messages


def _batches(bundles: Sequence[Bundle]) -> Iterator[tuple[Updates, int]]:
    """(some of these, the first step measured in them): all at once, unless they tell more than fills a frame."""
    for part in cut_bundles(bundles, len(bundles) or 1):
        yield Updates(part), min([bundle.step for bundle in part])
