"""1,024 updates onto 125 M parameters: accumulated, folded, against dense noise and against the bandwidth of memory.

A fold of rank 32 computes 64 flops for each weight that it reads and writes; `apply.fold_to_arithmetic` compares it
with as many flops of the fastest product there is.
"""

from itertools import count

import torch

from benchmarks.measure import Metric, make_metric, ratios, run_in_turn
from benchmarks.model import make_batch, make_model, make_replica, plain_inputs
from benchmarks.step import perturb
from seedflood.protocol.seedflood.bundles import LOSS_UNIT_BITS, Update

UPDATES = 1024
REPETITIONS = 5
SQUARE = 2048
"""A product of square matrices of this size shows what the cores can multiply at best."""


def run() -> dict[str, Metric]:
    replica, plain = make_replica(), make_model()
    inputs, steps = plain_inputs(make_batch(0)), count()

    def accumulate() -> None:
        step = next(steps)
        replica.apply(Update(origin, step, (1 << LOSS_UNIT_BITS, 1 << 20)) for origin in range(UPDATES))

    def fold() -> None:
        replica.fold_open_epoch()

    @torch.inference_mode()
    def rewrite() -> None:
        for parameter in plain.parameters():
            parameter.mul_(1.0)

    @torch.inference_mode()
    def forward() -> None:
        plain(**inputs).loss.item()

    @torch.inference_mode()
    def dense_one() -> None:
        perturb(plain, 1, 1e-9)

    square = torch.ones(SQUARE, SQUARE)

    @torch.inference_mode()
    def multiply() -> None:
        torch.mm(square, square)

    jobs = {
        "accumulate": accumulate,
        "fold": fold,
        "rewrite": rewrite,
        "forward": forward,
        "dense one": dense_one,
        "multiply": multiply,
    }
    seconds = run_in_turn(jobs, REPETITIONS)
    weights = sum(parameter.numel() for parameter in plain.parameters())
    share = 2 * replica.subspace.rank * weights / (2 * SQUARE**3)
    arithmetic = [one * share for one in seconds["multiply"]]
    dense = [one * UPDATES for one in seconds["dense one"]]
    return {
        "apply.accumulate_to_forward": make_metric(ratios(seconds["accumulate"], seconds["forward"]), 0.02),
        "apply.fold_to_bandwidth": make_metric(ratios(seconds["fold"], seconds["rewrite"]), 2.5),
        "apply.fold_to_arithmetic": make_metric(ratios(seconds["fold"], arithmetic)),
        "apply.dense_to_fold": make_metric(ratios(dense, seconds["fold"]), 5000, more_is_better=True),
        "apply.fold_seconds": make_metric(seconds["fold"]),
    }
