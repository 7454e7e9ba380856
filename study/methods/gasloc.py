"""GASLoC (arXiv 2606.11081), DiLoCo (arXiv 2311.08105) and D-Adam: local AdamW steps, and an outer step on parameters.

Worker, outer step, encoding and the matching of a round are those of a daemon; what is exchanged are bytes.

Shapes: F numbers of all parameters.
"""

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy
import torch

from seedflood.protocol.gasloc.matching import Lottery, edge_of, match, weight
from seedflood.training.causal import CausalModel
from seedflood.training.gasloc.exchange import Arrival, Difference, Outgoing
from seedflood.training.gasloc.flat import FlatModel
from seedflood.training.gasloc.outer import Outer, OuterSettings, Term
from seedflood.training.gasloc.schedule import Schedule
from seedflood.training.gasloc.worker import Worker, WorkerSettings
from seedflood.training.loading import load_rows
from study.methods.clients import consensus_error, timed
from study.methods.follower import Follower, average
from study.methods.method import Cost, Graph, Method, Option, Problem

CHUNK_BYTES = 1 << 16


class Workers(Method):
    """All workers, each with a model of its own. Options: rate, of the local steps; eta and gamma of the outer one."""

    order = "first"
    encoding: ClassVar[Any]

    def __init__(self, problem: Problem) -> None:
        run, options = problem.run, problem.options
        self._problem = problem
        base = problem.start()
        schedule = Schedule(0, run.steps)
        settings = WorkerSettings("AdamW", float(options["rate"]), schedule=schedule)
        outer = OuterSettings(float(options["eta"]), float(options["gamma"]), encoding=self.encoding)
        self.workers = []
        for client, host in enumerate(problem.hosts, 1):
            task = load_rows(run, host, base)
            self.workers.append(Worker(copy.deepcopy(base.model), task, client, settings))
        self.outers = [Follower(worker.flat.values_F, outer) for worker in self.workers]
        self._mean = FlatModel(base.model)
        self._start_F = self._mean.values_F.clone()

    def advance(self) -> Cost:
        clients, steps = len(self.workers), self._problem.local_steps
        with timed() as measuring:
            for worker in self.workers:
                worker.take_steps(steps)
        with timed() as exchanging:
            edge_bytes, hops = self._end_round()
        return Cost(steps, edge_bytes, hops, steps, steps, measuring[0] / clients, exchanging[0] / clients)

    @abstractmethod
    def _end_round(self) -> tuple[float, int]:
        """The exchange. Returns bytes over an edge in one direction, and hops (`Cost`)."""

    def average(self) -> CausalModel:
        self._mean.values_F.copy_(self._stacked().mean(dim=0))
        return CausalModel(self._mean.module)

    def consensus_error(self) -> float:
        return consensus_error(self._stacked(), self._start_F)

    def _stacked(self) -> torch.Tensor:
        return torch.stack([worker.flat.values_F for worker in self.workers])


def _grid(*outers: tuple[float, float]) -> tuple[Mapping[str, Option], ...]:
    """Two learning rates for each (eta, gamma)."""
    return tuple({"rate": rate, "eta": eta, "gamma": gamma} for rate in (1e-4, 5e-4) for eta, gamma in outers)


class Gasloc(Workers):
    """Everyone exchanges with one random neighbour a round. slow_class: of the slow edges (`Graph.slow_edges`), which
    take part in every 2^slow_class-th round on average, as in a daemon that has measured them."""

    source = "GASLoC, arXiv 2606.11081, accelerated form"
    waits_for = "partners"
    grid = _grid((1.0, 0.0), (1.0, 0.5))
    encoding = "bfloat16"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._lottery = Lottery(problem.run.seed)
        self._slow_class = int(problem.options.get("slow_class", 0))

    def _end_round(self) -> tuple[float, int]:
        graph = self._problem.graph
        partners = matched(graph, self._lottery, self.outers[0].round, self._slow_class)
        size = gossip(self.outers, partners)
        return size * sum(map(len, partners)) / (2 * len(graph.edges)), 1


class DAdam(Workers):
    """Everyone exchanges with all neighbours, and takes the weighted mean: DSGD with AdamW's steps."""

    source = "D-Adam, a baseline of GASLoC, arXiv 2606.11081"
    waits_for = "neighbours"
    grid = tuple({"rate": rate, "eta": 1.0, "gamma": 0.0} for rate in (1e-4, 3e-4, 1e-3, 3e-3))
    encoding = "float32"

    def _end_round(self) -> tuple[float, int]:
        return float(gossip(self.outers, self._problem.graph.neighbours)), 1


class Diloco(Workers):
    """Everyone takes the mean, with Nesterov's momentum. It travels up and down a tree of the graph's edges."""

    source = "DiLoCo, arXiv 2311.08105, algorithm 1"
    grid = _grid((1.0, 0.0), (0.7, 0.9))
    encoding = "float32"

    def _end_round(self) -> tuple[float, int]:
        graph = self._problem.graph
        size = average(self.outers)
        return size * (graph.clients - 1) / len(graph.edges), 2 * graph.diameter


def matched(graph: Graph, lottery: Lottery, round_: int, slow_class: int = 0) -> list[tuple[int, ...]]:
    """The partners of every client in a round, one at most, as daemons with these numbers as their ids draw them."""
    classes = {edge_of(*edge): slow_class if edge_of(*edge) in graph.slow_edges else 0 for edge in graph.edges}
    partners = match(classes, lottery, round_, 1)
    return [partners.get(client, ()) for client in range(graph.clients)]


def gossip(outers: Sequence[Outer], partners: Sequence[Sequence[int]]) -> int:
    """Ends a round: everyone exchanges with its partners. Returns the bytes of an offer."""
    offers = [outer.propose() for outer in outers]
    arrivals = [arrived(offer) for offer in offers]
    pulls = [
        [Term(weight(max(len(others), len(partners[other]))), Difference(offer, arrivals[other])) for other in others]
        for offer, others in zip(offers, partners, strict=True)
    ]
    for outer, its in zip(outers, pulls, strict=True):
        outer.mix(its)
    return offers[0].size


def arrived(offer: Outgoing) -> Arrival:
    """An offer as it arrives at the other end of a link."""
    payload = bytearray().join(offer.read(offset, CHUNK_BYTES) for offset in range(0, offer.size, CHUNK_BYTES))
    arrival = Arrival(offer.numbers, offer.encoding.name, numpy.frombuffer(payload, dtype=numpy.uint8), offer.digest)
    arrival.check()
    return arrival
