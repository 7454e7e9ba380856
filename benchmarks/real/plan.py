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
CLIENTS = 2
STEPS = 24
TWO_SIDED_STEPS = 240
RANKS = (5, 16, 32)
DILOCO_LOCAL_STEPS = 4
POINTS = 3
"""Evaluations of one course of each line. Of others only the end is evaluated, for it takes a minute."""


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
}
"""The options that are tried, by method. DiLoCo's outer step is that of its paper."""

BASE = "base"
LINES = (BASE, *(f"rank-{rank}" for rank in RANKS), "two-sided", *YARDSTICKS)
"""Of the table: what is measured with all seeds."""


def cells(line: str, base: Cell, results: Results) -> Iterator[Cell]:
    """Those of a line of the table. base: `base_cell`. results: the caller has put each cell's result into them before
    it asks for the next one."""
    if line == BASE:
        yield base
    elif line == "two-sided":
        yield from _of_seeds(replace(base, method="seedflood", steps=TWO_SIDED_STEPS), {})
    elif line in YARDSTICKS:
        yield from _of_yardstick(line, base, results)
    else:
        rank = int(line.removeprefix("rank-"))
        yield from _of_seeds(replace(base, method="coefficients", steps=STEPS), {"rank": rank})


def _of_yardstick(method: str, base: Cell, results: Results) -> Iterator[Cell]:
    local_steps = DILOCO_LOCAL_STEPS if method == "diloco" else 1
    cell = replace(base, method=method, steps=STEPS, local_steps=local_steps)
    tried = [cell.with_options(options) for options in YARDSTICKS[method]]
    yield from tried
    chosen = best(results[one] for one in tried).cell
    yield replace(chosen, seed=SEEDS[1], points=POINTS)
    yield replace(chosen, seed=SEEDS[2])


def _of_seeds(cell: Cell, options: Mapping[str, Option]) -> Iterator[Cell]:
    for seed in SEEDS:
        yield replace(cell, seed=seed, points=POINTS if seed == SEEDS[0] else 1).with_options(options)


def base_cell(exercise: Exercise, model: str, digest: str) -> Cell:
    """The model as it is, before any step. digest: of the rows."""
    return Cell(
        model=model,
        task=exercise.task,
        rows=digest,
        method="none",
        topology="path",
        clients=CLIENTS,
        skew=None,
        steps=0,
        local_steps=1,
        batch_size=exercise.batch_size,
        seed=SEEDS[0],
        points=1,
        is_test=False,
    )
