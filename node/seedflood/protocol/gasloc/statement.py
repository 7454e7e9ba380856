"""What a node states to everyone beside its membership: how far it is, which of its links are slow, and at the end of
the run which replica it holds, and whose replicas it has refused.

Both ends of an edge state its class, and the slower word counts: so everyone computes the same matching.

A slow link exchanges less often: one that does not carry the parameters in the time of the local steps would make its
hosts late in every round.
"""

import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from seedflood.errors import PeerError
from seedflood.protocol.gasloc.matching import SLOW_CLASS_MAX, Edge, edge_of
from seedflood.protocol.gasloc.messages import DIGEST_BYTES
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.swarm.graph import distances
from seedflood.protocol.swarm.membership import Membership
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.view import stated_edges

SLOW_LINKS_MAX = 100
"""The most slow links in a statement, the slowest ones."""

REFUSED_MAX = 8
"""The most refused replicas in a statement, the latest ones."""

_HEAD = struct.Struct(">QBB")  # a round, how many links follow, and how many refused hosts after the replica
_LINK = struct.Struct(">QB")
_RESULT = struct.Struct(f">Q{DIGEST_BYTES}s")  # an origin, and a digest
_REFUSED = struct.Struct(">Q")


class Result(NamedTuple):
    """A replica at the end of the run. author: the host that made it. digest: of its content."""

    author: OriginId
    digest: bytes


@dataclass(frozen=True, slots=True)
class Stated:
    """What a node states. round: where it is. slow: the class of each slow link. result: what it holds at the end, and
    so vouches for. refused: the authors of replicas that are too far from its own."""

    round: int = 0
    slow: Mapping[OriginId, int] = field(default_factory=dict)
    result: Result | None = None
    refused: tuple[OriginId, ...] = ()

    def packed(self) -> bytes:
        slowest = sorted(self.slow.items(), key=lambda one: (-one[1], one[0]))[:SLOW_LINKS_MAX]
        refused = self.refused[-REFUSED_MAX:] if self.result is not None else ()
        parts = [_HEAD.pack(self.round, len(slowest), len(refused))]
        parts += [_LINK.pack(*one) for one in sorted(slowest)]
        if self.result is not None:
            parts.append(_RESULT.pack(*self.result))
        parts += [_REFUSED.pack(origin) for origin in refused]
        return b"".join(parts)


@lru_cache(maxsize=4096)
def unpack(state: bytes) -> Stated:
    """Undoes `packed`. Raises PeerError for bytes that no node states. Empty bytes: nothing was stated yet."""
    if not state:
        return Stated()
    if len(state) < _HEAD.size:
        raise PeerError("a statement about rounds is cut off", reason="limit")
    round_, links, refusals = _HEAD.unpack_from(state)
    end = _HEAD.size + links * _LINK.size
    with_result = end + _RESULT.size + refusals * _REFUSED.size
    has_result = len(state) == with_result
    if not has_result and (len(state) != end or refusals):
        raise PeerError("a statement about rounds has another form", reason="limit")
    if round_ > STEP_MAX or links > SLOW_LINKS_MAX or refusals > REFUSED_MAX:
        raise PeerError("a statement about rounds is beyond what any host states", reason="limit")
    slow = dict(_LINK.iter_unpack(state[_HEAD.size : end]))
    if any(not 0 < one <= SLOW_CLASS_MAX for one in slow.values()):
        raise PeerError("a link is slower than any can be", reason="limit")
    if not has_result:
        return Stated(round_, slow)
    result = Result(*_RESULT.unpack_from(state, end))
    refused = (origin for (origin,) in _REFUSED.iter_unpack(state[end + _RESULT.size :]))
    return Stated(round_, slow, result, tuple(refused))


def stated(member: Member) -> Stated:
    return unpack(member.algorithm)


def rounds_of(membership: Membership, origins: Iterable[OriginId]) -> dict[OriginId, int]:
    """The round in which each of these hosts was last; -1 if it has stated none, so that the first one is progress."""
    words = {origin: membership.spoken(origin) for origin in origins}
    return {origin: stated(word).round if word is not None else -1 for origin, word in words.items()}


