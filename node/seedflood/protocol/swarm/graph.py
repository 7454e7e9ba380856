"""How far news may have to go: the diameter of the graph of links, or a bound of it that costs milliseconds.

Windows and suspicions are bounded by the diameter, and the graph changes with every link of every host. So the cost is
bounded: a graph that is small, or wide (a mesh), is measured exactly; one that is large and stretched (a ring of
hundreds) is estimated by looking from a few nodes, at its ends and in its middle. The farthest from any node is at
least half a diameter away, so twice that is never too small; for a path or a grid it is right or nearly so, for a ring
twice too much.
"""

from collections.abc import Sequence
from functools import reduce
from operator import or_

WORK_MAX = 1 << 14
"""Nodes times hops that are measured exactly: some 10 ms for 1,000 nodes."""


SWEEPS = 8


def diameter(links: Sequence[set[int]]) -> int | None:
    """Of a graph with nodes 0, 1, ... and these neighbours, in hops, or up to twice that. None: it is not connected."""
    far = [0] * len(links)
    """Of each node the greatest distance to one that was looked from."""
    node, longest, bound = 0, 0, 2 * len(links)
    for sweep in range(SWEEPS):
        distances = _distances(links, node)
        if len(distances) < len(links):
            return None
        reach = max(distances.values())
        longest, bound = max(longest, reach), min(bound, 2 * reach)
        far = [max(most, distances[k]) for k, most in enumerate(far)]
        node = max(distances, key=distances.__getitem__) if sweep < 2 or sweep % 2 else far.index(min(far))
    exact = _measure(links, WORK_MAX // len(links)) if longest * len(links) <= WORK_MAX else None
    return bound if exact is None else exact


def _distances(links: Sequence[set[int]], start: int) -> dict[int, int]:
    """In hops, of all nodes that can be reached."""
    distances = {start: 0}
    edge, hops = [start], 0
    while edge:
        hops += 1
        found = []
        for node in edge:
            for other in links[node]:
                if other not in distances:
                    distances[other] = hops
                    found.append(other)
        edge = found
    return distances


def _measure(links: Sequence[set[int]], hops_max: int) -> int | None:
    """Everybody's ball grows hop by hop, until all are everywhere: sets of nodes as bits. None: not in so many hops."""
    everyone = (1 << len(links)) - 1
    balls = [1 << k for k in range(len(links))]
    for hops in range(hops_max + 1):
        if all(ball == everyone for ball in balls):
            return hops
        balls = [reduce(or_, [balls[other] for other in linked], balls[k]) for k, linked in enumerate(links)]
    return None
