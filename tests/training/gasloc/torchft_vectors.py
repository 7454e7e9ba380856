"""What torchft's DiLoCo makes of local progress that follows from a seed: an oracle nobody here has written.

    python tests/training/gasloc/torchft_vectors.py > tests/training/gasloc/torchft.json

Needs `pip install torchft==0.2.0`. Each worker is a thread with a model, an inner optimiser and a `DiLoCo` of its own,
whose manager averages what the threads bring. Their local steps go down a parabola around a centre of each worker.
"""

import json
import threading
from unittest.mock import create_autospec

import numpy
import torch

WORKERS, NUMBERS, ROUNDS, LOCAL_STEPS = 3, 8, 6, 4
SEEDS = (1, 2, 3)
INNER_RATE, OUTER_RATE, MOMENTUM = 0.1, 0.7, 0.9


def beginnings(seed: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Where everyone begins, (NUMBERS,), and the centre of each worker's parabola, (WORKERS, NUMBERS)."""
    rng = numpy.random.default_rng(seed)
    return rng.standard_normal(NUMBERS), rng.standard_normal((WORKERS, NUMBERS))


def torchft_course(seed: int) -> list[list[float]]:
    """The parameters after each round, as torchft makes them; float64."""
    from torchft.local_sgd import DiLoCo
    from torchft.manager import Manager
    from torchft.work import _DummyWork

    start_F, centre_WF = beginnings(seed)
    brought: dict[int, torch.Tensor] = {}
    barrier = threading.Barrier(WORKERS, timeout=60)
    courses: dict[int, list[list[float]]] = {worker: [] for worker in range(WORKERS)}

    def work(worker: int) -> None:
        model = torch.nn.Module()
        model.x = torch.nn.Parameter(torch.tensor(start_F))
        centre_F = torch.tensor(centre_WF[worker])
        manager = create_autospec(Manager)
        manager._use_async_quorum = False
        manager.errored.return_value = None
        manager.should_commit.return_value = True
        manager.current_step.return_value = 0

        def average(tensor: torch.Tensor, **_: object) -> object:
            brought[worker] = tensor.clone()
            barrier.wait()
            mean_F = torch.stack([brought[one] for one in range(WORKERS)]).mean(dim=0)
            barrier.wait()
            tensor.copy_(mean_F)
            return _DummyWork(tensor)

        manager.allreduce.side_effect = average
        inner = torch.optim.SGD(model.parameters(), lr=INNER_RATE)
        outer = torch.optim.SGD(model.parameters(), lr=OUTER_RATE, momentum=MOMENTUM, nesterov=True)
        with DiLoCo(manager, [model], inner, outer, sync_every=LOCAL_STEPS):
            for _ in range(ROUNDS):
                for _ in range(LOCAL_STEPS):
                    inner.zero_grad()
                    ((model.x - centre_F).square().sum() / 2).backward()
                    inner.step()
                courses[worker].append(model.x.tolist())

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(course == courses[0] for course in courses.values()), "torchft's workers differ"
    assert len(courses[0]) == ROUNDS, "a worker of torchft failed"
    return courses[0]


if __name__ == "__main__":
    print(json.dumps({str(seed): torchft_course(seed) for seed in SEEDS}, indent=1))
