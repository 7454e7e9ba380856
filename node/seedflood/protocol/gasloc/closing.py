"""How many closing rounds a run ends with: exchanges with all neighbours, without local steps, momentum or loss.

They bring replicas close, so that it hardly matters whose all end with (`choice`). Their number follows from the graph
that a host knows: as many as make any distance to the mean a thousandth, which the second eigenvalue of the mixing
matrix tells (Boyd et al. 2004, "Fastest mixing Markov chain on a graph", section 1). So a complete graph takes one, a
ring of 8 some 30, and long rings, paths and stars would take hundreds; a limit stops them (`CLOSING_ROUNDS_MAX`), and
docs/gasloc.md says at what distance. Hosts that know different graphs find different numbers, which costs only rounds:
who goes on alone is declined at once.
"""

from collections.abc import Iterable, Sequence
from math import ceil, log, sqrt

from seedflood.protocol.gasloc.matching import Edge, weight
from seedflood.protocol.gasloc.rules import CLOSING_ROUNDS_MAX
from seedflood.protocol.origin import OriginId

DISTANCE = 1e-3
"""Of the distance before."""

ITERATIONS, NOTHING = 4 * CLOSING_ROUNDS_MAX, 1e-9
"""Of the power method, and a distance that is rounding alone."""


GOLDEN = (sqrt(5) - 1) / 2
"""Its multiples, without whole numbers, are a beginning that no graph is symmetric to."""


def closing_rounds(graph: Iterable[Edge], origins: Iterable[OriginId]) -> int:
    """The number for these hosts of a graph, in which others may be, too."""
    places = {origin: place for place, origin in enumerate(sorted(origins))}
    edges = [(places[a], places[b]) for a, b in graph if a in places and b in places]
    degrees = [sum(place in edge for edge in edges) for place in places.values()]
    pulls = [(a, b, weight(max(degrees[a], degrees[b]))) for a, b in edges]
    share, column = 1.0, _scaled([place * GOLDEN % 1 for place in places.values()])
    for done in range(ITERATIONS):
        if share < NOTHING or not any(column):
            return done
        after = _mixed(column, pulls)
        share = _size(after)
        column = _scaled(after)
    return min(ceil(log(DISTANCE) / log(min(share, 1 - NOTHING))), CLOSING_ROUNDS_MAX)


def distance_left(done: int, rounds: int) -> float:
    """What so many of all closing rounds leave of the distance to the mean."""
    return float(DISTANCE ** (done / rounds)) if rounds else 1.0


def _mixed(column: Sequence[float], pulls: Iterable[tuple[int, int, float]]) -> list[float]:
    after = list(column)
    for a, b, share in pulls:
        change = share * (column[a] - column[b])
        after[a] -= change
        after[b] += change
    return after


def _scaled(column: Sequence[float]) -> list[float]:
    """Its distance to the mean, made one; zeros if there is none."""
    mean = sum(column) / len(column)
    apart = [one - mean for one in column]
    size = _size(apart)
    return [one / size for one in apart] if size > NOTHING else [0.0] * len(column)


def _size(column: Sequence[float]) -> float:
    return sqrt(sum(one * one for one in column))
