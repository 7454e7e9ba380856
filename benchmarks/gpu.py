"""A step on a GPU beside one of LoRA by PEFT, on the same rows in the same run (`make gpu`).

A step of ours measures a gradient in the subspace, says it by its signs, and applies it, as a host alone does. One of
LoRA has a forward pass, a backward pass, and AdamW. The shapes are those of OPT-125M and of Gemma 3 270M, with random
weights, and sixteen rows as long as those of SST-2.
"""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any
from unittest.mock import patch

import torch
import typer
from transformers import AutoModelForCausalLM, Gemma3TextConfig, OPTConfig, PreTrainedConfig

from benchmarks.measure import Metric, make_metric, ratios, run_in_turn
from benchmarks.model import OBJECTIVE, make_wide_batch, plain_inputs
from seedflood.config import RunSettings
from seedflood.protocol.seedflood.bundles import Update
from seedflood.protocol.seedflood.payload import Coefficients
from seedflood.training.models import DtypeName, prepare_model
from seedflood.training.seedflood import placing
from seedflood.training.seedflood.compression import compress
from seedflood.training.seedflood.replica import Replica

REPETITIONS = 15
DTYPES: tuple[DtypeName, ...] = ("float32", "bfloat16")
LORA_RANK = 16
ORIGIN = 1

SHAPES: Mapping[str, PreTrainedConfig] = {
    "opt_125m": OPTConfig(),
    "gemma_270m": Gemma3TextConfig(
        hidden_size=640,
        intermediate_size=2048,
        num_hidden_layers=18,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=256,
        vocab_size=262_144,
    ),
}


def run() -> dict[str, Metric]:
    """Raises typer.BadParameter without a GPU."""
    if not torch.cuda.is_available():
        raise typer.BadParameter("gpu needs a GPU, and PyTorch finds none by CUDA here")
    metrics: dict[str, Metric] = {}
    for name, config in SHAPES.items():
        metrics |= {f"gpu.{name}.{figure}": metric for figure, metric in measure(config, "cuda").items()}
    return metrics


def measure(config: PreTrainedConfig, device: str, repetitions: int = REPETITIONS) -> dict[str, Metric]:
    """Of a model of this shape."""
    jobs: dict[str, Callable[[], None]] = {}
    for dtype in DTYPES:
        replica = Replica(prepare_model(_random(config), None, device=device, dtype=dtype), _run())
        jobs[dtype] = _our_step(replica)
        jobs[f"{dtype}.lora"] = _step_of_lora(config, device, dtype)
        jobs[f"{dtype}.epoch"] = _epoch(replica)
    if torch.device(device).type != "cpu":
        jobs["offloaded"] = _our_step(_offloaded(config, device))
    seconds = run_in_turn({name: _waited_for(job, device) for name, job in jobs.items()}, repetitions)
    metrics: dict[str, Metric] = {}
    for dtype in DTYPES:
        metrics |= {
            f"{dtype}.to_lora": make_metric(ratios(seconds[dtype], seconds[f"{dtype}.lora"]), 1.0),
            f"{dtype}.seconds": make_metric(seconds[dtype]),
            f"{dtype}.epoch_to_step": make_metric(ratios(seconds[f"{dtype}.epoch"], seconds[dtype])),
        }
    metrics["bfloat16_to_float32"] = make_metric(ratios(seconds["bfloat16"], seconds["float32"]), 1.0)
    if "offloaded" in seconds:
        metrics["offloaded_to_step"] = make_metric(ratios(seconds["offloaded"], seconds["bfloat16"]))
    return metrics


def _run() -> RunSettings:
    return RunSettings.of(clients=1, estimate="gradient", refresh_period=1_000_000)


def _random(config: PreTrainedConfig) -> Any:
    """A model of transformers with random weights."""
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    return model.train(False).requires_grad_(False)


def _our_step(replica: Replica) -> Callable[[], None]:
    batch, steps, compression = make_wide_batch(), count(), replica.compression
    assert isinstance(compression, Coefficients)

    def step() -> None:
        number = replica.epoch * replica.refresh_period + next(steps)
        slopes = replica.measure_gradient(number, OBJECTIVE, batch)
        replica.apply([Update(ORIGIN, number, compress(compression, slopes).value)])

    return step


def _epoch(replica: Replica) -> Callable[[], None]:
    """Folds an epoch and makes the bases of the next one."""
    return lambda: replica.open_epoch(replica.epoch + 1)


def _step_of_lora(config: PreTrainedConfig, device: str, dtype: DtypeName) -> Callable[[], None]:
    """On all linear layers."""
    import peft  # takes a second to import

    settings = peft.LoraConfig(
        r=LORA_RANK, lora_alpha=2 * LORA_RANK, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    model = peft.get_peft_model(_random(config).to(device=device, dtype=getattr(torch, dtype)), settings)
    optimiser = torch.optim.AdamW(one for one in model.parameters() if one.requires_grad)
    batch = make_wide_batch()

    def step() -> None:
        inputs = {name: one.to(device) for name, one in plain_inputs(batch).items()}
        optimiser.zero_grad()
        model(**inputs, use_cache=False).loss.backward()
        optimiser.step()

    return step


def _offloaded(config: PreTrainedConfig, device: str) -> Replica:
    """In bfloat16, with all matrices in host memory, as if the device had no room."""
    with patch.multiple(placing, room_for_weights=lambda _device: 0, _needed=lambda *_: 0):
        return Replica(prepare_model(_random(config), None, device=device, dtype="bfloat16", room=0), _run())


def _waited_for(job: Callable[[], None], device: str) -> Callable[[], None]:
    def wait() -> None:
        job()
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize()

    return wait
