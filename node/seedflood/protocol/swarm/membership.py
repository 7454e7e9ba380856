"""Who takes part: the newest statement of every origin, and the graph of links that they state.

Statements flood like updates. Each node holds all of them, so each knows the graph, its diameter, and who is expected
in a window, without a coordinator. The statement with the greatest (incarnation, version) is believed: a process that
starts again counts its incarnation up on the disk and is believed at once, and a replayed old statement never is.

Leaving is not crashing. A statement with a last step takes its origin out of all later windows as soon as it is
received; silence alone does not.

A process that has not caught up yet states that it is there, but not in which steps it takes part: it may have lost the
disk that knew. Such a statement takes nothing back. So the last statement that *spoke* of steps is kept and passed on
beside the newest one. The others go on waiting for what it promises, and the origin itself learns from it who its
neighbours were.
"""

import hashlib
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from seedflood.protocol.origin import ORIGINS_REMEMBERED, OriginId
from seedflood.protocol.swarm.delays import HOP_MILLISECONDS_MAX
from seedflood.protocol.swarm.graph import cut_vertices, diameter
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.outputs import Event

NAMED_MAX = 16
"""The most names in one line of the log."""


class Membership:
    """The newest statement of every known origin. Signatures were checked before."""

    def __init__(self, members: Iterable[Member] = (), *, origins_max: int = ORIGINS_REMEMBERED) -> None:
        self._members: dict[OriginId, Member] = {}
        self._spoken: dict[OriginId, Member] = {}
        """The newest statement of each origin that states from which step on it takes part."""
        self.taking_part = 0
        """How many origins have stated from which step on they take part. Those that were removed count as well,
        whether they ever came or not: nobody is awaited in their place. So all who know the same roster agree on it."""
        self._silenced: Mapping[OriginId, Member] = {}
        """What counts in place of the statements of those who may not take part, by origin."""
        self._stand_ins: set[OriginId] = set()
        """The origins of which `_members` has that."""
        self.ended: dict[OriginId, int] = {}
        """By origin that contradicted itself: from which step on nothing of it counts."""
        self._took_part: set[OriginId] = set()
        """The origins that took part before they were silenced."""
        self._removed: Collection[OriginId] = ()
        self._listed: int | None = None
        self._names: Counter[str] = Counter()
        self._origins_max = origins_max
        self._links: dict[OriginId, set[OriginId]] | None = None
        self._diameter: int | None = None
        self._cut_vertices: tuple[OriginId, ...] | None = None
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
        """The last words of all origins that ever stated from which step on they take part."""
        return tuple(self._spoken.values())

    def all(self) -> tuple[Member, ...]:
        return tuple(self._members.values())

    def to_send(self) -> tuple[Member, ...]:
        """Everything that others need to know as much as we do: the newest statements, and those last words that are
        older."""
        earlier = (word for origin, word in self._spoken.items() if word is not self._members[origin])
        newest = (member for origin, member in self._members.items() if origin not in self._stand_ins)
        return (*newest, *earlier)

    def name(self, origin: OriginId) -> str:
        """The name of an origin for people; its fingerprint if it was never introduced."""
        member = self._members.get(origin)
        return member.name if member else f"{origin:016x}"

    def names(self, origins: Iterable[OriginId]) -> list[str]:
        """The names of origins, sorted, as many as fit into a line of the log."""
        return shorten(sorted(map(self.name, origins)))

    def is_news(self, member: Member) -> bool:
        """Would this statement replace what is known of its origin, or is there room for it?"""
        known = self._members.get(member.origin)
        if known is None:
            return self.has_room_for(member)
        if known.public_key != member.public_key or self._is_silenced(member):
            return False
        return member.age > known.age or self._is_last_word(member)

    def has_room_for(self, member: Member) -> bool:
        """Is its origin known, or is there a place for one more? Keys cost nothing: strangers may come without end."""
        return len(self._members) - len(self._stand_ins) < self._origins_max or member.origin in self._members

    def is_taken(self, member: Member) -> bool:
        """Does another key have this origin id already? Two keys with equal 64 bits can be searched for; the first one
        stays."""
        known = self._members.get(member.origin)
        return known is not None and known.public_key != member.public_key

    def _is_silenced(self, member: Member) -> bool:
        """Does it say that it takes part, and may not?"""
        return member.origin in self._silenced and member.has_spoken

    def _is_last_word(self, member: Member) -> bool:
        word = self._spoken.get(member.origin)
        return member.has_spoken and (word is None or member.age > word.age)

    def believe(self, member: Member) -> bool:
        """Keeps the statement if it is news; says whether it was."""
        if not self.is_news(member):
            if self._is_silenced(member):  # so the journal says: before it was silenced
                self._took_part.add(member.origin)
                self._count()
            return False
        known = self._members.get(member.origin)
        self._digest = None
        if self._is_last_word(member):
            self._spoken[member.origin] = member
            self._count()
        if known is not None and member.age < known.age:
            return True
        if known is not None and member.origin not in self._stand_ins:
            self._forget_name(known)
        self._names[member.name] += 1
        self._members[member.origin] = member
        self._stand_ins.discard(member.origin)
        if known is None or (known.neighbours, known.has_left) != (member.neighbours, member.has_left):
            self._forget_graph()
        elif known.hop_milliseconds != member.hop_milliseconds:
            self._hop_seconds = None
        return True

    def silence(
        self,
        silenced: Mapping[OriginId, Member],
        may_state: Callable[[bytes], bool],
        removed: Collection[OriginId] = (),
        listed: int | None = None,
    ) -> set[OriginId]:
        """From now on none of these takes part: what is given here, by origin, counts in place of what they stated. It
        is sent to nobody. What was published stays. Returns the origins for which something has changed.

        may_state: may the host with this key go on stating that it is there? removed: those of them that will never
        take part again. listed: how many others the roster has that may take part.
        """
        changed = set()
        for origin in [origin for origin in self._stand_ins if origin not in silenced]:
            self._stand_ins.discard(origin)
            del self._members[origin]
            changed.add(origin)
        self._silenced, self._removed, self._listed = silenced, removed, listed
        for origin, stand_in in silenced.items():
            known, word = self._members.get(origin), self._spoken.pop(origin, None)
            if word is not None:
                self._took_part.add(origin)
            if origin in self._stand_ins:
                continue
            if known is not None and word is None and not known.has_spoken and may_state(known.public_key):
                continue  # it states only that it is there
            if known is not None:
                self._forget_name(known)
            self._members[origin] = stand_in
            self._stand_ins.add(origin)
            changed.add(origin)
        self._count()
        self._digest = None
        self._forget_graph()
        return changed

    def is_silenced(self, origin: OriginId) -> bool:
        """May this origin not take part (any more)?"""
        return origin in self._silenced or origin in self.ended

    def unjoined(self, clients: int, *, is_beginning: bool = False) -> int:
        """How many clients have still to come, for all to take part.

        is_beginning: of a strict run nothing is applied yet. Then those are awaited that are on the roster now, also in
        the place of one who was removed before it came: else two halves that do not know of each other would begin.
        """
        if not is_beginning:
            return max(0, clients - self.taking_part)
        wanted = clients if self._listed is None else min(clients, self._listed)
        return max(0, wanted - len(self._spoken) - len(self._took_part & self._silenced.keys()))

    def gone_before_speaking(self) -> list[Member]:
        """Who has left before it published anything."""
        return [word for word in self._spoken.values() if word.last_step == -1]

    def absentees(self) -> int:
        """How many of those who count in `taking_part` are not expected any more."""
        return self.taking_part - len(self._spoken)

    def has_stand_in(self, origin: OriginId) -> bool:
        """Does nothing count that it stated?"""
        return origin in self._stand_ins

    def took_part(self, origin: OriginId) -> bool:
        """Did it take part before it was silenced, as far as is known here?"""
        return origin in self._took_part and origin in self._silenced

    def _count(self) -> None:
        self.taking_part = len(self._spoken)
        if self._silenced or self._removed:
            self.taking_part += len((self._took_part & self._silenced.keys()).union(self._removed))

    def _forget_graph(self) -> None:
        self._links = self._diameter = self._hop_seconds = self._cut_vertices = None

    def _forget_name(self, member: Member) -> None:
        self._names[member.name] -= 1
        if not self._names[member.name]:
            del self._names[member.name]

    def digest(self) -> bytes:
        """16 bytes, equal on nodes that know the same statements."""
        if self._digest is None:
            state = hashlib.sha256(b"seedflood members 2\0")
            for origin, member in sorted(self._members.items()):
                if origin in self._stand_ins:
                    continue
                word = self._spoken.get(origin)
                state.update(struct.pack(">QQQQQ", origin, *member.age, *(word.age if word else (0, 0))))
            self._digest = state.digest()[:16]
        return self._digest

    def hop_seconds(self) -> float:
        """The slowest hop of the network in seconds, as its hosts state it. A hop has two ends, so a host's word counts
        for no more than the largest that one of its neighbours states."""
        if self._hop_seconds is None:
            stated_delays = {origin: self._members[origin].hop_milliseconds for origin in self._linked()}
            seen = (
                min(stated_delays[one], max(stated_delays[other] for other in others))
                for one, others in self._linked().items()
            )
            self._hop_seconds = min(max(seen, default=0), HOP_MILLISECONDS_MAX) / 1000
        return self._hop_seconds

    def newer_than(self, known: Iterable[Member]) -> list[Member]:
        """The statements that we know, and that would be news to a host that sent these."""
        known = dict.fromkeys(known)
        others = [member for member in self.to_send() if member not in known]
        theirs = Membership(known if others else ())
        return [member for member in others if theirs.is_news(member)]

    def present(self) -> set[OriginId]:
        """The origins that have not left."""
        return {origin for origin, member in self._members.items() if not member.has_left}

    def origins(self) -> tuple[OriginId, ...]:
        return tuple(self._members)

    def describe_news(self, member: Member, clients: int) -> list[Event]:
        """Log lines about what a statement changes; called before it is believed."""
        known = self._members.get(member.origin) if member.origin not in self._stand_ins else None
        if known is not None and member.age < known.age:
            return []
        if member.has_spoken and member.origin not in self._spoken and self.taking_part >= clients:
            facts: dict[str, object] = {"origins": self.taking_part + 1, "clients": clients}
            return [Event("more origins than clients", "warning", facts)]
        if known is None:
            events = [Event("member joined", facts={"member": member.name, "origin": f"{member.origin:016x}"})]
            if member.name in self._names:  # a copied configuration, or a host that lost its key
                events.append(Event("two origins have one name", "warning", {"member": member.name}))
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
        """The diameter of the graph of links, in hops, at least 1; of a large and stretched graph up to twice that
        (`graph`).

        A graph that is not known to be connected counts as a path through all its hosts, the worst case. Hosts without
        a link do not count: nothing can come from them. It is computed when it is asked for.
        """
        if self._diameter is None:
            links = list(self._linked())
            self._diameter = (diameter(self._numbered(links)) or len(links) - 1) if links else 1
        return self._diameter

    def cut_vertices(self) -> tuple[OriginId, ...]:
        """The hosts through which alone some others are linked: each of them could keep news from a part of the
        swarm."""
        if self._cut_vertices is None:
            origins = sorted(self._linked())
            self._cut_vertices = tuple(origins[k] for k in sorted(cut_vertices(self._numbered(origins))))
        return self._cut_vertices

    def _numbered(self, origins: Sequence[OriginId]) -> list[set[int]]:
        """The graph with places in `origins`, which are all that are linked, for nodes."""
        number = {origin: k for k, origin in enumerate(origins)}
        return [{number[other] for other in self._linked()[origin]} for origin in origins]

    def _linked(self) -> dict[OriginId, set[OriginId]]:
        """The graph: the neighbours of each origin that has some, as stated by either side. Hosts that left are not in
        it."""
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
