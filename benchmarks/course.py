"""What a run learns, step by step, against what it costs: seconds of computing, and bytes per origin and link.

One process stands for all origins (`training.seedflood.rehearsal`), so seconds are those of one core for all of them,
and bytes those of a real frame of every bundle: signed, encoded, sent alone. `adamw` is the ceiling: the same rows step
by step, all weights, exact gradients.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from seedflood.config import NodeSettings, RunSettings
from seedflood.identity import Identity
from seedflood.training.evaluation import Evaluation, evaluate
from seedflood.training.seedflood.rehearsal import Rehearsal
from seedflood.training.shards import equal_shares
from study.methods.central import AdamW
from study.methods.method import Graph, Problem
from study.methods.seedflood import frame_bytes


@dataclass(frozen=True, slots=True)
class Point:
    """seconds, sent_bytes: up to here. sent_bytes: per origin and link."""

    step: int
    seconds: float
    sent_bytes: float
    accuracy: float
    loss: float


@dataclass(frozen=True, slots=True)
class Exercise:
    """Which rows: keys of [run] and its tables that do not depend on the estimate, and where the data is."""

    name: str
    run: dict[str, Any]
    data: Path
    evaluate_examples: int | None = None

    def settings(self, seed: int, **run: Any) -> RunSettings:
        return RunSettings.of(seed=seed, **{**self.run, **run})

    def node(self, home: str) -> NodeSettings:
        return NodeSettings(data=str(self.data), state=Path(home), evaluate_examples=self.evaluate_examples)


def follow(
    exercise: Exercise,
    seed: int,
    *,
    every: int,
    until_loss: float = 0.0,
    **run: Any,
) -> list[Point]:
    """The course of a run, evaluated every so many steps and at its end, or until a loss is reached."""
    settings = exercise.settings(seed, **run)
    with TemporaryDirectory(prefix="seedflood-learn-") as home:
        rehearsal = Rehearsal(settings, equal_shares(exercise.node(home), settings.clients))
        key, run_id = Identity.generate(), settings.run_id()
        seconds = sent = 0.0
        course = [_point(0, 0, 0, rehearsal.evaluate())]
        while rehearsal.step < settings.steps and course[-1].loss > until_loss:
            begun = time.perf_counter()
            turns = rehearsal.advance()
            seconds += time.perf_counter() - begun
            sent += sum(frame_bytes(one, key, run_id) for one in turns) / len(turns)
            if rehearsal.step % every == 0 or rehearsal.step == settings.steps:
                course.append(_point(rehearsal.step, seconds, sent, rehearsal.evaluate()))
    return course


def adamw(exercise: Exercise, seed: int, steps: int, rate: float, *, every: int) -> list[Point]:
    """Plain AdamW on all weights, in steps of all origins' rows together, with linear decay."""
    settings = exercise.settings(seed, steps=steps)
    with TemporaryDirectory(prefix="seedflood-learn-") as home:
        alone = Graph(settings.clients, ())
        method = AdamW(Problem(settings, exercise.node(home), alone, 1, {"rate": rate}))
    task = method.tasks[0]
    if exercise.evaluate_examples is not None:
        del task.validation_examples[exercise.evaluate_examples :]
    seconds = 0.0
    course = [_point(0, 0, 0, evaluate(method.average(), task))]
    for step in range(1, steps + 1):
        seconds += method.advance().measure_seconds * settings.clients
        if step % every == 0 or step == steps:
            course.append(_point(step, seconds, 0, evaluate(method.average(), task)))
    return course


def first_below(course: Sequence[Point], loss: float) -> Point | None:
    """The first point with a loss that low."""
    return next((point for point in course if point.loss <= loss), None)


def _point(step: int, seconds: float, sent: float, result: Evaluation) -> Point:
    return Point(step, seconds, sent, result.figures["accuracy"], result.loss)
