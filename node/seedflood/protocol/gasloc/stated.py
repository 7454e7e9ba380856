"""What a node states to everyone beside its membership: how far it is, and which of its links are slow.

Both ends of an edge state its class, and the slower word counts: so everyone computes the same matching.
"""

import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from seedflood.errors import PeerError
from seedflood.protocol.gasloc.matching import SLOW_CLASS_MAX, Edge, edge_of
from seedflood.protocol.gasloc.tree import reachable
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.swarm.membership import Membership
from seedflood.protocol.swarm.messages import Member

SLOW_LINKS_MAX = 100
"""The most slow links in a statement, the slowest ones."""

_HEAD = struct.Struct(">QB")
_LINK = struct.Struct(">QB")


@dataclass(frozen=True, slots=True)
class Stated:
    """What a node states. round: where it is. slow: the class of each slow link."""

    round: int = 0
    slow: Mapping[OriginId, int] = field(default_factory=dict)

    def packed(self) -> bytes:
        slowest = sorted(self.slow.items(), key=lambda one: (-one[1], one[0]))[:SLOW_LINKS_MAX]
        return _HEAD.pack(self.round, len(slowest)) + b"".join(_LINK.pack(*one) for one in sorted(slowest))


@lru_cache(maxsize=4096)
def unpack(state: bytes) -> Stated:
    """Undoes `packed`. Raises PeerError for bytes that no node states. Empty bytes: nothing was stated yet."""
    if not state:
        return Stated()
    if len(state) < _HEAD.size:
        raise PeerError("a statement about rounds is cut off", reason="limit")
    round_, count = _HEAD.unpack_from(state)
    if len(state) != _HEAD.size + count * _LINK.size or round_ > STEP_MAX or count > SLOW_LINKS_MAX:
        raise PeerError("a statement about rounds has another form", reason="limit")
    slow = dict(_LINK.iter_unpack(state[_HEAD.size :]))
    if any(not 0 < one <= SLOW_CLASS_MAX for one in slow.values()):
        raise PeerError("a link is slower than any can be", reason="limit")
    return Stated(round_, slow)


def stated(member: Member) -> Stated:
    return unpack(member.algorithm)


def known_links(membership: Membership, still: Collection[OriginId], origin: OriginId) -> dict[OriginId, int]:
    """The links of a host, stated by both ends, with hosts that take part, and the class of each. still: hosts that
    stand still, and are matched with nobody."""
    member = _taking_part(membership, still, origin)
    links: dict[OriginId, int] = {}
    for other in member.neighbours if member is not None else ():
        partner = _taking_part(membership, still, other) if other != origin else None
        if member is not None and partner is not None and origin in partner.neighbours:
            links[other] = max(stated(member).slow.get(other, 0), stated(partner).slow.get(origin, 0))
    return links


def known_graph(membership: Membership, still: Collection[OriginId] = ()) -> dict[Edge, int]:
    """All of these links."""
    return {
        edge_of(member.origin, other): slow
        for member in membership.all()
        for other, slow in known_links(membership, still, member.origin).items()
        if member.origin < other
    }


def _taking_part(membership: Membership, still: Collection[OriginId], origin: OriginId) -> Member | None:
    member = membership.get(origin)
    is_there = member is not None and member.has_spoken and not member.has_left and origin not in still
    return member if is_there else None


def behind(
    membership: Membership, us: OriginId, told: Mapping[OriginId, int], round_: int, still: Collection[OriginId]
) -> tuple[set[OriginId], set[OriginId]]:
    """Hosts that take part but have not reached this round: (those that we can reach in the graph, those that are
    away). told: rounds of neighbours that we know besides statements. still: hosts that stand still; they count as
    away."""
    late = {
        member.origin
        for member in membership.all()
        if member.has_spoken and not member.has_left and max(stated(member).round, told.get(member.origin, 0)) < round_
    } - {us}
    linked = reachable(known_graph(membership, still), us)
    return late & linked, late - linked


def is_anyone_taking_part(membership: Membership, us: OriginId) -> bool:
    """Does any other host take part that we can reach in the graph of links? A link counts if both ends state it."""
    reached, ends = {us}, [us]
    while ends:
        member = membership.get(ends.pop())
        for other in member.neighbours if member is not None else ():
            there = membership.get(other)
            if there is None or other in reached or member is None or member.origin not in there.neighbours:
                continue
            if there.has_spoken and not there.has_left:
                return True
            reached.add(other)
            ends.append(other)
    return False


def swarm_round(
    membership: Membership, told: Mapping[OriginId, int], rounds: int, *, but: OriginId | None = None
) -> int:
    """The round that half of the hosts have reached, so that no minority moves anyone. told: rounds that we know
    besides statements, our own and those of neighbours. The last word of a host counts: one that starts again states
    nothing of rounds until it takes part. Hosts that have finished the run count, those that left before do not.
    but: who does not count."""
    reached = []
    for word in membership.words():
        if word.origin == but:
            continue
        round_ = max(stated(word).round, told.get(word.origin, 0))
        if not word.has_left or round_ >= rounds:
            reached.append(min(round_, rounds))
    reached.sort(reverse=True)
    return reached[(len(reached) + 1) // 2 - 1] if reached else 0
