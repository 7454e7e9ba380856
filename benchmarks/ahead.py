"""How much of its time a host computes that learns by reward when every link takes 100 ms one way, with texts that were
written while it waited (`ahead`), and without.

*Measured*: real daemons on a ring of four, all links through a delaying proxy (`overlap`, `delay`), with tiny-opt, 2
prompts and 4 texts after each. Four hosts on two cores take each other's time, and then the network seems fast: so only
the shortest texts are measured.

*Hosts of their own*: the same ring as simulated hosts, with the node and the driver of a daemon. Writing and learning
take what they take of one core, alone (processor seconds of this process), 10 % more or less in each step.
"""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measure import Metric, make_metric, shared_folder
from benchmarks.overlap import LINK_SECONDS, UTILISATION, pace
from benchmarks.processes import ring
from seedflood.config import NodeSettings, RunSettings
from seedflood.host.seedflood.seams import Job
from seedflood.protocol.seedflood.outputs import Measure
from seedflood.training.seedflood.trainer import Trainer
from simulation.network import Weather
from simulation.seedflood.host import SeedfloodHost
from simulation.seedflood.world import SeedfloodWorld

NODES = 4
TOKENS = (8, 32, 64)
"""Of a text: writing takes less than half of the flight across the ring, about as long, and about twice as long."""
AHEAD = (0, 1, 2)
ROUNDS = 20
ALONE_STEPS = 8
SIMULATED_ROUNDS, WARM_UP_ROUNDS = 100, 10
DIFFERENCE = 0.1
"""By how much the time of a step differs from the usual one, at most."""


def run() -> dict[str, Metric]:
    metrics: dict[str, Metric] = {}
    for tokens in TOKENS:
        times = alone(_task(tokens))
        for ahead in AHEAD:
            target = UTILISATION if ahead else None
            own = make_metric(simulated(*times, ahead), target, more_is_better=True)
            metrics[f"ahead.{tokens}_tokens.{ahead}.own_hosts"] = own
    for ahead in AHEAD:
        measured = pace(shared_folder(), NODES, {**_task(TOKENS[0]), "ahead": ahead}, ROUNDS)
        metrics[f"ahead.{TOKENS[0]}_tokens.{ahead}.measured"] = make_metric([measured.utilisation])
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
    print(f"{task['max_new_tokens']} tokens: {writing:.3f} s writing, {learning:.3f} s learning", file=sys.stderr)
    return writing, learning


def simulated(writing_seconds: float, learning_seconds: float, ahead: int) -> list[float]:
    """The utilisation of each host."""
    weather = Weather(delay_min=LINK_SECONDS, delay_max=LINK_SECONDS)
    world = SeedfloodWorld(NODES, ring(NODES), seed=1, steps=SIMULATED_ROUNDS, refresh_period=50, weather=weather)
    models = [Model(host, writing_seconds, learning_seconds, ahead) for host in world.hosts]
    world.start()
    assert world.run(), "a host came to no end"
    ages = [mean(model.ages[WARM_UP_ROUNDS:]) for model in models]
    print(f"ahead = {ahead}: texts are {min(ages):.2f} to {max(ages):.2f} rounds old", file=sys.stderr, flush=True)
    return [model.utilisation() for model in models]


class Model:
    """Of a simulated host: it takes its time as one that writes, in the order of `host.seedflood.work`. ages: of the
    texts of each step, in rounds."""

    def __init__(self, host: SeedfloodHost, writing_seconds: float, learning_seconds: float, ahead: int) -> None:
        self.ages: list[int] = []
        self._host, self._ahead = host, ahead
        self._seconds = writing_seconds, learning_seconds
        self._written: dict[int, int] = {}
        """Of each step whose texts are there: after which one they were written."""
        self._last, self._busy_seconds = -1, 0.0
        self._seen: list[tuple[float, float]] = []
        self._others = host.compute
        host.compute = self._compute  # type: ignore[method-assign]

    def utilisation(self) -> float:
        (began, before), (ended, after) = self._seen[WARM_UP_ROUNDS], self._seen[-1]
        return (after - before) / (ended - began)

    def _compute(self, job: Job) -> None:
        if isinstance(job, Measure):
            self._host.work.put(0.0, self._begin, job)
        else:
            self._others(job)

    def _begin(self, order: Measure) -> None:
        self._last, (writing, learning) = order.step, self._seconds
        self.ages.append(order.step - self._written.get(order.step, order.step))
        self._spend(learning + (0.0 if order.step in self._written else writing), self._measured, order)

    def _measured(self, order: Measure) -> None:
        self._seen.append((self._host.clock.now, self._busy_seconds))
        self._host._measured(order)
        self._host.work.put(0.0, self._go_on, order.step)

    def _go_on(self, after: int) -> None:
        wanted = range(after + 1, min(after + self._ahead + 1, SIMULATED_ROUNDS))
        missing = [step for step in wanted if step not in self._written]
        if after == self._last and missing:
            self._spend(self._seconds[0], self._wrote, missing[0], after)

    def _wrote(self, step: int, after: int) -> None:
        self._written[step] = after
        self._host.work.put(0.0, self._go_on, after)

    def _spend(self, seconds: float, then: Any, *arguments: object) -> None:
        spent = seconds * self._host.rng.uniform(1 - DIFFERENCE, 1 + DIFFERENCE)
        self._busy_seconds += spent
        self._host.work.put(spent, then, *arguments)


def _task(tokens: int) -> dict[str, Any]:
    """Nearly all texts differ in their length, so that nothing is left out."""
    task = {"task": "reward", "template": "{sentence}", "score": f"length:{4 * tokens}", "estimate": "gradient"}
    return {**task, "max_new_tokens": tokens, "max_length": 128, "batch_size": 2, "group": 4}
