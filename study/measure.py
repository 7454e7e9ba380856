"""Runs one cell: trains, and measures the mean of the clients' models on the way and at the end."""

import math
import subprocess
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from seedflood import VERSION
from seedflood.cluster.topology import make_topology
from seedflood.config import NodeSettings, RunSettings
from seedflood.training.causal import CausalModel
from seedflood.training.evaluation import Evaluation, evaluate
from seedflood.training.loading import load_base, load_rows
from study.cell import Cell, Result
from study.methods import METHODS
from study.methods.clients import use_one_thread
from study.methods.method import Cost, Graph, Method, Problem
from study.rows import Split
from study.skew import deal

SAMPLE_CLIENTS = 2


def measure(cell: Cell, rows: Split) -> Result:
    """Raises ConfigError, ModelError or DataError."""
    begun = time.process_time()
    with TemporaryDirectory(prefix="seedflood-study-") as home:
        problem = problem_of(cell, rows, Path(home))
        method = METHODS[cell.method](problem)
        task = load_rows(problem.run, problem.node, load_base(problem.run, problem.node))
        cost, course = Cost(), [_point(method, Cost(), evaluate(method.average(), task))]
        for point in range(1, cell.points + 1):
            while cost.steps < cell.steps * point // cell.points:
                cost += method.advance()
            course.append(_point(method, cost, evaluate(method.average(), task)))
            if course[-1]["loss"] is None:
                break  # it has diverged
        test = _test(method.average(), problem, rows) if cell.is_test else None
    return Result(cell, commit(), time.process_time() - begun, tuple(course), test)


def sample(cell: Cell, rows: Split) -> float:
    """About how many seconds the cell would take on one core, by a round of few clients and an evaluation. Raises as
    `measure` does."""
    use_one_thread()
    with TemporaryDirectory(prefix="seedflood-study-") as home:
        begun = time.process_time()
        problem = problem_of(replace(cell, clients=min(cell.clients, SAMPLE_CLIENTS)), rows, Path(home))
        method = METHODS[cell.method](problem)
        task = load_rows(problem.run, problem.node, load_base(problem.run, problem.node))
        method.advance()  # the first one allocates
        loaded = time.process_time()
        steps = method.advance().steps
        trained = time.process_time()
        evaluate(method.average(), task)
        evaluated = time.process_time()
    of_step = (trained - loaded) / (steps * problem.graph.clients)
    return loaded - begun + cell.work * of_step + (cell.points + 1) * (evaluated - trained)


def problem_of(cell: Cell, rows: Split, home: Path) -> Problem:
    run = RunSettings.of(
        model=cell.model,
        task=cell.task,
        seed=cell.seed,
        clients=cell.clients,
        steps=cell.steps,
        batch_size=cell.batch_size,
    )
    edges = tuple(make_topology(cell.topology, cell.clients, seed=cell.seed))
    node = NodeSettings(data=str(rows.tuning), state=home, device="cpu")
    graph, options = Graph(cell.clients, edges), dict(cell.options)
    folders = (
        () if cell.skew is None else deal(run.objective, rows.tuning, cell.clients, cell.seed, cell.skew, home / "rows")
    )
    return Problem(run, node, graph, cell.local_steps, options, cell.initial, folders)


@cache
def commit() -> str:
    """Of the source tree that this runs from; else the version of the package."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return VERSION
    return ran.stdout.strip() or VERSION


def _test(model: CausalModel, problem: Problem, rows: Split) -> dict[str, float | None]:
    node = problem.node.model_copy(update={"data": str(rows.final)})
    return evaluate(model, load_rows(problem.run, node, load_base(problem.run, node))).rounded()


def _point(method: Method, cost: Cost, found: Evaluation) -> dict[str, Any]:
    loss, apart = (value if math.isfinite(value) else None for value in (found.loss, method.consensus_error()))
    return {**found.rounded(), "loss": loss, "consensus_error": apart, **cost.facts()}
