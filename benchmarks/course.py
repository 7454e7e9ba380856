"""What a run learns, step by step, against what it costs: seconds of computing, and bytes per origin and link.

One process stands for all origins (`training.seedflood.rehearsal`), so seconds are those of one core for all of them,
and bytes those of a real frame of every bundle: signed, encoded, sent alone. `adamw` is the ceiling: the same rows step
by step, all weights, exact gradients.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from seedflood.config import NodeSettings, RunSettings
from seedflood.identity import Identity
from seedflood.protocol.seedflood.messages import Bundle, Updates
from seedflood.training.evaluation import Evaluation, evaluate
from seedflood.training.loading import load_base, load_rows
from seedflood.training.objectives.batches import Batch
from seedflood.training.seedflood.gradient import CPU_CALL_TOKENS
from seedflood.training.seedflood.rehearsal import Measured, Rehearsal
from seedflood.training.tasks import Task
from seedflood.transport.codec import encode

ADAMW_WEIGHT_DECAY = 0.01


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
        rehearsal = Rehearsal(settings, exercise.node(home))
        key, run_id = Identity.generate(), settings.run_id()
        seconds = sent = 0.0
        course = [_point(0, 0, 0, rehearsal.evaluate())]
        while rehearsal.step < settings.steps and course[-1].loss > until_loss:
            begun = time.perf_counter()
            told = rehearsal.advance()
            seconds += time.perf_counter() - begun
            sent += sum(frame_bytes(one, key, run_id) for one in told) / len(told)
            if rehearsal.step % every == 0 or rehearsal.step == settings.steps:
                course.append(_point(rehearsal.step, seconds, sent, rehearsal.evaluate()))
    return course


def frame_bytes(told: Measured, key: Identity, run_id: bytes) -> int:
    """Of the bundle of a round, as it goes over a link."""
    bundle = Bundle(told.origin, told.step, told.round.probes)
    signed = bundle._replace(signature=key.sign(bundle.signed_bytes(run_id, key.public_key)))
    return sum(len(frame) for frame in encode(Updates((signed,))))


def adamw(exercise: Exercise, seed: int, steps: int, rate: float, *, every: int) -> list[Point]:
    """Plain AdamW on all weights, in steps of all origins' rows together, with linear decay."""
    settings = exercise.settings(seed, steps=steps)
    with TemporaryDirectory(prefix="seedflood-learn-") as home:
        node = exercise.node(home)
        base = load_base(settings, node)
        shards = [f"{k + 1}/{settings.clients}" for k in range(settings.clients)]
        tasks = [load_rows(settings, node.model_copy(update={"shard": shard}), base) for shard in shards]
    if exercise.evaluate_examples is not None:
        del tasks[0].validation_examples[exercise.evaluate_examples :]
    model, objective = base.causal, tasks[0].objective
    parameters = base.model.requires_grad_(True).parameters()
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=ADAMW_WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    seconds = 0.0
    course = [_point(0, 0, 0, evaluate(model, tasks[0]))]
    for step in range(steps):
        begun = time.perf_counter()
        optimizer.zero_grad()
        for piece, weight in _pieces(tasks, step):
            loss = objective.measure(model, piece.to(base.device)).minimised_sums.sum() * weight
            loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        seconds += time.perf_counter() - begun
        if (step + 1) % every == 0 or step + 1 == steps:
            course.append(_point(step + 1, seconds, 0, evaluate(model, tasks[0])))
    return course


def _pieces(tasks: Sequence[Task], step: int) -> Iterator[tuple[Batch, float]]:
    """The rows of all origins in pieces of like length, as a gradient of ours has them (padding would cost AdamW
    twice the seconds), and what a loss in each counts: the mean over origins of their means."""
    for origin, task in enumerate(tasks, 1):
        batch = task.batch(origin, step)
        weight = 1 / (task.objective.count(batch) * len(tasks))
        for piece in batch.split(CPU_CALL_TOKENS):
            yield piece, weight


def first_below(course: Sequence[Point], loss: float) -> Point | None:
    """The first point with a loss that low."""
    return next((point for point in course if point.loss <= loss), None)


def _point(step: int, seconds: float, sent: float, result: Evaluation) -> Point:
    return Point(step, seconds, sent, result.figures["accuracy"], result.loss)
