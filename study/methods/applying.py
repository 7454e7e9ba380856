"""The seconds of an estimate, and of applying many updates: in SeedFlood's subspace, and with dense directions.

With dense directions (MeZO, arXiv 2305.17333, algorithm 1) an estimate writes to all weights three times, and each
update is a direction that is drawn anew. In the subspace an estimate moves a coefficient of each matrix. Updates are
added to the coefficients, which are then folded into the weights, as a daemon does.
"""

import time
from collections.abc import Callable

import torch

from seedflood.config import NodeSettings, RunSettings
from seedflood.protocol.seedflood.bundles import Update
from seedflood.training.loading import load_base, load_rows
from seedflood.training.seedflood.replica import Replica

REPETITIONS = 5
DENSE_MAX = 16
"""Dense updates that are really applied. More take as much longer as they are more."""

EPSILON = 1e-3


class Applying:
    """A model twice: plain, and as a replica. Raises ConfigError, ModelError or DataError."""

    def __init__(self, run: RunSettings, node: NodeSettings) -> None:
        base = load_base(run, node)
        task = load_rows(run, node, base)
        self._objective, self._batch = task.objective, task.batch(1, 0).to(base.device)
        self._plain = base.causal
        self._replica = Replica(load_base(run, node), run)
        self.parameters = base.parameters_count

    def forwards(self) -> None:
        """Two, with their losses."""
        self._losses(())

    def estimate(self) -> None:
        """In the subspace."""
        self._replica.measure(0, 1, self._objective, self._batch)

    def dense_estimate(self) -> None:
        """Along a dense direction."""
        self._losses((EPSILON, -2 * EPSILON, EPSILON))

    def apply(self, count: int) -> None:
        """So many updates, in the subspace."""
        self._replica.apply(Update(origin, 0, (origin, 1)) for origin in range(1, count + 1))
        self._replica.fold_open_epoch()

    def apply_dense(self, count: int) -> None:
        """So many updates, with dense directions."""
        for seed in range(count):
            self._move(seed, 1e-9)

    @torch.inference_mode()
    def _losses(self, moves: tuple[float, ...]) -> None:
        """moves: along a direction, before the first forward, the second one and after it."""
        for move in moves[:2] or (0.0, 0.0):
            if move:
                self._move(0, move)
            self._objective.measure(self._plain, self._batch).minimised_sums.sum().item()
        for move in moves[2:]:
            self._move(0, move)

    @torch.inference_mode()
    def _move(self, seed: int, factor: float) -> None:
        source = torch.Generator().manual_seed(seed)
        for parameter in self._plain.module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=source), alpha=factor)


def seconds_of(job: Callable[[], None]) -> float:
    """Of computing: the least of some repetitions, after one that warms up."""
    job()
    return min(_once(job) for _ in range(REPETITIONS))


def dense_seconds(applying: Applying, count: int) -> float:
    """Of applying so many dense updates."""
    really = min(count, DENSE_MAX)
    return seconds_of(lambda: applying.apply_dense(really)) * count / really


def _once(job: Callable[[], None]) -> float:
    begun = time.process_time()
    job()
    return time.process_time() - begun
