"""How long a run would take on links of a stated kind: a clock for every client.

A client computes as long as was measured, as if it had a core like ours for itself. Then it waits for those whose
messages its method needs: for everyone, for its neighbours, or for its partners of the round. A message takes the delay
of a link and its bytes at full bandwidth; both directions have all of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from seedflood.cluster.topology import make_topology
from seedflood.protocol.gasloc.matching import Lottery
from study.cell import Cell, Result
from study.methods import METHODS
from study.methods.gasloc import matched
from study.methods.method import Graph


@dataclass(frozen=True, slots=True)
class Links:
    """slow_factor: how much less bandwidth the slow edges have (`Graph.slow_edges`)."""

    name: str
    bits_per_second: float
    delay_seconds: float
    slow_factor: float = 1.0

    def seconds(self, sent: float, *, is_slow: bool) -> float:
        """Of a message of so many bytes over one edge."""
        return self.delay_seconds + 8 * sent * (self.slow_factor if is_slow else 1) / self.bits_per_second


PHONE = Links("1 Mbit/s, 100 ms", 1e6, 0.1)
HOME = Links("20 Mbit/s, 30 ms", 2e7, 0.03)
LAN = Links("1 Gbit/s, 1 ms", 1e9, 0.001)
UNEQUAL = Links("1 Mbit/s, 100 ms, every fourth an eighth", 1e6, 0.1, slow_factor=8)
LINKS = (PHONE, UNEQUAL, HOME, LAN)


def seconds_to(result: Result, loss: float, links: Links) -> float | None:
    """Until the last client has done what led to a validation loss, by the points of the course; None if it was not
    reached."""
    for point, seconds in zip(result.course, clock(result, links), strict=True):
        if point["loss"] is not None and point["loss"] <= loss:
            return seconds
    return None


def clock(result: Result, links: Links) -> Iterator[float]:
    """At each point of the course, when the last client gets there."""
    cell, rounds = result.cell, 0
    graph = graph_of(cell)
    waits_for = METHODS[cell.method].waits_for
    at = [0.0] * cell.clients
    yield 0.0
    for before, after in pairwise(result.course):
        piece = {key: after[key] - before[key] for key in ("measure_seconds", "exchange_seconds", "edge_bytes", "hops")}
        computing = piece["measure_seconds"] + piece["exchange_seconds"]
        if waits_for == "all":
            slowest = links.seconds(piece["edge_bytes"], is_slow=bool(graph.slow_edges)) - links.delay_seconds
            at = [max(at) + computing + piece["hops"] * links.delay_seconds + slowest] * cell.clients
        else:
            partners = [_partners(cell, graph, number) for number in range(rounds, rounds + piece["hops"])]
            at = _after(at, computing, piece["edge_bytes"], graph, partners, links)
            rounds += piece["hops"]
        yield max(at)


def graph_of(cell: Cell) -> Graph:
    return Graph(cell.clients, tuple(make_topology(cell.topology, cell.clients, seed=cell.seed)))


def _partners(cell: Cell, graph: Graph, round_: int) -> list[tuple[int, ...]]:
    if METHODS[cell.method].waits_for == "neighbours":
        return list(graph.neighbours)
    return matched(graph, Lottery(cell.seed), round_, int(dict(cell.options).get("slow_class", 0)))


def _after(
    at: list[float],
    computing: float,
    edge_bytes: float,
    graph: Graph,
    rounds: list[list[tuple[int, ...]]],
    links: Links,
) -> list[float]:
    """The clocks after some rounds in which everyone waits for its partners of the round. edge_bytes: of all these
    rounds, in the mean over edges and directions."""
    messages = sum(len(others) for partners in rounds for others in partners)
    sent = edge_bytes * 2 * len(graph.edges) / messages if messages else 0.0
    for partners in rounds:
        ready = [one + computing / len(rounds) for one in at]
        at = [
            max(
                [
                    ready[client],
                    *(max(ready[client], ready[other]) + _over(client, other, sent, graph, links) for other in others),
                ]
            )
            for client, others in enumerate(partners)
        ]
    return at


def _over(client: int, other: int, sent: float, graph: Graph, links: Links) -> float:
    return links.seconds(sent, is_slow=(min(client, other), max(client, other)) in graph.slow_edges)
