"""Peak of memory: a training node's model against plain inference, same batch, each in a process of its own.

Peak resident memory as the kernel counts it, less what the process had after its imports. Training is everything a
replica goes through: loading, estimates, 1,024 updates, the fold at the end of an epoch, estimates in the next one.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.measure import Metric, make_metric, ratios, resident_kilobytes_max
from benchmarks.model import OBJECTIVE, make_model, make_replica, make_wide_batch, plain_inputs
from seedflood.protocol.seedflood.bundles import Update

REPETITIONS = 3
UPDATES = 1024
BATCHES = 3


def run() -> dict[str, Metric]:
    peaks = {name: [_peak(name) for _ in range(REPETITIONS)] for name in SUBJECTS}
    return {
        "memory.to_inference": make_metric(ratios(peaks["training"], peaks["inference"]), 1.10),
        "memory.training_megabytes": make_metric(peaks["training"]),
        "memory.inference_megabytes": make_metric(peaks["inference"]),
    }


def _infer() -> None:
    model = make_model()
    with torch.inference_mode():
        for _ in range(BATCHES):
            model(**plain_inputs(make_wide_batch())).loss.item()


def _train() -> None:
    replica = make_replica()
    period = replica.refresh_period
    for step in (0, 1, period):
        replica.measure(step, step, OBJECTIVE, make_wide_batch())
        replica.apply(Update(origin, step, (origin, 1 << 20)) for origin in range(UPDATES))


SUBJECTS: dict[str, Callable[[], None]] = {"inference": _infer, "training": _train}


def _peak(subject: str) -> float:
    """MB (10^6 bytes) above the imports, in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.memory", subject]
    root = Path(__file__).parent.parent
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    return float(json.loads(ran.stdout.splitlines()[-1]))


if __name__ == "__main__":
    before = resident_kilobytes_max()
    SUBJECTS[sys.argv[1]]()
    print(json.dumps((resident_kilobytes_max() - before) * 1024 / 1e6))
