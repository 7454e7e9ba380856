"""What the plain baselines share: clients that take turns on one model, each with numbers of its own.

A client measures with its numbers in the place of the trained parameters. They are all parameters, or the factors of
LoRA. Learning rates go down to zero over the run, in a line, or as a cosine with the option `schedule`.

Shapes: N clients, F trained numbers.
"""

import math
import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from seedflood.training.causal import CausalModel
from seedflood.training.loading import load_rows
from seedflood.training.models import distinct_parameters
from seedflood.training.objectives.batches import Batch
from seedflood.training.randomness import derive_key
from seedflood.training.seedflood.gradient import CPU_CALL_TOKENS
from seedflood.training.tasks import Task
from study.methods.adapters import RANK, add_adapters
from study.methods.method import Cost, Method, Problem

EPSILON = 1e-3
"""The perturbation of two-sided estimates, as in MeZO (arXiv 2305.17333)."""


class Clients(Method):
    """numbers_NF: what each client trains; all begin alike. tasks: the rows of each."""

    has_adapters: ClassVar[bool] = False

    def __init__(self, problem: Problem) -> None:
        run = problem.run
        self.problem = problem
        self.step = 0
        base = problem.start()
        self.tasks = [load_rows(run, host, base) for host in problem.hosts]
        if self.has_adapters:
            add_adapters(base.model, int(problem.options.get("rank", RANK)), run.seed)
        else:
            base.model.requires_grad_(True)
        self._causal = base.causal
        self._parameters = [one for _, one in distinct_parameters(base.model) if one.requires_grad]
        self._start_F = parameters_to_vector(self._parameters).detach().clone()
        self.numbers_NF = self._start_F.repeat(self.replicas, 1)

    @property
    def replicas(self) -> int:
        """How many sets of numbers there are."""
        return self.problem.run.clients

    @property
    def rate(self) -> float:
        """The learning rate of the step."""
        options, gone = self.problem.options, self.step / self.problem.run.steps
        is_cosine = options.get("schedule") == "cosine"
        return float(options["rate"]) * ((1 + math.cos(math.pi * gone)) / 2 if is_cosine else 1 - gone)

    def advance(self) -> Cost:
        with timed() as measuring:
            for _ in range(self.problem.local_steps):
                for client in range(self.problem.run.clients):
                    self._take_step(client)
                self.step += 1
        with timed() as exchanging:
            edge_bytes, hops = self._exchange()
        clients, steps = self.problem.run.clients, self.problem.local_steps
        forwards, backwards = (1, 1) if self.order == "first" else (2, 0)
        return Cost(
            steps,
            edge_bytes,
            hops,
            forwards * steps,
            backwards * steps,
            measuring[0] / clients,
            exchanging[0] / clients,
        )

    @abstractmethod
    def _take_step(self, client: int) -> None:
        """One step of one client, on its own rows."""

    @abstractmethod
    def _exchange(self) -> tuple[float, int]:
        """Ends a round. Returns bytes over an edge in one direction, and hops (`Cost`)."""

    def average(self) -> CausalModel:
        return self._with(self.numbers_NF.mean(dim=0))

    def consensus_error(self) -> float:
        return consensus_error(self.numbers_NF, self._start_F)

    def gradient(self, values_F: Tensor, client: int) -> Tensor:
        """(F,) Of the mean loss of a client's batch, with these numbers."""
        model, total_F = self._with(values_F), torch.zeros_like(values_F)
        for piece, weight in self._pieces(client):
            with torch.enable_grad():
                loss = self.tasks[client].objective.measure(model, piece).minimised_sums.sum() * weight
                gradients = torch.autograd.grad(loss, self._parameters)
            total_F += parameters_to_vector(gradients)
        return total_F

    def two_sided(self, values_F: Tensor, clients: Sequence[int], key: int) -> Tensor:
        """(F,) The slope of the clients' mean loss along a dense direction, times that direction (MeZO, algorithm 1).
        key: of the direction."""
        source = torch.Generator().manual_seed(derive_key("study", self.problem.run.seed, self.step, key) >> 1)
        direction_F = torch.randn(len(values_F), generator=source)
        sides = [
            sum(self._loss(values_F + side * EPSILON * direction_F, client) for client in clients) / len(clients)
            for side in (1, -1)
        ]
        return direction_F.mul_((sides[0] - sides[1]) / (2 * EPSILON))

    @torch.inference_mode()
    def _loss(self, values_F: Tensor, client: int) -> float:
        model = self._with(values_F)
        measure = self.tasks[client].objective.measure
        return sum(float(measure(model, piece).minimised_sums) * weight for piece, weight in self._pieces(client))

    def _pieces(self, client: int) -> Iterator[tuple[Batch, float]]:
        """The batch of a client in pieces of like length, which saves padding, and what a sum of losses counts."""
        task: Task = self.tasks[client]
        batch = task.batch(client + 1, self.step)
        for piece in batch.split(CPU_CALL_TOKENS):
            yield piece.to(self._causal.device), 1 / task.objective.count(batch)

    def _with(self, values_F: Tensor) -> CausalModel:
        """The model with these numbers in it: no copy is made."""
        vector_to_parameters(values_F, self._parameters)
        return self._causal


def consensus_error(numbers_NF: Tensor, start_F: Tensor) -> float:
    """`Method.consensus_error` of these clients. start_F: the base model."""
    mean_F = numbers_NF.mean(dim=0)
    apart = float((numbers_NF - mean_F).square().sum(dim=1).mean().sqrt())
    come = float((mean_F - start_F).norm())
    return apart / come if apart and come else 0.0


@contextmanager
def timed() -> Iterator[list[float]]:
    """Yields a list that holds the seconds of the block when it has ended: of computing, which do not depend on what
    else the machine does, for one thread computes and waits for nothing."""
    seconds, begun = [0.0], time.process_time()
    yield seconds
    seconds[0] = time.process_time() - begun


def use_one_thread() -> None:
    """Of torch, in this process, so that seconds are those of one core."""
    torch.set_num_threads(1)
