"""Does control bring back a run whose rate is too high, and does it leave one alone whose rate is right?

The embedded model, three hosts, three run seeds, two-sided: at the default rate, three and ten times of it, each with
control and without. The two take turns, on the same rows and directions.
"""

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from benchmarks.measure import Metric, make_metric
from seedflood.config import NodeSettings, RunSettings
from seedflood.training.seedflood import control
from seedflood.training.seedflood.rehearsal import Rehearsal
from seedflood.training.shards import equal_shares

SEEDS, STEPS, EVALUATE_EVERY = (1, 2, 3), 1_000, 100
TIMES = (1, 3, 10)
"""The default rate."""

LOST_MAX = 0.02
"""Of accuracy: how far the end may lie below the best that was seen on the way."""


def _without() -> AbstractContextManager[object]:
    return patch.object(control, "HALVINGS_MAX", 0)


def _lost(times: int, seed: int, home: Path) -> float:
    """Accuracy that a run has lost at its end."""
    keys = {"task": "embedded", "train_examples": 1024, "clients": 3, "steps": STEPS, "seed": seed}
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
        f"{times} x the default rate, seed {seed}: accuracy {accuracies[-1]:.3f}, best {max(accuracies):.3f}, loss "
        f"{loss:.3f}, rate halved {halvings} times",
        file=sys.stderr,
        flush=True,
    )
    return max(accuracies) - accuracies[-1]


def run() -> dict[str, Metric]:
    metrics: dict[str, Metric] = {}
    with TemporaryDirectory(prefix="seedflood-unlearning-") as folder:
        home = Path(folder)
        for times in TIMES:
            metrics[f"unlearning.lost_accuracy_{times}"] = make_metric(
                [_lost(times, seed, home) for seed in SEEDS], LOST_MAX
            )
            with _without():
                lost = [_lost(times, seed, home) for seed in SEEDS]
            metrics[f"unlearning.lost_accuracy_{times}_without_control"] = make_metric(lost)
    return metrics
