"""The yardsticks: one model that sees the rows of all clients, with nothing to send."""

import torch

from study.methods.clients import Clients
from study.methods.method import Problem

WEIGHT_DECAY = 0.01


class Central(Clients):
    """Takes a step when it comes to the last client."""

    @property
    def replicas(self) -> int:
        return 1

    def _exchange(self) -> tuple[float, int]:
        return 0.0, 0


class AdamW(Central):
    """All parameters."""

    source = "AdamW, arXiv 1711.05101, algorithm 2"
    order = "first"
    grid = tuple({"rate": rate} for rate in (3e-5, 1e-4, 3e-4, 1e-3))

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._parameter = torch.nn.Parameter(self.numbers_NF[0])
        self._parameter.grad = torch.zeros_like(self._parameter)
        self._optimiser = torch.optim.AdamW([self._parameter], weight_decay=WEIGHT_DECAY)

    def _take_step(self, client: int) -> None:
        assert self._parameter.grad is not None
        self._parameter.grad += self.gradient(self.numbers_NF[0], client) / len(self.tasks)
        if client == len(self.tasks) - 1:
            self._optimiser.param_groups[0]["lr"] = self.rate
            self._optimiser.step()
            self._optimiser.zero_grad(set_to_none=False)


class Lora(AdamW):
    """LoRA's factors alone."""

    source = "LoRA with AdamW, arXiv 2106.09685, section 4"
    grid = tuple({"rate": rate} for rate in (3e-4, 1e-3, 3e-3, 1e-2))
    has_adapters = True


class Mezo(Central):
    """All parameters, one direction a step."""

    source = "MeZO, arXiv 2305.17333, algorithm 1"
    order = "zeroth"
    grid = tuple({"rate": rate} for rate in (3e-5, 1e-4, 3e-4, 1e-3))

    def _take_step(self, client: int) -> None:
        if client == len(self.tasks) - 1:
            every = range(len(self.tasks))
            self.numbers_NF[0].sub_(self.two_sided(self.numbers_NF[0], every, key=0), alpha=self.rate)
