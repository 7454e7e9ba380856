"""The tree along which sums are sent: breadth-first over the known graph, from the host that comes first in the round's
draw (`matching`) of all that can be reached.

Hosts that know the same graph find the same tree without a message.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from seedflood.protocol.gasloc.matching import Edge
from seedflood.protocol.origin import OriginId


class Place(NamedTuple):
    """The place of a host in the tree. root: of the whole tree. parent: None for the root. children: for each child,
    the height of its subtree. height: of the whole tree, in levels below the root. hosts: for each child, how many are
    in its subtree."""

    root: OriginId
    parent: OriginId | None
    children: Mapping[OriginId, int]
    height: int
    hosts: Mapping[OriginId, int]


def find_place(graph: Iterable[Edge], origin: OriginId, first: Callable[[Iterable[OriginId]], OriginId]) -> Place:
    """The place of a host in its tree. A host without edges is a tree by itself. first: chooses the root."""
    links = _links(graph)
    root = first(_spread(links, origin))
    parents = _spread(links, root)
    below, hosts = dict.fromkeys(parents, 0), dict.fromkeys(parents, 1)
    for child, parent in reversed(parents.items()):
        if child != root:
            below[parent] = max(below[parent], below[child] + 1)
            hosts[parent] += hosts[child]
    children = {child: below[child] for child, parent in parents.items() if parent == origin != child}
    counts = {child: hosts[child] for child in children}
    return Place(root, None if origin == root else parents[origin], children, below[root], counts)


def reachable(graph: Iterable[Edge], origin: OriginId) -> set[OriginId]:
    """All hosts that can be reached from this one, itself included."""
    return set(_spread(_links(graph), origin))


def _links(graph: Iterable[Edge]) -> dict[OriginId, list[OriginId]]:
    links: dict[OriginId, list[OriginId]] = {}
    for a, b in graph:
        links.setdefault(a, []).append(b)
        links.setdefault(b, []).append(a)
    return links


def _spread(links: Mapping[OriginId, list[OriginId]], start: OriginId) -> dict[OriginId, OriginId]:
    """All hosts that can be reached, nearest first, each with the host before it on the path; the start with itself."""
    over = {start: start}
    for origin in (reached := [start]):
        for other in sorted(links.get(origin, ())):
            if other not in over:
                over[other] = origin
                reached.append(other)
    return over
