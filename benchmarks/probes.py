"""Eight probes from one centre against as many two-sided estimates: time per probe, and what comes of it in equal time.

A one-sided probe costs one forward where a two-sided estimate costs two, and the centre is shared; but all probes of a
round see the same rows, and their slope is that of one side. So the second half of the benchmark fine-tunes for equally
long with both.
"""

from itertools import count

from benchmarks.measure import Metric, make_metric, ratios, run_in_turn
from benchmarks.model import OBJECTIVE, make_batch, make_replica
from benchmarks.training import ORIGINS, fine_tune
from seedflood.config import RunSettings
from seedflood.training.seedflood.estimate import ESTIMATES

PROBES = 8
REPETITIONS = 7
TUNE_SECONDS = 6.0
RUN_SEEDS = (1, 2)
SIDES = {"two_sided": {}, "one_sided": {"estimate": "one-sided", "local_steps": PROBES}}


def run() -> dict[str, Metric]:
    return _time() | _tune()


def _time() -> dict[str, Metric]:
    replica = make_replica()
    draws = {"two-sided": count(), "one-sided": count()}

    def two_sided() -> None:
        draw = next(draws["two-sided"])
        replica.measure(0, draw, OBJECTIVE, make_batch(draw))

    def one_sided() -> None:
        draw = next(draws["one-sided"])
        seeds = [PROBES * draw + k for k in range(PROBES)]
        replica.measure_together(0, seeds, OBJECTIVE, make_batch(draw), ESTIMATES["one-sided"])

    seconds = run_in_turn({"two-sided": two_sided, "one-sided": one_sided}, REPETITIONS)
    per_probe = [one / PROBES for one in seconds["one-sided"]]
    return {
        "probes.to_step": make_metric(ratios(per_probe, seconds["two-sided"]), 0.6),
        "probes.seconds": make_metric(per_probe),
    }


def _tune() -> dict[str, Metric]:
    """The embedded model with its defaults; two-sided steps have rows of their own, eight one-sided ones share."""
    metrics: dict[str, Metric] = {}
    for name, changes in SIDES.items():
        tuned = [
            fine_tune(
                RunSettings.of(model="embedded", task="embedded", clients=ORIGINS, steps=100_000, seed=seed, **changes),
                seconds_max=TUNE_SECONDS,
            )
            for seed in RUN_SEEDS
        ]
        metrics[f"probes.{name}_accuracy"] = make_metric([one.evaluation.figures["accuracy"] for one in tuned])
        metrics[f"probes.{name}_loss"] = make_metric([one.evaluation.loss for one in tuned])
        metrics[f"probes.{name}_steps_per_second"] = make_metric([one.steps / one.seconds for one in tuned])
    return metrics
