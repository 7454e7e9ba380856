"""Fine-tuning in one process, as a run of a few origins does it, by the clock: what an estimate is worth in the end."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from seedflood.config import NodeSettings, RunSettings
from seedflood.protocol.seedflood.bundles import Update
from seedflood.training.evaluation import Evaluation
from seedflood.training.seedflood.trainer import Trainer

ORIGINS = 4


@dataclass(frozen=True, slots=True)
class Tuned:
    """steps: of each origin. seconds: without evaluation."""

    steps: int
    seconds: float
    evaluation: Evaluation


def fine_tune(
    run: RunSettings, *, seconds_max: float = float("inf"), node_settings: Mapping[str, object] = MappingProxyType({})
) -> Tuned:
    """Runs until its last step or for so long; the embedded model and its rows, if neither run nor node names
    others."""
    with TemporaryDirectory(prefix="seedflood-bench-") as folder:
        fields = {"state": Path(folder), "device": "cpu", "dtype": "float32", **node_settings}
        node = NodeSettings.model_validate(fields)
        trainer = Trainer(run, node)
        begun = time.perf_counter()
        step = 0
        while step < run.steps and time.perf_counter() - begun < seconds_max:
            updates: list[Update] = []
            for origin in range(ORIGINS):
                probes = trainer.measure(origin, step, run.seedflood.local_steps).probes
                updates.extend(Update(origin, step + k, value) for k, value in enumerate(probes))
            trainer.replica.apply(updates)
            step += run.seedflood.local_steps
        seconds = time.perf_counter() - begun
        trainer.complete()
        return Tuned(step, seconds, trainer.evaluate())
