"""What late updates cost: gradients of slow hosts, of bad networks and of one that is gone, beside none that are late.

SST-2 with 1,024 sentences, the 2.6 M OPT, 48 steps, sixteen rows a step of each of four hosts, in one process. One
replica stands for all: it holds what has arrived at all of them (`SITUATIONS`). Accuracy and loss are those of all
validation rows, when everything has arrived in the end.

    python -m benchmarks late

`end` computes one run.
"""

import random
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measure import Metric, make_metric, shared_folder
from seedflood.config import NodeSettings, RunSettings
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import Update
from seedflood.training.seedflood.rehearsal import Rehearsal
from seedflood.training.shards import equal_shares

SEEDS = (1, 2, 3, 4, 5)
CLIENTS = 4
STEPS = 48
SLOW_ROUNDS = 6
LATE_ROUNDS_MAX = 8
GONE_AFTER = 16

Lateness = Callable[[random.Random, OriginId, int], int | None]
"""How many rounds late an origin's update of a step comes; None: it measures none."""


def _slow(_rng: random.Random, origin: OriginId, step: int) -> int | None:
    """One host takes six rounds for one."""
    if origin < CLIENTS:
        return 0
    return None if step % SLOW_ROUNDS else SLOW_ROUNDS


def _half_late(rng: random.Random, origin: OriginId, _step: int) -> int | None:
    """Half of the hosts keep pace with each other, which is what windows wait for; what the others tell is late."""
    return 0 if origin <= CLIENTS // 2 else rng.randint(0, LATE_ROUNDS_MAX)


def _late(rng: random.Random, _origin: OriginId, _step: int) -> int | None:
    """Every update is late, as after cuts all over the network."""
    return rng.randint(0, LATE_ROUNDS_MAX)


def _gone(_rng: random.Random, origin: OriginId, step: int) -> int | None:
    """One host dies for good."""
    return 0 if origin < CLIENTS or step < GONE_AFTER else None


SITUATIONS: Mapping[str, tuple[str, Lateness]] = {
    "strict": ("strict", lambda _rng, _origin, _step: 0),
    "bounded": ("bounded", lambda _rng, _origin, _step: 0),
    "bounded_one_slow": ("bounded", _slow),
    "bounded_half_late": ("bounded", _half_late),
    "bounded_all_late": ("bounded", _late),
    "bounded_one_gone": ("bounded", _gone),
}
"""The windows, and who is late."""


def end(situation: str, seed: int, **settings: Any) -> tuple[float, float]:
    """Accuracy and loss at the end of a run."""
    shared = shared_folder()
    window, lateness = SITUATIONS[situation]
    keys = {"model": str(shared / "models" / "tiny-opt"), "task": "sst2", "train_examples": 1024}
    keys |= {"estimate": "gradient", "steps": STEPS, "window": window}
    run = RunSettings.of(seed=seed, clients=CLIENTS, **(keys | settings))
    with TemporaryDirectory(prefix="seedflood-late-") as home:
        node = NodeSettings(data=str(shared / "data" / "sst2"), state=Path(home), threads=1)
        rehearsal = Rehearsal(run, equal_shares(node, CLIENTS))
        replica = rehearsal.trainers[0].replica
        rng = random.Random(f"late {seed}")
        coming: defaultdict[int, list[Update]] = defaultdict(list)
        for step in range(run.steps):
            for origin, trainer in enumerate(rehearsal.trainers, 1):
                rounds = lateness(rng, origin, step)
                if rounds is not None:
                    (value,) = trainer.measure(origin, step, 1).probes
                    coming[step + rounds].append(Update(origin, step, value))
            replica.apply(coming.pop(step, []))
        for step in sorted(coming):
            replica.apply(coming[step])
        evaluation = rehearsal.evaluate()
    print(f"{situation} seed {seed} {settings}: {evaluation.figures}", file=sys.stderr)
    return evaluation.figures["accuracy"], evaluation.loss


def run() -> dict[str, Metric]:
    metrics: dict[str, Metric] = {}
    for situation in SITUATIONS:
        accuracies, losses = zip(*(end(situation, seed) for seed in SEEDS), strict=True)
        metrics[f"late.{situation}_accuracy"] = make_metric([*accuracies])
        metrics[f"late.{situation}_loss"] = make_metric([*losses])
    return metrics
