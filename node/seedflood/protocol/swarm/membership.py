"""Who takes part: the newest statement of every origin, and the graph they make.

Statements flood like updates; each node holds all of them, so each knows the graph, its diameter, and who is
expected in a window, without a coordinator. The newest (incarnation, version) of an origin is believed: a restarted
origin counts its incarnation up on disk and is believed at once, a replayed old statement never.

Leaving is not crashing. A statement with a last step takes its origin out of all later windows as soon as it is
heard; silence alone does not.

A process that has not caught up yet states that it is there, and nothing of the steps it takes part in: it may have
lost the disk that knew. Such a statement takes nothing back, so the last one that *spoke* of steps is kept and told
beside the newest, for the others, who go on waiting for what it says, and for the origin itself, which learns from it
who was linked with it when it spoke.
"""

import hashlib
import struct
from collections import Counter
from collections.abc import Iterable, Sequence

from seedflood.protocol.origin import ORIGINS_REMEMBERED, OriginId
from seedflood.protocol.swarm.delays import HOP_MILLISECONDS_MAX
from seedflood.protocol.swarm.graph import diameter
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.outputs import Event

NAMED_MAX = 16
"""In a large run that stands still a line of the log shall not name everyone."""


class Membership:
    """The newest statement of every known origin. Signatures were checked before."""

    def __init__(self, members: Iterable[Member] = (), *, origins_max: int = ORIGINS_REMEMBERED) -> None:
        self._members: dict[OriginId, Member] = {}
        self._spoken: dict[OriginId, Member] = {}
        """The newest statement of each origin that tells from which step on it takes part."""
        self.taking_part = 0
        """How many origins said from which step on they take part."""
        self._names: Counter[str] = Counter()
        self._origins_max = origins_max
        self._links: dict[OriginId, set[OriginId]] | None = None
        self._diameter: int | None = None
        self._digest: bytes | None = None
        self._hop_seconds: float | None = None
        for member in members:
            self.believe(member)

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, origin: OriginId) -> bool:
        return origin in self._members

    def get(self, origin: OriginId) -> Member | None:
        return self._members.get(origin)

    def spoken(self, origin: OriginId) -> Member | None:
        """The last word of an origin about the steps it takes part in."""
        return self._spoken.get(origin)

    def words(self) -> tuple[Member, ...]:
        """The last words of all origins that ever told from which step on they take part."""
        return tuple(self._spoken.values())

    def all(self) -> tuple[Member, ...]:
        return tuple(self._members.values())

    def told(self) -> tuple[Member, ...]:
        """All that others need to know as much as we: the newest statements, and the last words older than these."""
        earlier = (word for origin, word in self._spoken.items() if word is not self._members[origin])
        return (*self._members.values(), *earlier)

    def name(self, origin: OriginId) -> str:
        """The name of an origin for people; its fingerprint if it was never introduced."""
        member = self._members.get(origin)
        return member.name if member else f"{origin:016x}"

    def names(self, origins: Iterable[OriginId]) -> list[str]:
        """In order, for a line of the log: as many as fit."""
        return shorten(sorted(map(self.name, origins)))

    def is_news(self, member: Member) -> bool:
        """Would this statement replace what is known of its origin, or is there room for it?"""
        known = self._members.get(member.origin)
        if known is None:
            return self.has_room_for(member)
        if known.public_key != member.public_key:
            return False
        return member.age > known.age or self._is_last_word(member)

    def has_room_for(self, member: Member) -> bool:
        """Is its origin known, or is there a place for one more? Keys cost nothing: strangers may come without end."""
        return len(self._members) < self._origins_max or member.origin in self._members

    def is_taken(self, member: Member) -> bool:
        """Is its origin that of another key? 64 bits of a digest collide for who looks for it: the first key stays."""
        known = self._members.get(member.origin)
        return known is not None and known.public_key != member.public_key

    def _is_last_word(self, member: Member) -> bool:
        word = self._spoken.get(member.origin)
        return member.has_spoken and (word is None or member.age > word.age)

    def believe(self, member: Member) -> bool:
        """Keeps the statement if it is news; says whether it was."""
        if not self.is_news(member):
            return False
        known = self._members.get(member.origin)
        self._digest = None
        if self._is_last_word(member):
            self._spoken[member.origin] = member
            self.taking_part = len(self._spoken)
        if known is not None and member.age < known.age:
            return True
        if known is not None:
            self._names[known.name] -= 1
            if not self._names[known.name]:
                del self._names[known.name]
        self._names[member.name] += 1
        self._members[member.origin] = member
        if known is None or (known.neighbours, known.has_left) != (member.neighbours, member.has_left):
            self._links = self._diameter = self._hop_seconds = None
        elif known.hop_milliseconds != member.hop_milliseconds:
            self._hop_seconds = None
        return True

    def digest(self) -> bytes:
        """16 bytes that are equal where the same statements are known."""
        if self._digest is None:
            state = hashlib.sha256(b"seedflood members 2\0")
            for origin, member in sorted(self._members.items()):
                word = self._spoken.get(origin)
                state.update(struct.pack(">QQQQQ", origin, *member.age, *(word.age if word else (0, 0))))
            self._digest = state.digest()[:16]
        return self._digest

    def hop_seconds(self) -> float:
        """The slowest hop that anyone who takes part has measured: a hop has two ends, so nobody's word counts for more
        than the longest that one of its neighbours says."""
        if self._hop_seconds is None:
            said = {origin: self._members[origin].hop_milliseconds for origin in self._linked()}
            seen = (min(said[one], max(said[other] for other in others)) for one, others in self._linked().items())
            self._hop_seconds = min(max(seen, default=0), HOP_MILLISECONDS_MAX) / 1000
        return self._hop_seconds

    def newer_than(self, told: Iterable[Member]) -> list[Member]:
        """The statements that would be news to whoever told these."""
        theirs = Membership(told)
        return [member for member in self.told() if theirs.is_news(member)]

    def present(self) -> set[OriginId]:
        """The origins that have not left."""
        return {origin for origin, member in self._members.items() if not member.has_left}

    def origins(self) -> tuple[OriginId, ...]:
        return tuple(self._members)

    def describe_news(self, member: Member, clients: int) -> list[Event]:
        """What a statement that is about to be believed changes, in lines for the log."""
        known = self._members.get(member.origin)
        if known is not None and member.age < known.age:
            return []
        if known is None:
            events = [Event("member joined", facts={"member": member.name, "origin": f"{member.origin:016x}"})]
            if member.name in self._names:  # a copied configuration, or a host that lost its key
                events.append(Event("two origins have one name", "warning", {"member": member.name}))
            if len(self._members) >= clients:
                facts: dict[str, object] = {"origins": len(self._members) + 1, "clients": clients}
                events.append(Event("more origins than clients", "warning", facts))
            return events
        if member.has_left and not known.has_left:
            return [Event("member left", facts={"member": member.name, "last_step": member.last_step})]
        if member.incarnation > known.incarnation:
            return [Event("member restarted", facts={"member": member.name, "incarnation": member.incarnation})]
        return []

    def is_expected(self, origin: OriginId, step: int) -> bool:
        """Will (or did) this origin measure the step?"""
        member = self._spoken.get(origin)
        if member is None or step < member.first_step:
            return False
        return member.last_step is None or step <= member.last_step

    def expected(self, step: int) -> list[OriginId]:
        """The origins that measure this step."""
        return [origin for origin in self._members if self.is_expected(origin, step)]

    def neighbours(self, origin: OriginId) -> set[OriginId]:
        """The origins linked with this one, by the word of either side, that have not left."""
        member = self._members.get(origin)
        linked = set(member.neighbours) if member and not member.has_left else set()
        linked |= {o for o, other in self._members.items() if origin in other.neighbours and not other.has_left}
        return {o for o in linked if o in self._members and not self._members[o].has_left and o != origin}

    def diameter(self) -> int:
        """Longest shortest path between origins that take part, in hops; at least 1. Of large and stretched graphs up
        to twice that (`graph`). Made when it is asked for: who waits for nobody needs none.

        While the graph is not known to be connected it counts as a path of all of them: the cautious bound. Whoever has
        no link does not count: nothing can come from it.
        """
        if self._diameter is None:
            self._diameter = self._measure_diameter()
        return self._diameter

    def _measure_diameter(self) -> int:
        links = self._linked()
        if not links:
            return 1
        number = {origin: k for k, origin in enumerate(links)}
        numbered = [{number[other] for other in others} for others in links.values()]
        return diameter(numbered) or len(links) - 1

    def _linked(self) -> dict[OriginId, set[OriginId]]:
        """The graph: neighbours of each origin that has some, by the word of either side. Who has left is in none."""
        if self._links is None:
            present = self.present()
            links: dict[OriginId, set[OriginId]] = {}
            for origin in present:
                for other in self._members[origin].neighbours:
                    if other in present and other != origin:
                        links.setdefault(origin, set()).add(other)
                        links.setdefault(other, set()).add(origin)
            self._links = links
        return self._links


def shorten(names: Sequence[str]) -> list[str]:
    """As many names as fit into a line, and how many more there are."""
    return list(names) if len(names) <= NAMED_MAX else [*names[:NAMED_MAX], f"and {len(names) - NAMED_MAX} more"]
