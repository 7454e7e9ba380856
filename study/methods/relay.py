"""Delayed flooding (SeedFlood, arXiv 2602.18181): an update goes so many hops a round, and reaches far clients later.

Until then clients differ, so each has a replica of its own here. After the last round all updates go to everyone.

Shapes: N clients, F numbers of all parameters.
"""

from collections import defaultdict
from collections.abc import Sequence

import networkx
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from seedflood.config import NodeSettings, RunSettings
from seedflood.protocol.seedflood.bundles import Update
from seedflood.training.causal import CausalModel
from seedflood.training.loading import load_base
from seedflood.training.models import distinct_parameters
from seedflood.training.seedflood.rehearsal import Turn
from seedflood.training.seedflood.trainer import Trainer
from study.methods.clients import consensus_error
from study.methods.method import Graph


class Relay:
    """All origins of a run, each with a replica, and the updates that are on their way between them."""

    def __init__(self, run: RunSettings, hosts: Sequence[NodeSettings], graph: Graph, hops: int) -> None:
        """hosts: `[node]` of each client. hops: how far an update goes in the round in which it is made, and in
        each later one."""
        self.run = run
        self.trainers = [Trainer(run, host) for host in hosts]
        self.step = 0
        distances = dict(networkx.all_pairs_shortest_path_length(networkx.Graph(graph.edges)))
        self._late = [
            [max(1, -(-distances[origin][client] // hops)) - 1 for client in range(run.clients)]
            for origin in range(run.clients)
        ]
        """Rounds after its own in which a client receives an update: by origin and client."""
        self._due: defaultdict[tuple[int, int], list[Update]] = defaultdict(list)
        """By round and client."""
        base = load_base(run, hosts[0])
        self._mean = base.causal
        self._parameters = dict(distinct_parameters(base.model))
        self._start_F = parameters_to_vector(self._parameters.values()).detach().clone()

    def advance(self) -> list[Turn]:
        """One round of every origin, and of every update on its way."""
        step, count = self.step, self.run.seedflood.local_steps
        turns = [
            Turn(origin, step, trainer.measure(origin, step, count)) for origin, trainer in enumerate(self.trainers, 1)
        ]
        round_ = step // count
        for one, late in zip(turns, self._late, strict=True):
            updates = [Update(one.origin, at, probe) for at, probe in enumerate(one.round.probes, step)]
            for client, rounds in enumerate(late):
                self._due[round_ + rounds, client] += updates
        self.step += count
        is_last = self.step >= self.run.steps
        for when, client in [key for key in self._due if is_last or key[0] == round_]:
            self.trainers[client].replica.apply(self._due.pop((when, client)))
        return turns

    def average(self) -> CausalModel:
        """The mean of the replicas."""
        vector_to_parameters(self._stacked().mean(dim=0), self._parameters.values())
        return self._mean

    def consensus_error(self) -> float:
        return consensus_error(self._stacked(), self._start_F)

    def _stacked(self) -> Tensor:
        """(N, F)"""
        return torch.stack([self._flat(trainer) for trainer in self.trainers])

    def _flat(self, trainer: Trainer) -> Tensor:
        """(F,)"""
        weights = trainer.replica.weights()
        return torch.cat([weights[name].flatten() for name in self._parameters])