def standing_still(
    membership: Membership, silent: Collection[OriginId], us: OriginId, round_: int
) -> frozenset[OriginId]:
    """The hosts that stand still for one that is in this round: silent ones (`Pace.silent`) that are behind it. Who has
    reached the round may be silent because it waits for us."""
    words = {origin: membership.get(origin) for origin in silent if origin != us}
    return frozenset(origin for origin, word in words.items() if word is None or stated(word).round < round_)


def has_finished(member: Member, rounds: int) -> bool:
    """Has it left after the last round of the run?"""
    return member.has_left and stated(member).round >= rounds


def takes_part(member: Member, rounds: int | None = None) -> bool:
    """rounds: of the run; hosts that have finished it count, too."""
    is_over = rounds is not None and has_finished(member, rounds)
    return member.has_spoken and (is_over or not member.has_left)


def known_graph(
    membership: Membership,
    still: Collection[OriginId] = (),
    *,
    rounds: int | None = None,
    is_any: bool = False,
) -> dict[Edge, int]:
    """The links of hosts that take part, stated by both ends, and the class of each. still: hosts that stand still, and
    are matched with nobody. rounds: of the run; hosts that have finished it count, too. is_any: slow links are like all
    others."""
    here = {one.origin: one for one in membership.all() if one.origin not in still and takes_part(one, rounds)}
    graph: dict[Edge, int] = {}
    for origin, member in here.items():
        for other in member.neighbours:
            partner = here.get(other) if origin < other else None
            if partner is not None and origin in partner.neighbours:
                slow = max(stated(member).slow.get(other, 0), stated(partner).slow.get(origin, 0))
                graph[edge_of(origin, other)] = 0 if is_any else slow
    return graph


def behind(
    membership: Membership, us: OriginId, reported: Mapping[OriginId, int], round_: int, still: Collection[OriginId]
) -> tuple[set[OriginId], set[OriginId]]:
    """Hosts that take part but have not reached this round: (those that we can reach in the graph, those that are
    away). The last word of a host counts: one that starts again takes part as before, and is away until it says so.
    reported: rounds of neighbours that we know besides statements. still: hosts that stand still; they count as
    away."""
    left = {one.origin for one in (*membership.all(), *membership.words()) if one.has_left}
    reported_rounds = (
        (word.origin, max(stated(word).round, reported.get(word.origin, 0))) for word in membership.words()
    )
    late = {origin for origin, reached in reported_rounds if reached < round_} - left - {us}
    linked = distances(known_graph(membership, still), us).keys()
    return late & linked, late - linked


def is_anyone_taking_part(membership: Membership, us: OriginId) -> bool:
    """Does any other host take part that we can reach in the graph of links?"""
    reached = distances(stated_edges(membership.all()), us).keys() - {us}
    return any(one.origin in reached and one.has_spoken and not one.has_left for one in membership.all())


def swarm_round(
    membership: Membership,
    reported: Mapping[OriginId, int],
    rounds: int,
    clients: int,
    *,
    but: OriginId | None = None,
) -> int:
    """The round that half of the hosts have reached, so that no minority moves anyone. reported: rounds that we know
    besides statements, our own and those of neighbours. The last word of a host counts: one that starts again states
    nothing of rounds until it takes part. Hosts that have finished the run count, those that left before do not, and
    those of whom nothing was received yet have reached nothing: else a liar that comes first would be half of them.
    but: who does not count."""
    reached = []
    unknown = clients - membership.absentees() - (but is not None)
    for word in membership.words():
        if word.origin == but:
            continue
        unknown -= 1
        round_ = max(stated(word).round, reported.get(word.origin, 0))
        if not word.has_left or round_ >= rounds:
            reached.append(min(round_, rounds))
    reached = sorted(reached + [0] * unknown, reverse=True)
    return reached[(len(reached) + 1) // 2 - 1] if reached else 0
