"""Quantised base weights: resident memory of a model of 1 B parameters, and what is learned on them.

Memory is what is resident after a gradient, an epoch that is folded, and a gradient in the next one, in a process of
its own, less what the process had after its imports. Learning is that of tiny-opt on SST-2 (../shared), 48 steps of
four origins.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.measure import Metric, make_metric, resident_kilobytes, shared_folder
from benchmarks.training import ORIGINS, fine_tune
from seedflood.config import RunSettings
from seedflood.protocol.seedflood.bundles import Update
from seedflood.training.models import prepare_model
from seedflood.training.objectives.batches import TextBatch
from seedflood.training.objectives.language_modelling import LanguageModelling
from seedflood.training.seedflood.quantised import Quantisation
from seedflood.training.seedflood.replica import Replica

MEMORY_MAX: dict[Quantisation, float] = {"int8": 0.35, "nf4": 0.2}
LOSS_MAX = 0.02
STEPS = 48
ROWS, LENGTH = 2, 32

SHAPE = LlamaConfig(
    vocab_size=128256,
    hidden_size=2048,
    intermediate_size=8192,
    num_hidden_layers=16,
    num_attention_heads=32,
    num_key_value_heads=8,
    tie_word_embeddings=True,
)
"""Llama 3.2 1B: 1.24 B parameters."""


def run() -> dict[str, Metric]:
    whole, metrics = _in_a_process("float32"), {}
    metrics["quantised.float32_megabytes"] = make_metric([whole["megabytes"]])
    metrics["quantised.float32_seconds"] = make_metric([whole["seconds"]])
    plain = [_loss(None, seed) for seed in (1, 2, 3)]
    metrics["quantised.float32_loss"] = make_metric(plain)
    for kind, memory_max in MEMORY_MAX.items():
        part = _in_a_process(kind)
        losses = [_loss(kind, seed) for seed in (1, 2, 3)]
        metrics |= {
            f"quantised.{kind}_memory": make_metric([part["megabytes"] / whole["megabytes"]], memory_max),
            f"quantised.{kind}_seconds": make_metric([part["seconds"] / whole["seconds"]]),
            f"quantised.{kind}_loss": make_metric(
                [abs(one - other) for one, other in zip(losses, plain, strict=True)], LOSS_MAX
            ),
        }
    return metrics


def _loss(kind: Quantisation | None, seed: int) -> float:
    shared = shared_folder()
    run_settings = RunSettings.of(task="sst2", estimate="gradient", steps=STEPS, clients=ORIGINS, seed=seed)
    node = {
        "model_path": shared / "models" / "tiny-opt",
        "data": str(shared / "data" / "sst2"),
        "dtype": kind or "auto",
    }
    return fine_tune(run_settings, node_settings=node).evaluation.loss


def _train(kind: Quantisation | None) -> dict[str, float]:
    """Megabytes that are resident in the end, and seconds of a gradient. The bases are drawn: singular vectors of 1 B
    parameters take minutes, and no memory."""
    before = resident_kilobytes()
    settings = RunSettings.of(clients=2, rank=8, refresh_period=1)
    torch.manual_seed(0)
    replica = Replica(prepare_model(LlamaForCausalLM(SHAPE), None), settings, quantize=kind)
    batch = TextBatch(torch.randint(0, SHAPE.vocab_size, (ROWS, LENGTH)), torch.full((ROWS,), LENGTH))
    seconds = []
    for step in (0, 1):
        begun = time.perf_counter()
        replica.measure_gradient(step, LanguageModelling(), batch)
        seconds.append(time.perf_counter() - begun)
        replica.apply([Update(1, step, (1 << 11, 1 << 20))])
    return {"megabytes": (resident_kilobytes() - before) * 1024 / 1e6, "seconds": min(seconds)}


def _in_a_process(kind: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.quantised", kind]
    root = Path(__file__).parent.parent
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    printed: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return printed


if __name__ == "__main__":
    print(json.dumps(_train(None if sys.argv[1] == "float32" else sys.argv[1])))  # type: ignore[arg-type]
