"""A cell of SeedFlood: real daemons over loopback, two on a link, watched through their logs.

The first one evaluates, and the other waits for it. So the seconds of a course are processor time of the other, from
when it has loaded the model on. Bytes are all that it has sent on its link.

A run has one step more than is measured, so that both are still there when the last evaluation is read. The schedule
does not know the end.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.processes import Cluster, Facts
from benchmarks.real.plan import exercise_of
from seedflood.cluster.topology import make_topology
from study.cell import Cell, Result
from study.measure import commit

ESTIMATES = {"coefficients": "gradient", "seedflood": "two-sided"}
"""By the study's name of the method."""

HOSTS_MAX = 2

WAIT_SECONDS_MAX = 3600.0


def can_measure(cell: Cell) -> bool:
    """Is it of SeedFlood, and does the machine bear a daemon for each of its hosts?"""
    return cell.method in ESTIMATES and cell.clients <= HOSTS_MAX


def measure(cell: Cell, data: Path, device: str) -> Result:
    """data: the folder of the rows. Weights are float32 on any device. Raises RuntimeError if a daemon ends."""
    began = time.monotonic()
    every = cell.steps // cell.points
    node = {"data": str(data), "device": device, "dtype": "float32", "progress_seconds": 0.0}
    evaluating = {"evaluate_every": every, "evaluate_examples": exercise_of(cell.task).rows.test}
    with TemporaryDirectory(prefix="seedflood-real-") as home:
        edges = make_topology(cell.topology, cell.clients, seed=cell.seed)
        cluster = Cluster(Path(home), cell.clients, edges, run=run_of(cell), node=[node | evaluating, node])
        with cluster:
            points = _watch(cluster, range(every, cell.steps + 1, every))
    return Result(cell, commit(), time.monotonic() - began, tuple(points), None)


def run_of(cell: Cell) -> dict[str, Any]:
    """Keys of [run] and its tables, by their bare names."""
    return {
        "model": cell.model,
        "task": cell.task,
        "max_length": exercise_of(cell.task).max_length,
        "clients": cell.clients,
        "steps": cell.steps + 1,
        "batch_size": cell.batch_size,
        "seed": cell.seed,
        "window": "strict",  # the other waits, however long the first one evaluates
        "estimate": ESTIMATES[cell.method],
        **dict(cell.options),
    }


def _watch(cluster: Cluster, steps: range) -> list[Facts]:
    evaluating, other = cluster.nodes
    for node in cluster.nodes:
        node.start()
    other.wait_for("started", WAIT_SECONDS_MAX)
    loaded_seconds = other.cpu_seconds()
    points = []
    for step in steps:
        sent_bytes = other.wait_for("progress", WAIT_SECONDS_MAX, step=step)[-1]["sent_bytes"]
        seconds = other.cpu_seconds() - loaded_seconds
        line = evaluating.wait_for("evaluated", WAIT_SECONDS_MAX, step=step)[-1]
        figures: Facts = {name: line[name] for name in ("loss", "accuracy", "perplexity") if name in line}
        points.append(figures | {"steps": step, "edge_bytes": sent_bytes, "measure_seconds": round(seconds, 3)})
    return points
