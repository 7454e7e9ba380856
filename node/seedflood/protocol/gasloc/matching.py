"""Which hosts exchange with each other in a round: a random matching of the graph that all hosts know.

Every edge draws a number from (run seed, round, edge). A host goes through the edges in the order of their numbers, and
takes each whose two ends have a place left. So hosts that know the same graph find the same pairs without a message. If
their graphs differ, one end of a pair may not know of the pair, and declines. No edge is preferred: the numbers do not
depend on names or places.

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
        """The edges that take part in the round, in the order in which they are taken. graph: the class of each edge, 0
        if it is not slow."""
        key = self._key
        pack = struct.Struct(">QQQ").pack
        blake2b = hashlib.blake2b
        drawn = [(blake2b(pack(round_, *edge), digest_size=9, key=key).digest(), edge) for edge in graph]
        drawn.sort()
        # An edge of class k takes part if the first k bits of the last byte of its number are 0.
        return [edge for number, edge in drawn if number[-1] >> (8 - graph[edge]) == 0]

    def number(self, round_: int, origin: OriginId) -> int:
        """The number of a host. The draw differs from round to round, so no key comes first in all of them."""
        drawn = hashlib.blake2b(struct.pack(">QQ", round_, origin), digest_size=16, key=self._key)
        return int.from_bytes(drawn.digest())


def match(
    graph: Mapping[Edge, int], lottery: Lottery, round_: int, slots: int | None
) -> dict[OriginId, tuple[OriginId, ...]]:
    """The partners of each host that has some, in order. graph: the class of each edge. slots: the most partners of one
    host; None: all that take part."""
    partners: defaultdict[OriginId, list[OriginId]] = defaultdict(list)
    for one, other in lottery.edges(graph, round_):
        if slots is None or max(len(partners[one]), len(partners[other])) < slots:
            partners[one].append(other)
            partners[other].append(one)
    return {origin: tuple(sorted(found)) for origin, found in partners.items() if found}


def weight(degree: int) -> float:
    """The weight of a pair in the Laplacian (Metropolis). degree: how many partners that end of the pair has which has
    more. Both ends use the same weight, and the weights of a host never add up to more than 1."""
    return 1 / (1 + degree)
