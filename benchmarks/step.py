"""One two-point estimate against two plain forwards with loss, and against a step as MeZO's authors wrote it."""

from collections.abc import Iterator
from itertools import count

import torch

from benchmarks.measure import Metric, make_metric, ratios, run_in_turn
from benchmarks.model import make_batch, make_model, make_replica, plain_inputs

REPETITIONS = 7
EPSILON, RATE = 1e-3, 1e-6


def run() -> dict[str, Metric]:
    replica, plain = make_replica(), make_model()
    seeds: dict[str, Iterator[int]] = {name: count() for name in ("estimate", "forwards", "mezo")}

    def estimate() -> None:
        seed = next(seeds["estimate"])
        replica.measure(seed, seed, make_batch(seed))

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


def perturb(model: torch.nn.Module, seed: int, scale: float) -> None:
    """Adds scale z to all parameters in place, z drawn anew from the seed (MeZO, algorithm 1)."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=scale)
