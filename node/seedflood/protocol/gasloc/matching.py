"""Who exchanges with whom in a round: a random matching of the graph that everyone knows.

Every edge draws a number from (run seed, round, edge). Edges are taken in the order of their numbers, each if both of
its ends have a place left. So hosts that know the same graph find the same pairs without a message. If their views
differ, one end of a pair may not know that it is one, and declines. No edge is preferred: the numbers do not depend on
names or places.

A slow edge of class k takes part in every 2^k-th round on average, drawn from the same hash.
"""

import hashlib
import struct
from collections.abc import Mapping

from seedflood.protocol.origin import OriginId

Edge = tuple[OriginId, OriginId]
"""The smaller origin first."""

SLOW_CLASS_MAX = 6
"""The slowest link still exchanges in every 64th round."""


def edge_of(one: OriginId, other: OriginId) -> Edge:
    return (one, other) if one < other else (other, one)


class Lottery:
    """Numbers for edges, the same on every host."""

    def __init__(self, run_seed: int) -> None:
        self._key = hashlib.sha256(b"seedflood gasloc matching 1\0" + str(run_seed).encode()).digest()

    def edges(self, graph: Mapping[Edge, int], round_: int) -> list[Edge]:
        """The edges that take part in the round, in the order in which they are taken. graph: the class of each
        edge."""
        key, pack, blake2b = self._key, struct.Struct(">QQQ").pack, hashlib.blake2b
        drawn = [(blake2b(pack(round_, *edge), digest_size=9, key=key).digest(), edge) for edge in graph]
        drawn.sort()
        return [edge for number, edge in drawn if not graph[edge] or not number[-1] >> (8 - graph[edge])]


def match(
    graph: Mapping[Edge, int], lottery: Lottery, round_: int, slots: int | None
) -> dict[OriginId, tuple[OriginId, ...]]:
    """The partners of each origin that has some in this round, in order. slots: how many at most; None: all."""
    partners: dict[OriginId, list[OriginId]] = {}
    for a, b in lottery.edges(graph, round_):
        of_a, of_b = partners.setdefault(a, []), partners.setdefault(b, [])
        if slots is None or (len(of_a) < slots and len(of_b) < slots):
            of_a.append(b)
            of_b.append(a)
    return {origin: tuple(sorted(others)) for origin, others in partners.items() if others}


def weight(degree: int) -> float:
    """The weight of a pair in the Laplacian (Metropolis). degree: of the end that has more partners. Both ends take the
    same weight, and no end gives away more than it has."""
    return 1 / (1 + degree)
