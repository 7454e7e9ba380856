"""A cell of a method of the study, all clients in one process; and the base model, which no method has changed.

Seconds are those of a client, as if each had a core for itself.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.real.plan import exercise_of
from seedflood.cluster.topology import make_topology
from seedflood.config import NodeSettings, RunSettings
from seedflood.training.evaluation import evaluate
from seedflood.training.loading import load_base, load_rows
from seedflood.training.tasks import Task
from study.cell import Cell, Result
from study.measure import commit
from study.methods import METHODS
from study.methods.clients import Clients
from study.methods.method import Cost, Graph, Method, Problem


def measure(cell: Cell, data: Path, device: str) -> Result:
    """data: the folder of the rows. Weights are float32 on any device. Raises ConfigError, ModelError or DataError."""
    began = time.monotonic()
    with TemporaryDirectory(prefix="seedflood-real-") as home:
        problem = _problem(cell, NodeSettings(data=str(data), state=Path(home), device=device, dtype="float32"))
        course = _base_model(problem) if cell.method == "none" else _course(cell, problem)
    return Result(cell, commit(), time.monotonic() - began, tuple(course), None)


def _problem(cell: Cell, node: NodeSettings) -> Problem:
    run = RunSettings.of(
        model=cell.model,
        task=cell.task,
        max_length=exercise_of(cell.task).max_length,
        clients=cell.clients,
        steps=max(1, cell.steps),
        batch_size=cell.batch_size,
        seed=cell.seed,
    )
    edges = tuple(make_topology(cell.topology, cell.clients, seed=cell.seed))
    return Problem(run, node, Graph(cell.clients, edges), cell.local_steps, dict(cell.options))


def _base_model(problem: Problem) -> list[dict[str, Any]]:
    base = load_base(problem.run, problem.node)
    figures = evaluate(base.causal, load_rows(problem.run, problem.node, base)).rounded()
    return [{**figures, **Cost().facts()}]


def _course(cell: Cell, problem: Problem) -> list[dict[str, Any]]:
    method = METHODS[cell.method](problem)
    task = _task(method, problem)
    cost, points = Cost(), []
    for point in range(1, cell.points + 1):
        while cost.steps < cell.steps * point // cell.points:
            cost += method.advance()
        points.append({**evaluate(method.average(), task).rounded(), **cost.facts()})
    return points


def _task(method: Method, problem: Problem) -> Task:
    """Of any client, for the validation rows are the same for all."""
    if isinstance(method, Clients):
        return method.tasks[0]
    return load_rows(problem.run, problem.node, load_base(problem.run, problem.node))
