"""The seam between the harness and a method: what a method is given, and what is asked of it.

A method is all clients of a run in one process. They take turns, so a second of computing stands for a second of each
client only after division by their number (`Cost`).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import networkx

from seedflood.config import NodeSettings, RunSettings
from seedflood.training.causal import CausalModel
from seedflood.training.gasloc.initial import draw_weights
from seedflood.training.loading import load_base
from seedflood.training.models import BaseModel
from seedflood.training.shards import equal_shares

Edges = tuple[tuple[int, int], ...]
Option = float | int | str
Waits = Literal["all", "neighbours", "partners"]
Initial = Literal["pretrained", "random"]
Order = Literal["first", "zeroth"]


SLOW_EVERY = 4
"""Where links are unequal, every fourth edge is slow."""


class Graph:
    """Who is linked with whom. edges: (a, b), a < b, of clients 0 .. clients - 1; the graph is connected."""

    def __init__(self, clients: int, edges: Edges) -> None:
        self.clients = clients
        self.edges = edges
        found: list[list[int]] = [[] for _ in range(clients)]
        for a, b in edges:
            found[a].append(b)
            found[b].append(a)
        self.neighbours = tuple(tuple(sorted(others)) for others in found)

    @cached_property
    def slow_edges(self) -> frozenset[tuple[int, int]]:
        """Those that are slow where links are unequal."""
        return frozenset(self.edges[::SLOW_EVERY])

    @cached_property
    def diameter(self) -> int:
        """Hops between the two clients that are farthest apart."""
        graph = networkx.Graph(self.edges)
        return int(networkx.diameter(graph)) if self.edges else 0


@dataclass(frozen=True, slots=True)
class Problem:
    """What is learned, by whom. run: model, rows, clients, steps, batch size and seed. node: where model and data are.
    local_steps: steps of a client between two exchanges. options: the method's own, with its learning rate. initial:
    the weights to begin with, those of the model or random ones. folders: with the rows of each client; without them
    all have equal shares of those of `node`."""

    run: RunSettings
    node: NodeSettings
    graph: Graph
    local_steps: int
    options: Mapping[str, Option]
    initial: Initial = "pretrained"
    folders: Sequence[Path] = ()

    @property
    def hosts(self) -> list[NodeSettings]:
        """`[node]` of each client."""
        own = [self.node.model_copy(update={"data": str(folder)}) for folder in self.folders]
        return own or equal_shares(self.node, self.run.clients)

    def start(self) -> BaseModel:
        """The model that clients begin with. Raises ModelError."""
        base = load_base(self.run, self.node)
        if self.initial == "random":
            draw_weights(base.model, self.run.seed)
        return base


@dataclass(frozen=True, slots=True)
class Cost:
    """What some steps cost, in the mean over the clients.

    edge_bytes: over an edge in one direction, in the mean over edges and directions. hops: messages that have to follow
    one another. forwards, backwards: passes over a batch. measure_seconds: losses and gradients. exchange_seconds: what
    is done with what came: mixing, encoding, aggregation. Both are seconds of computing on one core.
    """

    steps: int = 0
    edge_bytes: float = 0.0
    hops: int = 0
    forwards: float = 0.0
    backwards: float = 0.0
    measure_seconds: float = 0.0
    exchange_seconds: float = 0.0

    def __add__(self, other: Self) -> Self:
        names = [field.name for field in fields(self)]
        return type(self)(**{name: getattr(self, name) + getattr(other, name) for name in names})

    def facts(self) -> dict[str, Any]:
        return {field.name: round(getattr(self, field.name), 6) for field in fields(self)}


class Method(ABC):
    """source: paper and section. order: "first" with gradients, "zeroth" without. grid: the options that are tried on
    validation rows; all methods have equally many. waits_for: whose messages a client needs to end a round."""

    source: ClassVar[str]
    order: ClassVar[Order]
    waits_for: ClassVar[Waits] = "all"
    grid: ClassVar[tuple[Mapping[str, Option], ...]]

    @abstractmethod
    def __init__(self, problem: Problem) -> None: ...

    @abstractmethod
    def advance(self) -> Cost:
        """One round: the steps of every client up to the next exchange, and the exchange."""

    @abstractmethod
    def average(self) -> CausalModel:
        """The mean of the clients' models, to be measured; until the next call of `advance`."""

    @abstractmethod
    def consensus_error(self) -> float:
        """How far apart the clients are: the root mean square of their distances from the mean, relative to how far the
        mean has come from the base model. 0 before anything was learned, and where all are equal."""
