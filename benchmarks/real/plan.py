"""Which cells there are: a method on a task with a run seed, in the order in which they are measured.

Of the yardsticks every learning rate is tried with the first seed. The one that ends with the least loss is measured
with the others. It is chosen by the rows that the table shows, which favours the yardsticks a little.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from study.cell import Cell, best
from study.methods.method import Option
from study.results import Results
from study.rows import Sizes

SEEDS = (1, 2, 3)
RANKS = (5, 16, 32)
DILOCO_LOCAL_STEPS = 4
POINTS = 3
"""Evaluations of one course of each line. Of others only the end is evaluated, for it takes a minute."""


@dataclass(frozen=True, slots=True)
class Swarm:
    """Who learns together. steps: of what computes gradients. batch_size: rows of an origin in a step; None: as many as
    the exercise says."""

    clients: int
    topology: str
    steps: int
    two_sided_steps: int
    batch_size: int | None = None


SWARMS: Mapping[int, Swarm] = {
    2: Swarm(2, "path", steps=24, two_sided_steps=240),
    16: Swarm(16, "ring", steps=100, two_sided_steps=100, batch_size=4),
}
"""By the number of hosts. Two are daemons. Sixteen, as many as in the paper of SeedFlood, take turns in one process."""


@dataclass(frozen=True, slots=True)
class Exercise:
    """A task. rows: how many, of which those to test on are evaluated. batch_size: rows of an origin in a step."""

    title: str
    task: str
    rows: Sizes
    batch_size: int = 16
    max_length: int = 256


EXERCISES: Mapping[str, Exercise] = {
    "sst2": Exercise("SST-2", "sst2", Sizes(1024, 0, 872)),
    "trec": Exercise("TREC", "trec", Sizes(1024, 0, 500)),
    "imdb": Exercise("IMDB, language modelling", "lm", Sizes(1024, 0, 64), batch_size=4, max_length=128),
}
"""By the folder of their rows."""


def exercise_of(task: str) -> Exercise:
    return next(one for one in EXERCISES.values() if one.task == task)


YARDSTICKS: Mapping[str, Sequence[Mapping[str, Option]]] = {
    "lora": [{"rate": rate, "schedule": "cosine"} for rate in (3e-4, 1e-3, 3e-3)],
    "adamw": [{"rate": rate, "schedule": "cosine"} for rate in (3e-6, 1e-5, 3e-5)],
    "diloco": [{"rate": rate, "eta": 0.7, "gamma": 0.9} for rate in (3e-6, 1e-5, 3e-5)],
    "dsgd-lora": [{"rate": rate, "schedule": "cosine"} for rate in (0.03, 0.1, 0.3)],
}
"""The options that are tried, by method. DiLoCo's outer step is that of its paper."""

BASE = "base"
LINES = (BASE, *(f"rank-{rank}" for rank in RANKS), "two-sided", *YARDSTICKS)
"""Of the table: what is measured with all seeds."""


def cells(line: str, base: Cell, results: Results) -> Iterator[Cell]:
    """Those of a line of the table. base: `base_cell`. results: the caller has put each cell's result into them before
    it asks for the next one."""
    swarm = SWARMS[base.clients]
    if line == BASE:
        yield base
    elif line == "two-sided":
        yield from _of_seeds(replace(base, method="seedflood", steps=swarm.two_sided_steps), {})
    elif line in YARDSTICKS:
        yield from _of_yardstick(line, replace(base, method=line, steps=swarm.steps), results)
    else:
        rank = int(line.removeprefix("rank-"))
        yield from _of_seeds(replace(base, method="coefficients", steps=swarm.steps), {"rank": rank})


def _of_yardstick(method: str, cell: Cell, results: Results) -> Iterator[Cell]:
    local_steps = DILOCO_LOCAL_STEPS if method == "diloco" else 1
    tried = [replace(cell, local_steps=local_steps).with_options(options) for options in YARDSTICKS[method]]
    yield from tried
    chosen = best(results[one] for one in tried).cell
    yield replace(chosen, seed=SEEDS[1], points=POINTS)
    yield replace(chosen, seed=SEEDS[2])


def _of_seeds(cell: Cell, options: Mapping[str, Option]) -> Iterator[Cell]:
    for seed in SEEDS:
        yield replace(cell, seed=seed, points=POINTS if seed == SEEDS[0] else 1).with_options(options)


def base_cell(exercise: Exercise, swarm: Swarm, model: str, digest: str) -> Cell:
    """The model as it is, before any step. digest: of the rows."""
    return Cell(
        model=model,
        task=exercise.task,
        rows=digest,
        method="none",
        topology=swarm.topology,
        clients=swarm.clients,
        skew=None,
        steps=0,
        local_steps=1,
        batch_size=swarm.batch_size or exercise.batch_size,
        seed=SEEDS[0],
        points=1,
        is_test=False,
    )
