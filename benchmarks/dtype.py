"""bfloat16 against float32 on a CPU: time of an estimate, what it does to the estimate, and what comes of it."""

from functools import partial
from itertools import count
from pathlib import Path

import torch

from benchmarks.measure import Metric, make_metric, ratios, run_in_turn
from benchmarks.model import OBJECTIVE, make_batch, make_replica
from benchmarks.training import ORIGINS, fine_tune
from seedflood.config import RunSettings
from seedflood.training.models import DtypeName

REPETITIONS = 3
BATCHES = 8
STEPS = 150
DTYPES: tuple[DtypeName, ...] = ("float32", "bfloat16")
UNITS = ("avx512_bf16", "amx_bf16", "bf16")


def run() -> dict[str, Metric]:
    replicas = {dtype: make_replica(dtype) for dtype in DTYPES}
    draws = {dtype: count() for dtype in replicas}

    def measure(dtype: DtypeName) -> None:
        draw = next(draws[dtype])
        replicas[dtype].measure(0, draw, OBJECTIVE, make_batch(draw))

    seconds = run_in_turn({dtype: partial(measure, dtype) for dtype in replicas}, REPETITIONS)
    alphas = {
        dtype: [one.measure(0, k, OBJECTIVE, make_batch(k)).value[1] for k in range(BATCHES)]
        for dtype, one in replicas.items()
    }
    scale = sum(abs(alpha) for alpha in alphas["float32"]) / BATCHES
    errors = [abs(a - b) / scale for a, b in zip(alphas["bfloat16"], alphas["float32"], strict=True)]
    settings = RunSettings.of(model="embedded", task="embedded", clients=ORIGINS, steps=STEPS)
    tuned = {dtype: fine_tune(settings, node_settings={"dtype": dtype}).evaluation for dtype in replicas}
    return {
        "dtype.bfloat16_to_float32": make_metric(ratios(seconds["bfloat16"], seconds["float32"])),
        "dtype.has_bfloat16_units": make_metric([float(_has_units())]),
        "dtype.alpha_error": make_metric(errors),
        "dtype.float32_accuracy": make_metric([tuned["float32"].figures["accuracy"]]),
        "dtype.bfloat16_accuracy": make_metric([tuned["bfloat16"].figures["accuracy"]]),
        "dtype.float32_loss": make_metric([tuned["float32"].loss]),
        "dtype.bfloat16_loss": make_metric([tuned["bfloat16"].loss]),
        "dtype.threads": make_metric([float(torch.get_num_threads())]),
    }


def _has_units() -> bool:
    flags = Path("/proc/cpuinfo").read_text().split()
    return any(unit in flags for unit in UNITS)
