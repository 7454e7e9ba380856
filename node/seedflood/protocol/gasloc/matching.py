"""Who exchanges with whom in a round: a random matching of the graph that everyone knows.

Every edge draws a number from (run seed, round, edge). Edges are taken in the order of their numbers, each if both of
its ends have a place left. So hosts that know the same graph find the same pairs without a message. If their views
differ, one end of a pair may not know that it is one, and declines. No edge is preferred: the numbers do not depend on
names or places.

A slow edge of class k takes part in every 2^k-th round on average, drawn from the same hash.
"""

import hashlib
import struct
from collections import defaultdict
from collections.abc import Mapping

from seedflood.protocol.origin import OriginId

Edge = tuple[OriginId, OriginId]
"""Two origins, the smaller one first."""

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


def match(
    graph: Mapping[Edge, int], lottery: Lottery, round_: int, slots: int | None
) -> dict[OriginId, tuple[OriginId, ...]]:
    """The partners of each host that has some, in order. graph: the class of each edge. slots: how many partners a host
    has at most; None: all that take part."""
    partners: defaultdict[OriginId, list[OriginId]] = defaultdict(list)
    for one, other in lottery.edges(graph, round_):
        if slots is None or max(len(partners[one]), len(partners[other])) < slots:
            partners[one].append(other)
            partners[other].append(one)
    return {origin: tuple(sorted(its)) for origin, its in partners.items() if its}


def weight(degree: int) -> float:
    """The weight of a pair in the Laplacian (Metropolis). degree: of the end that has more partners. Both ends use the
    same weight, and the weights of a host never add up to more than 1."""
    return 1 / (1 + degree)
