"""One of eight hosts sends random numbers, as large as it may: what it costs with and without `clip`.

Two-sided: the embedded model and its task, 150 steps. Gradients: SST-2 with 1,024 sentences, a 2.6 M OPT, 48 steps.
Sixteen rows a step. The forger works nothing: every step it sends each number
with the largest size that the run admits and a random sign. Beside it stand runs of eight honest hosts, with and
without the same clip, and one in which the eighth host sends zeros: what a host is worth at all.

`clip` is set from what honest hosts tell (`CLIPS`). Accuracy and loss are those of all validation rows at the end.
"""

import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, quantiles
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy

from benchmarks.measure import Metric, make_metric, shared_folder
from seedflood.config import NodeSettings, RunSettings
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import LOSS_MAX, UpdateValue
from seedflood.protocol.seedflood.payload import Coefficients, Pairs
from seedflood.training.seedflood.compression import quantise
from seedflood.training.seedflood.rehearsal import Rehearsal
from seedflood.training.seedflood.trainer import Round, Trainer
from seedflood.training.shards import equal_shares

CLIENTS = 8
SEEDS = (1, 2, 3)
ESTIMATES: Mapping[str, Mapping[str, Any]] = {
    "two-sided": {"steps": 150},
    "gradient": {"estimate": "gradient", "steps": 48},
}
CLIPS: Mapping[str, Sequence[float]] = {"two-sided": (8.0,), "gradient": (1.0,)}
Eighth = Literal["honest", "forger", "silent"]


class Forger(Trainer):
    """The eighth host. is_silent: it sends zeros."""

    def __init__(self, instead_of: Trainer, *, is_silent: bool) -> None:
        vars(self).update(vars(instead_of))
        self._is_silent = is_silent

    def measure(self, origin: OriginId, step: int, count: int) -> Round:
        drawn = random.Random(f"{self.run.seed} {origin} {step}")
        sent = tuple(self._forge(origin, one, drawn) for one in range(step, step + count))
        return Round(step, sent, 0.0, 0.0, is_finite=True, is_clipped=False)

    def _forge(self, origin: OriginId, step: int, drawn: random.Random) -> UpdateValue:
        compression = self.compression
        if isinstance(compression, Pairs):
            size = 0 if self._is_silent else compression.limit
            return LOSS_MAX, drawn.choice((-size, size))
        assert isinstance(compression, Coefficients)
        largest = 0.0 if self._is_silent else compression.reach * 2.0**-compression.unit_bits
        return quantise(compression, numpy.array(drawn.choices((-largest, largest), k=compression.values)))[0]


def run() -> dict[str, Metric]:
    metrics: dict[str, Metric] = {}
    for estimate, settings in ESTIMATES.items():
        for clip in ("none", *CLIPS[estimate]):
            eighths: tuple[Eighth, ...] = ("honest", "forger")
            if clip == "none":
                eighths = (*eighths, "silent")
            for eighth in eighths:
                ends = [end(seed, eighth, clip=clip, **settings) for seed in SEEDS]
                name = f"forger.{estimate}_{eighth}" + ("" if clip == "none" else f"_clip_{clip:g}")
                metrics[f"{name}_accuracy"] = make_metric([accuracy for accuracy, _ in ends])
                metrics[f"{name}_loss"] = make_metric([loss for _, loss in ends])
    return metrics


def end(seed: int, eighth: Eighth, **settings: Any) -> tuple[float, float]:
    """Accuracy and loss at the end of a run."""
    if "estimate" in settings:
        shared = shared_folder()
        keys = {"model": str(shared / "models" / "tiny-opt"), "task": "sst2", "train_examples": 1024}
        data = str(shared / "data" / "sst2")
    else:
        keys, data = {"model": "embedded", "task": "embedded"}, "embedded"
    with TemporaryDirectory(prefix="seedflood-forger-") as home:
        run = RunSettings.of(seed=seed, clients=CLIENTS, **keys, **settings)
        rehearsal = make_rehearsal(run, NodeSettings(data=data, state=Path(home)), eighth)
        sizes: list[float] = []
        while rehearsal.step < rehearsal.run.steps:
            sent = rehearsal.advance()
            sizes += [abs(p[1]) * 2.0**-20 for one in sent[:-1] for p in one.round.probes if isinstance(p, tuple)]
        found = rehearsal.evaluate()
    seen = f"; honest slopes: mean {mean(sizes):.2f}, 99 % below {quantiles(sizes, n=100)[-1]:.2f}" if sizes else ""
    accuracy = found.figures["accuracy"]
    print(
        f"{settings}, seed {seed}, the eighth {eighth}: accuracy {accuracy:.3f}, loss {found.loss:.4f}{seen}",
        file=sys.stderr,
        flush=True,
    )
    return accuracy, found.loss


def make_rehearsal(run: RunSettings, node: NodeSettings, eighth: Eighth) -> Rehearsal:
    rehearsal = Rehearsal(run, equal_shares(node, run.clients))
    if eighth != "honest":
        rehearsal.trainers[-1] = Forger(rehearsal.trainers[-1], is_silent=eighth == "silent")
    return rehearsal
