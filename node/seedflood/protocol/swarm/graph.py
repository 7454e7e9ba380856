"""The graph of links: how far news may have to travel, and which hosts are the only way for it.

The diameter, or an upper bound that costs milliseconds.

Windows and suspicions depend on the diameter, and the graph changes with every link of every host, so a measurement
must be cheap. A small graph, or a wide one (a mesh), is measured exactly. A large and stretched one (a ring of
hundreds) is estimated by breadth-first searches from a few nodes at its ends and in its middle. The farthest node from
any start is at least half a diameter away, so twice that distance is never too small. For a path or a grid the estimate
is right or nearly so; for a ring it is twice too large.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import reduce
from operator import or_
from typing import TypeVar

Place = TypeVar("Place", bound=Hashable)

WORK_MAX = 1 << 14
"""Nodes times hops that are measured exactly: some 10 ms for 1,000 nodes."""


SWEEPS = 8
"""Breadth-first searches for an estimate."""


def distances(edges: Iterable[tuple[Place, Place]], start: Place) -> dict[Place, int]:
    """How many hops away each node is that can be reached, `start` itself included."""
    links: dict[Place, list[Place]] = {}
    for a, b in edges:
        links.setdefault(a, []).append(b)
        links.setdefault(b, []).append(a)
    return _spread(lambda one: links.get(one, ()), start)


def _spread(neighbours: Callable[[Place], Iterable[Place]], start: Place) -> dict[Place, int]:
    """A breadth-first search: hops by node, in the order in which they are found."""
    hops = {start: 0}
    for one in (reached := [start]):
        for other in neighbours(one):
            if other not in hops:
                hops[other] = hops[one] + 1
                reached.append(other)
    return hops


def diameter(links: Sequence[set[int]]) -> int | None:
    """The diameter in hops, or an estimate of up to twice that; None if the graph is not connected.

    links: the neighbours of node 0, 1, and so on.
    """
    far = [0] * len(links)
    """Per node, its greatest distance from the start of any search."""
    node, longest, bound = 0, 0, 2 * len(links)
    for sweep in range(SWEEPS):
        hops = _spread(links.__getitem__, node)
        if len(hops) < len(links):
            return None
        reach = max(hops.values())
        longest, bound = max(longest, reach), min(bound, 2 * reach)
        far = [max(most, hops[k]) for k, most in enumerate(far)]
        node = max(hops, key=hops.__getitem__) if sweep < 2 or sweep % 2 else far.index(min(far))
    exact = _measure(links, WORK_MAX // len(links)) if longest * len(links) <= WORK_MAX else None
    return bound if exact is None else exact


def cut_vertices(links: Sequence[set[int]]) -> set[int]:
    """The nodes without which some of their own part could not reach each other (articulation points; Hopcroft and
    Tarjan 1973). links: as for `diameter`; the graph need not be connected."""
    found: set[int] = set()
    order: dict[int, int] = {}
    """When each node was met first, by a depth-first search."""
    lowest: dict[int, int] = {}
    """The earliest node that its subtree is linked with."""
    for root in range(len(links)):
        if root in order:
            continue
        order[root] = lowest[root] = len(order)
        subtrees = 0
        path = [(root, iter(links[root]))]
        while path:
            node, others = path[-1]
            for other in others:
                if other not in order:
                    order[other] = lowest[other] = len(order)
                    path.append((other, iter(links[other])))
                    break
                lowest[node] = min(lowest[node], order[other])
            else:
                path.pop()
                above = path[-1][0] if path else root
                lowest[above] = min(lowest[above], lowest[node])
                if above == root:
                    subtrees += bool(path)
                elif lowest[node] >= order[above]:
                    found.add(above)
        if subtrees > 1:
            found.add(root)
    return found


def _measure(links: Sequence[set[int]], hops_max: int) -> int | None:
    """The diameter, if it is at most hops_max; else None. Each node's set of reached nodes, as bits, grows hop by hop
    until all sets are full."""
    everyone = (1 << len(links)) - 1
    balls = [1 << k for k in range(len(links))]
    for hops in range(hops_max + 1):
        if all(ball == everyone for ball in balls):
            return hops
        balls = [reduce(or_, [balls[other] for other in linked], balls[k]) for k, linked in enumerate(links)]
    return None
