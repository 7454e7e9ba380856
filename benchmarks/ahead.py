"""How much of its time a host computes that learns by reward when every link takes 100 ms one way, with texts that were
written while it waited (`ahead`) and without.

Real daemons on a ring of four, all links through a delaying proxy (`overlap`, `delay`), with tiny-opt, 4 prompts and 8
texts a step. Four hosts on two cores take each other's time, which hides the network, too. So beside what was measured
stands what hosts of their own would have: from processor seconds of writing and learning in one process, and the flight
of an update across the ring. A host then waits in each round for what the flight takes longer than its writing.
"""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measure import Metric, make_metric, shared_folder
from benchmarks.overlap import LINK_SECONDS, UTILISATION, pace
from seedflood.config import NodeSettings, RunSettings
from seedflood.training.seedflood.trainer import Trainer

NODES = 4
FLIGHT_SECONDS = NODES // 2 * LINK_SECONDS
TOKENS = (8, 32, 64)
"""Of a text: writing takes less than the flight, about twice, and about three times as long."""
ALONE_STEPS = 8


def run() -> dict[str, Metric]:
    metrics: dict[str, Metric] = {}
    for tokens in TOKENS:
        writing, learning = alone(_task(tokens))
        for ahead in (0, 1, 2):
            measured = pace(shared_folder(), NODES, {**_task(tokens), "ahead": ahead})
            waits = max(0.0, FLIGHT_SECONDS - (writing if ahead else 0.0))
            own = (writing + learning) / (writing + learning + waits)
            name = f"ahead.{tokens}_tokens.{ahead}"
            metrics[f"{name}.measured"] = make_metric([measured.utilisation])
            target = UTILISATION if ahead else None
            metrics[f"{name}.own_hosts"] = make_metric([own], target, more_is_better=True)
    return metrics


def alone(task: Mapping[str, Any]) -> tuple[float, float]:
    """Processor seconds of writing a step, and of learning from it, without anyone beside."""
    times = []
    with TemporaryDirectory(prefix="seedflood-ahead-") as home:
        node = NodeSettings(data=str(shared_folder() / "data" / "sst2"), state=Path(home), device="cpu", threads=1)
        trainer = Trainer(RunSettings.of(model=str(shared_folder() / "models" / "tiny-opt"), ahead=1, **task), node)
        for step in range(ALONE_STEPS):
            begun = time.process_time()
            trainer.write_ahead(1, step - 1)
            written = time.process_time()
            trainer.measure(1, step, 1)
            times.append((written - begun, time.process_time() - written))
    writing, learning = (median(some) for some in zip(*times, strict=True))
    print(f"{dict(task)}: {writing:.3f} s writing, {learning:.3f} s learning", file=sys.stderr, flush=True)
    return writing, learning


def _task(tokens: int) -> dict[str, Any]:
    """Nearly all texts differ in their length, so that nothing is left out."""
    task = {"task": "reward", "template": "{sentence}", "score": f"length:{4 * tokens}", "estimate": "gradient"}
    return {**task, "max_new_tokens": tokens, "max_length": 128, "batch_size": 4, "group": 8}
