"""1,024 updates onto 125 M parameters: accumulated, folded, against dense noise and against the bandwidth of memory."""

import torch

from benchmarks.measure import Metric, make_metric, ratios, run_in_turn
from benchmarks.model import make_batch, make_model, make_replica, plain_inputs
from benchmarks.step import perturb
from seedflood.protocol.messages import Update

UPDATES = 1024
REPETITIONS = 5


def run() -> dict[str, Metric]:
    replica, plain = make_replica(), make_model()
    generator = torch.Generator().manual_seed(0)
    seeds = torch.randint(0, 1 << 32, (UPDATES,), generator=generator).tolist()
    inputs = plain_inputs(make_batch(0))

    def accumulate() -> None:
        replica.apply(Update(origin, 0, seed, 1 << 20) for origin, seed in enumerate(seeds))

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

    jobs = {"accumulate": accumulate, "fold": fold, "rewrite": rewrite, "forward": forward, "dense one": dense_one}
    seconds = run_in_turn(jobs, REPETITIONS)
    dense = [one * UPDATES for one in seconds["dense one"]]
    return {
        "apply.accumulate_to_forward": make_metric(ratios(seconds["accumulate"], seconds["forward"]), 0.02),
        "apply.fold_to_bandwidth": make_metric(ratios(seconds["fold"], seconds["rewrite"]), 2.5),
        "apply.dense_to_fold": make_metric(ratios(dense, seconds["fold"]), 5000, more_is_better=True),
        "apply.fold_seconds": make_metric(seconds["fold"]),
    }
