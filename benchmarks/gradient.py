"""A gradient in the subspace: its seconds and its memory against plain forwards, with and without checkpoints.

OPT-125M's shapes on a CPU; where there is a GPU, OPT-1.3B's there as well. Memory is the peak above what the process
had after its imports: resident on a CPU, allocated on a GPU; every subject in a process of its own.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import torch
from transformers import OPTConfig, OPTForCausalLM

from benchmarks.measure import Metric, make_metric, ratios, resident_kilobytes_max, run_in_turn
from benchmarks.model import OBJECTIVE, make_batch, make_wide_batch, plain_inputs, randomly_initialized
from seedflood.config import EstimateName, RunSettings
from seedflood.protocol.seedflood.bundles import Update
from seedflood.protocol.seedflood.payload import Coefficients
from seedflood.training.models import prepare_model
from seedflood.training.seedflood.compression import compress
from seedflood.training.seedflood.replica import Replica

REPETITIONS = 7
MEMORY_REPETITIONS = 3
STEPS = 3

SMALL = OPTConfig()
LARGE = OPTConfig(
    hidden_size=2048, ffn_dim=8192, num_hidden_layers=24, num_attention_heads=32, word_embed_proj_dim=2048
)
SUBJECTS = ("inference", "gradient", "checkpointed")


def run() -> dict[str, Metric]:
    metrics = _measure("gradient", "cpu", SMALL)
    if torch.cuda.is_available():
        metrics |= _measure("gradient.cuda", "cuda", SMALL)
        metrics |= _measure("gradient.cuda_large", "cuda", LARGE)
    return metrics


def _measure(name: str, device: str, config: OPTConfig) -> dict[str, Metric]:
    replica, plain = _replica(device, config), _plain(device, config)
    two_sided = _replica(device, config, "two-sided")
    seconds = run_in_turn(
        {
            "forwards": partial(_forwards, plain, device, count()),
            "estimate": partial(_estimate, two_sided, count()),
            "gradient": partial(_gradient, replica, count(), is_checkpointed=False),
            "checkpointed": partial(_gradient, replica, count(), is_checkpointed=True),
        },
        REPETITIONS,
    )
    del replica, two_sided, plain
    size = "large" if config is LARGE else "small"
    peaks = {one: [_peak(one, device, size) for _ in range(MEMORY_REPETITIONS)] for one in SUBJECTS}
    return {
        f"{name}.to_two_forwards": make_metric(ratios(seconds["gradient"], seconds["forwards"])),
        f"{name}.to_estimate": make_metric(ratios(seconds["gradient"], seconds["estimate"])),
        f"{name}.checkpointed_to_two_forwards": make_metric(ratios(seconds["checkpointed"], seconds["forwards"])),
        f"{name}.seconds": make_metric(seconds["gradient"]),
        f"{name}.memory_to_inference": make_metric(ratios(peaks["gradient"], peaks["inference"])),
        f"{name}.checkpointed_memory_to_inference": make_metric(ratios(peaks["checkpointed"], peaks["inference"])),
        f"{name}.megabytes": make_metric(peaks["gradient"]),
        f"{name}.checkpointed_megabytes": make_metric(peaks["checkpointed"]),
        f"{name}.inference_megabytes": make_metric(peaks["inference"]),
    }


def _plain(device: str, config: OPTConfig) -> OPTForCausalLM:
    model = randomly_initialized(config)
    model.to(device)  # type: ignore[arg-type]
    return model


def _replica(device: str, config: OPTConfig, estimate: EstimateName = "gradient") -> Replica:
    base = prepare_model(randomly_initialized(config), None, device=device, dtype="float32")
    return Replica(base, RunSettings.of(clients=16, estimate=estimate))


def _synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


@torch.inference_mode()
def _forwards(plain: OPTForCausalLM, device: str, draws: "count[int]") -> None:
    inputs = {key: value.to(device) for key, value in plain_inputs(make_batch(next(draws))).items()}
    for _ in range(2):
        plain(**inputs).loss.item()
    _synchronise(device)


def _estimate(replica: Replica, draws: "count[int]") -> None:
    draw = next(draws)
    replica.measure(0, draw, OBJECTIVE, make_batch(draw))


def _gradient(replica: Replica, draws: "count[int]", *, is_checkpointed: bool) -> None:
    replica.measure_gradient(0, OBJECTIVE, make_batch(next(draws)), is_checkpointed=is_checkpointed)


def _infer(device: str, config: OPTConfig) -> None:
    plain = _plain(device, config)
    with torch.inference_mode():
        for _ in range(STEPS):
            plain(**{key: value.to(device) for key, value in plain_inputs(make_wide_batch()).items()}).loss.item()


def _train(device: str, config: OPTConfig, *, is_checkpointed: bool) -> None:
    """Steps with everything that belongs to them: gradient, telling, optimiser."""
    replica = _replica(device, config)
    assert isinstance(replica.compression, Coefficients)
    for step in range(STEPS):
        slopes = replica.measure_gradient(step, OBJECTIVE, make_wide_batch(), is_checkpointed=is_checkpointed)
        replica.apply([Update(1, step, compress(replica.compression, slopes).value)])


JOBS: dict[str, Callable[[str, OPTConfig], None]] = {
    "inference": _infer,
    "gradient": partial(_train, is_checkpointed=False),
    "checkpointed": partial(_train, is_checkpointed=True),
}


def _peak(subject: str, device: str, size: str) -> float:
    """MB (10^6 bytes), in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.gradient", subject, device, size]
    root = Path(__file__).parent.parent
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    return float(json.loads(ran.stdout.splitlines()[-1]))


if __name__ == "__main__":
    chosen, device, size = sys.argv[1:]
    before = resident_kilobytes_max()
    JOBS[chosen](device, LARGE if size == "large" else SMALL)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else (resident_kilobytes_max() - before) * 1024
    print(json.dumps(peak / 1e6))
