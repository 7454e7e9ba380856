"""Does control bring back a run whose rate is too high, and does it leave one alone whose rate is right?

The embedded model, three hosts, three run seeds, two-sided and by gradients: at the default rate, three and ten times
of it, each with control and without. The two take turns, on the same rows and directions.
"""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from benchmarks.measure import Metric, make_metric
from seedflood.config import NodeSettings, RunSettings
from seedflood.training.seedflood import control
from seedflood.training.seedflood.rehearsal import Rehearsal
from seedflood.training.shards import equal_shares

ESTIMATES = ("two-sided", "gradient")
SEEDS, STEPS, EVALUATE_EVERY = (1, 2, 3), 500, 50
TIMES = (1, 3, 10)
"""The default rate."""

LOST_MAX = 0.02
"""Of accuracy: how far the end may lie below the best that was seen on the way."""


def _without() -> AbstractContextManager[object]:
    return patch.object(control, "HALVINGS_MAX", 0)


def _lost(estimate: str, times: int, seed: int, home: Path) -> float:
    """Accuracy that a run has lost at its end."""
    keys = {"task": "embedded", "train_examples": 1024, "clients": 3, "steps": STEPS, "seed": seed}
    keys["estimate"] = estimate
    hosts = equal_shares(NodeSettings(state=home), 3)
    rate = Rehearsal(RunSettings.of(**keys), hosts).learning_rate
    run = Rehearsal(RunSettings.of(**keys, learning_rate=times * rate), hosts)
    accuracies: list[float] = []
    loss = 0.0
    while run.step < STEPS:
        run.advance()
        if run.step % EVALUATE_EVERY == 0:
            figures = run.evaluate().figures
            accuracies.append(figures["accuracy"])
            loss = figures["loss"]
    halvings = run.trainers[0].replica.halvings
    print(
        f"{estimate}, {times} x the default rate, seed {seed}: accuracy {accuracies[-1]:.3f}, best "
        f"{max(accuracies):.3f}, loss {loss:.3f}, rate halved {halvings} times",
        file=sys.stderr,
        flush=True,
    )
    return max(accuracies) - accuracies[-1]


def run(estimates: Sequence[str] = ()) -> dict[str, Metric]:
    """estimates: of `ESTIMATES`; without, all."""
    metrics: dict[str, Metric] = {}
    with TemporaryDirectory(prefix="seedflood-unlearning-") as folder:
        home = Path(folder)
        for estimate, times in product(estimates or ESTIMATES, TIMES):
            name = f"unlearning.{estimate}.lost_accuracy_{times}"
            metrics[name] = make_metric([_lost(estimate, times, seed, home) for seed in SEEDS], LOST_MAX)
            with _without():
                lost = [_lost(estimate, times, seed, home) for seed in SEEDS]
            metrics[f"{name}_without_control"] = make_metric(lost)
    return metrics
