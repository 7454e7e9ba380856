"""DSGD (Lian et al. 2017, arXiv 1705.09056, algorithm 1): local steps, then the weighted mean with all neighbours."""

from study.methods.clients import Clients
from study.methods.method import Problem
from study.methods.mixing import Mixing


class Gossip(Clients):
    """Mixes as DSGD does, whatever the local steps are."""

    waits_for = "neighbours"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._mixing = Mixing(problem.graph)

    def _exchange(self) -> tuple[float, int]:
        self.numbers_NF, edge_bytes = self._mixing.mix(self.numbers_NF)
        return edge_bytes, 1


class Dsgd(Gossip):
    """All parameters."""

    source = "DSGD, arXiv 1705.09056, algorithm 1"
    order = "first"
    grid = tuple({"rate": rate} for rate in (0.003, 0.01, 0.03, 0.1))

    def _take_step(self, client: int) -> None:
        numbers_F = self.numbers_NF[client]
        numbers_F.sub_(self.gradient(numbers_F, client), alpha=self.rate)


class DsgdLora(Dsgd):
    """LoRA's factors alone."""

    source = "DSGD on LoRA's factors, arXiv 1705.09056 and 2106.09685"
    grid = tuple({"rate": rate} for rate in (0.03, 0.1, 0.3, 1.0))
    has_adapters = True
