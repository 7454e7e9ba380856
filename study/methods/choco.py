"""ChocoSGD (Koloskova et al. 2019, arXiv 1902.00340, algorithm 2): the largest numbers alone, with error feedback."""

from seedflood.protocol.gasloc.matching import weight
from study.methods.dsgd import Dsgd
from study.methods.largest import Choco, Sparse
from study.methods.method import Problem

FRACTION = 0.01
"""Of the numbers, what is sent. The paper's experiments have 1 %, too."""


class ChocoSgd(Dsgd):
    """DSGD's local steps. step_size: how far a client goes towards what its neighbours sent."""

    source = "ChocoSGD with top-k, arXiv 1902.00340, algorithm 2"
    grid = tuple({"rate": rate, "step_size": size} for rate in (0.01, 0.03) for size in (0.1, 0.3))

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        fraction = float(problem.options.get("fraction", FRACTION))
        gamma = float(problem.options["step_size"])
        self.workers = [Choco(numbers_F, fraction=fraction, gamma=gamma) for numbers_F in self.numbers_NF]

    def _exchange(self) -> tuple[float, int]:
        packed = [worker.propose().pack() for worker in self.workers]
        messages = [Sparse.unpack(one, self.numbers_NF.shape[1]) for one in packed]
        neighbours = self.problem.graph.neighbours
        for client, worker in enumerate(self.workers):
            others = neighbours[client]
            pulls = [(weight(max(len(others), len(neighbours[other]))), messages[other]) for other in others]
            worker.mix(messages[client], pulls)
        sent = sum(len(one) * len(others) for one, others in zip(packed, neighbours, strict=True))
        return sent / sum(map(len, neighbours)), 1


class ChocoSgdLora(ChocoSgd):
    """LoRA's factors alone."""

    source = "ChocoSGD on LoRA's factors, arXiv 1902.00340 and 2106.09685"
    grid = tuple({"rate": rate, "step_size": size} for rate in (0.1, 0.3) for size in (0.1, 0.3))
    has_adapters = True
