"""Who exchanges with whom in a round: a random matching of the graph that everyone knows.

Every edge draws a number from (run seed, round, edge). Edges are taken in the order of their numbers, each if both of
its ends have a place left. So hosts that know the same graph find the same pairs without a message. If their views
differ, one end of a pair may not know that it is one, and declines. No edge is preferred: the numbers do not depend on
names or places.

Who asks for its own partners looks only at edges that decide about them: those of its neighbours with smaller numbers,
and so on. On any graph these are few, so a round costs a host no more in a large swarm than in a small one.

A slow edge of class k takes part in every 2^k-th round on average, drawn from the same hash.
"""

import hashlib
import struct
from collections.abc import Callable, Iterable, Mapping

from seedflood.protocol.origin import OriginId

Edge = tuple[OriginId, OriginId]
"""Two origins, the smaller one first."""

LinksOf = Callable[[OriginId], Mapping[OriginId, int]]
"""The links of a host, with the class of each. Both ends know of a link, or none does."""

SLOW_CLASS_MAX = 6
"""The slowest link still exchanges in every 64th round."""


def edge_of(one: OriginId, other: OriginId) -> Edge:
    return (one, other) if one < other else (other, one)


class Lottery:
    """Draws a number for each edge and each host, the same on every host."""

    def __init__(self, run_seed: int) -> None:
        self._key = hashlib.sha256(b"seedflood gasloc matching 1\0" + str(run_seed).encode()).digest()

    def edges(self, graph: Mapping[Edge, int], round_: int) -> list[Edge]:
        """The edges that take part in the round, in the order in which they are taken. graph: the class of each
        edge."""
        key, pack, blake2b = self._key, struct.Struct(">QQQ").pack, hashlib.blake2b
        drawn = [(blake2b(pack(round_, *edge), digest_size=9, key=key).digest(), edge) for edge in graph]
        drawn.sort()
        return [edge for number, edge in drawn if not graph[edge] or not number[-1] >> (8 - graph[edge])]

    def number(self, round_: int, origin: OriginId) -> int:
        """Of a host. The draw is another one in each round, so no key comes first in all of them."""
        drawn = hashlib.blake2b(struct.pack(">QQ", round_, origin), digest_size=16, key=self._key)
        return int.from_bytes(drawn.digest())

    def first(self, round_: int, origins: Iterable[OriginId]) -> OriginId:
        """Which of these hosts decides in the round."""
        return min(origins, key=lambda one: self.number(round_, one))


class Matching:
    """The matching of a round, found out edge by edge."""

    def __init__(self, links_of: LinksOf, lottery: Lottery, round_: int, slots: int | None) -> None:
        """slots: how many partners a host has at most; None: all that take part."""
        self._links_of = links_of
        self._lottery = lottery
        self._round = round_
        self._slots = slots
        self._edges: dict[OriginId, list[Edge]] = {}
        self._taken: dict[Edge, bool] = {}

    def partners(self, origin: OriginId) -> tuple[OriginId, ...]:
        """In order; none if it has none in this round."""
        edges = [edge for edge in self._edges_at(origin) if self._is_taken(edge)]
        return tuple(sorted(a if b == origin else b for a, b in edges))

    def _edges_at(self, origin: OriginId) -> list[Edge]:
        """Those that take part, in the order in which they are taken."""
        if origin not in self._edges:
            slow = {edge_of(origin, other): one for other, one in self._links_of(origin).items()}
            self._edges[origin] = self._lottery.edges(slow, self._round)
        return self._edges[origin]

    def _is_taken(self, edge: Edge) -> bool:
        """Numbers become smaller from each edge to the next that is to be decided first, so this ends."""
        open_ = [edge]
        while open_:
            first = self._first_undecided(open_[-1])
            if first is None:
                open_.pop()
            else:
                open_.append(first)
        return self._taken[edge]

    def _first_undecided(self, edge: Edge) -> Edge | None:
        """Decides about the edge if that is possible already; else returns one that is to be decided before."""
        for end in edge:
            places = self._slots
            for earlier in self._edges_at(end):
                if earlier == edge or places is None:
                    break
                if earlier not in self._taken:
                    return earlier
                places -= self._taken[earlier]
                if not places:
                    self._taken[edge] = False
                    return None
        self._taken[edge] = True
        return None


def weight(degree: int) -> float:
    """The weight of a pair in the Laplacian (Metropolis). degree: of the end that has more partners. Both ends use the
    same weight, and the weights of a host never add up to more than 1."""
    return 1 / (1 + degree)
