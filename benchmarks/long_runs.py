"""Does a run at the defaults keep what it has learned, however long it is?

The embedded model, three hosts as `seedflood local --nodes 3` starts them, three run seeds, each estimate. The default
rate knows nothing of the number of steps, so the first 400 steps of a run of 30,000 are a run of 400: one course has
all lengths. The courses take turns, so that all of them are equally far when the benchmark is stopped.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import Metric, make_metric
from seedflood.config import NodeSettings, RunSettings
from seedflood.training.seedflood.rehearsal import Rehearsal
from seedflood.training.shards import equal_shares

ESTIMATES = ("two-sided", "gradient")
SEEDS = (1, 2, 3)
LENGTHS = (400, 5_000, 30_000)
EVALUATE_EVERY, TURN = 100, 1_000
LOST_MAX = 0.02
"""Of accuracy: how far the end may lie below the best that was seen on the way."""


class Course:
    """One run, and its evaluations up to where it is."""

    def __init__(self, estimate: str, seed: int, home: Path) -> None:
        self.name = f"{estimate}, seed {seed}"
        run = {"task": "embedded", "train_examples": 1024, "clients": 3, "steps": LENGTHS[-1]}
        settings = RunSettings.of(**run, estimate=estimate, seed=seed)
        self._rehearsal = Rehearsal(settings, equal_shares(NodeSettings(state=home), settings.clients))
        self.accuracies: list[float] = []
        self.loss = 0.0

    @property
    def step(self) -> int:
        return self._rehearsal.step

    @property
    def lost(self) -> float:
        return max(self.accuracies) - self.accuracies[-1]

    def go_to(self, step: int) -> None:
        while self.step < step:
            self._rehearsal.advance()
            if self.step % EVALUATE_EVERY == 0:
                figures = self._rehearsal.evaluate().figures
                self.accuracies.append(figures["accuracy"])
                self.loss = figures["loss"]
        print(
            f"{self.name}: {self.step} steps: accuracy {self.accuracies[-1]:.3f}, best {max(self.accuracies):.3f}, "
            f"loss {self.loss:.4f}",
            file=sys.stderr,
            flush=True,
        )


def run(estimates: Sequence[str] = ()) -> dict[str, Metric]:
    """estimates: of `ESTIMATES`; without, all."""
    metrics: dict[str, Metric] = {}
    with TemporaryDirectory(prefix="seedflood-long-") as home:
        courses = [Course(estimate, seed, Path(home)) for estimate in estimates or ESTIMATES for seed in SEEDS]
        for length in LENGTHS:
            for step in (*range(TURN * (courses[0].step // TURN + 1), length, TURN), length):
                for course in courses:
                    course.go_to(step)
            metrics[f"long_runs.lost_accuracy_{length}"] = make_metric([course.lost for course in courses], LOST_MAX)
    return metrics
