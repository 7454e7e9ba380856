"""One two-point estimate against two plain forwards with loss, and against a step as MeZO's authors wrote it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count

import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from benchmarks.measure import Metric, make_metric, ratios, run_in_turn
from benchmarks.model import OBJECTIVE, make_batch, make_model, make_replica, plain_inputs

REPETITIONS = 7
PROFILE_ROWS = 12
EPSILON, RATE = 1e-3, 1e-6


def run() -> dict[str, Metric]:
    replica, plain = make_replica(), make_model()
    seeds: dict[str, Iterator[int]] = {name: count() for name in ("estimate", "forwards", "mezo")}

    def estimate() -> None:
        seed = next(seeds["estimate"])
        replica.measure(seed, seed, OBJECTIVE, make_batch(seed))

    @torch.inference_mode()
    def forwards() -> None:
        inputs = plain_inputs(make_batch(next(seeds["forwards"])))
        for _ in range(2):
            plain(**inputs).loss.item()

    @torch.inference_mode()
    def mezo() -> None:
        seed = next(seeds["mezo"])
        inputs = plain_inputs(make_batch(seed))
        perturb(plain, seed, EPSILON)
        plus = plain(**inputs).loss.item()
        perturb(plain, seed, -2 * EPSILON)
        minus = plain(**inputs).loss.item()
        perturb(plain, seed, EPSILON)
        perturb(plain, seed, -RATE * (plus - minus) / (2 * EPSILON))

    seconds = run_in_turn({"estimate": estimate, "forwards": forwards, "mezo": mezo}, REPETITIONS)
    return {
        "step.to_two_forwards": make_metric(ratios(seconds["estimate"], seconds["forwards"]), 0.45),
        "step.to_mezo": make_metric(ratios(seconds["estimate"], seconds["mezo"]), 0.20),
        "step.seconds": make_metric(seconds["estimate"]),
    }


def print_profile() -> None:
    """What an estimate spends its time on, by operator and, for products, by their inner and outer width."""
    replica = make_replica()
    replica.measure(0, 0, OBJECTIVE, make_batch(0))
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as taken:
        for draw in range(1, REPETITIONS + 1):
            replica.measure(draw, draw, OBJECTIVE, make_batch(draw))
    spent: dict[str, float] = defaultdict(float)
    for event in taken.key_averages(group_by_input_shape=True):
        spent[_describe(event.key, event.input_shapes)] += event.self_cpu_time_total
    total = sum(spent.values())
    table = Table("operator", "share", "ms per estimate", title="step")
    for key, microseconds in sorted(spent.items(), key=lambda item: -item[1])[:PROFILE_ROWS]:
        table.add_row(key, f"{microseconds / total:.1%}", f"{microseconds / REPETITIONS / 1e3:.2f}")
    Console().print(table)


def _describe(operator: str, shapes: Sequence[Sequence[int]]) -> str:
    """A product by the shape of its second factor: its first has as many rows as a piece of the batch has tokens."""
    if operator in ("aten::mm", "aten::addmm_") and shapes and len(shapes[-1]) == 2:
        factor = shapes[1] if operator == "aten::mm" else shapes[2]
        return f"{operator} with {'x'.join(map(str, factor))}"
    return operator


def perturb(model: torch.nn.Module, seed: int, scale: float) -> None:
    """Adds scale z to all parameters in place, z drawn anew from the seed (MeZO, algorithm 1)."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=scale)
