"""Does memory stay bounded? Real nodes for hours of wall clock, or simulated ones for a day of virtual time.

Both write what they see to a CSV file as they go, and end with least-squares slopes over the second half of it: the
first half is warm-up, when allocators, caches and pools find their size. A slope means little without its standard
error, so both are printed. Not part of `make bench`: it takes too long.

One thing grows by design, 8 bytes per coefficient and epoch: the replica keeps the coefficients of all epochs. It is
printed beside the slope (`coefficients`), so that a leak can be distinguished from it.
"""

import csv
import gc
import math
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.measure import Metric, make_metric
from benchmarks.processes import Cluster, NodeProcess, resident_bytes, ring
from seedflood.config import NodeSettings, RunSettings
from seedflood.training.seedflood.trainer import Trainer
from simulation.network import Weather
from simulation.seedflood.world import SeedfloodWorld
from simulation.work import Pace

MB = 1e6
NODES = 4
STEPS = 100_000_000
REFRESH_PERIOD = 200
SAMPLE_SECONDS = 10.0
RUN = {
    "name": "soak",
    "clients": NODES,
    "steps": STEPS,
    "window": "strict",
    "rank": 8,
    "refresh_period": REFRESH_PERIOD,
    "batch_size": 4,
    "learning_rate": 1e-6,
}
"""Never ends by itself, and hardly learns: what is measured is not what it becomes."""

VIRTUAL_SAMPLE_SECONDS = 600.0
EPOCHS_JUDGED = 3
"""What the simulation's own instruments remember."""
PACE = Pace(0.9, 1.1)
WEATHER = Weather(lose=0.001, break_per_second=1 / 600)
"""A link breaks every ten minutes, and a frame in a thousand is lost: repair and reconnects must not leak either."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A node at an instant. hours: of wall clock."""

    hours: float
    node: str
    step: int
    resident_mb: float
    journal_mb: float


@dataclass(frozen=True, slots=True)
class VirtualSample:
    """The process with all simulated nodes. Sizes are of the node that has most; holes: of all origins together."""

    hours: float
    wall_seconds: float
    step: int
    resident_mb: float
    bundles: int
    epochs: int
    holes: int


def run(hours: float, simulated_hours: float | None = None, folder: Path | None = None) -> dict[str, Metric]:
    """folder: where samples.csv, and of real nodes logs and state, stay; default: a temporary one."""
    home = folder or Path(tempfile.mkdtemp(prefix="seedflood-soak-"))
    home.mkdir(parents=True, exist_ok=True)
    metrics = _run_real(hours, home) if simulated_hours is None else _run_simulated(simulated_hours, home)
    if folder is None:
        shutil.rmtree(home)
    return metrics


def _run_real(hours: float, home: Path) -> dict[str, Metric]:
    """A ring of real nodes for so long."""
    node = {"progress_seconds": SAMPLE_SECONDS / 2, "threads": 1}
    with Cluster(home, NODES, ring(NODES), run=RUN, node=node, niceness=19) as cluster:
        for one in cluster.nodes:
            one.start()
        with _table(home / "samples.csv", Sample) as table:
            samples = list(_watch(cluster.nodes, hours, table))
    return _judge(samples)


def _watch(nodes: Sequence[NodeProcess], hours: float, table: "csv.DictWriter[str]") -> Iterator[Sample]:
    """Samples of all nodes from the first step on; each is written down at once. RuntimeError: a node has ended."""
    for node in nodes:
        node.wait_for("progress", 600.0)
    steps = dict.fromkeys(nodes, 0)
    began = time.monotonic()
    while (passed := time.monotonic() - began) < hours * 3600:
        for node in nodes:
            lines = node.new_lines()
            if not node.is_alive:
                raise RuntimeError(f"{node.name} has ended; its last words: {lines[-3:]}")
            steps[node] = max([steps[node], *(line["step"] for line in lines if line["event"] == "progress")])
            journal = sum(path.stat().st_size for path in node.state.glob("journal.sqlite*"))
            resident = resident_bytes(node.pid)
            sample = Sample(passed / 3600, node.name, steps[node], resident / MB, journal / MB)
            table.writerow(asdict(sample))
            yield sample
        time.sleep(SAMPLE_SECONDS)


def _judge(samples: Sequence[Sample]) -> dict[str, Metric]:
    last = samples[-1].hours
    late = [sample for sample in samples if sample.hours >= last / 2]
    by_node = [[one for one in late if one.node == node] for node in sorted({one.node for one in late})]
    resident = [fit([(one.hours, one.resident_mb) for one in ours]) for ours in by_node]
    journal = [fit([(one.hours, one.journal_mb) for one in ours]) for ours in by_node]
    steps = [fit([(one.hours, one.step) for one in ours]) for ours in by_node]
    return {
        "soak.real_slope_mb_per_hour": make_metric([slope for slope, _ in resident]),
        "soak.real_slope_error_mb_per_hour": make_metric([error for _, error in resident]),
        "soak.real_coefficients_mb_per_hour": make_metric(
            [slope / REFRESH_PERIOD * _epoch_bytes() / MB for slope, _ in steps]
        ),
        "soak.real_resident_mb": make_metric([ours[-1].resident_mb for ours in by_node]),
        "soak.real_journal_slope_mb_per_hour": make_metric([slope for slope, _ in journal]),
        "soak.real_steps_per_second": make_metric([slope / 3600 for slope, _ in steps]),
        "soak.real_hours": make_metric([last]),
    }


def _epoch_bytes() -> int:
    """What the coefficients of an epoch take in memory."""
    return Trainer(RunSettings.of(model="embedded", task="embedded", rank=8), NodeSettings()).replica.epoch_bytes


def _run_simulated(hours: float, home: Path) -> dict[str, Metric]:
    """The same ring under a virtual clock, one step a second, in this process."""
    world = SeedfloodWorld(
        NODES, ring(NODES), seed=1, steps=STEPS, refresh_period=REFRESH_PERIOD, pace=PACE, weather=WEATHER
    )
    world.start()
    with _table(home / "samples.csv", VirtualSample) as table:
        samples = list(_watch_simulated(world, hours, table))
    late = [sample for sample in samples if sample.hours >= hours / 2]
    slope, error = fit([(one.hours, one.resident_mb) for one in late])
    return {
        "soak.simulated_slope_mb_per_hour": make_metric([slope]),
        "soak.simulated_slope_error_mb_per_hour": make_metric([error]),
        "soak.simulated_resident_mb": make_metric([samples[-1].resident_mb]),
        "soak.simulated_journal_bundles": make_metric([float(one.bundles) for one in late]),
        "soak.simulated_journal_epochs": make_metric([float(samples[-1].epochs)]),
        "soak.simulated_frontier_holes": make_metric([float(one.holes) for one in late]),
        "soak.simulated_steps": make_metric([float(samples[-1].step)]),
        "soak.simulated_hours": make_metric([samples[-1].hours]),
    }


def _watch_simulated(world: SeedfloodWorld, hours: float, table: "csv.DictWriter[str]") -> Iterator[VirtualSample]:
    began = time.monotonic()
    while (virtual := world.clock.now) < hours * 3600:
        world.run_for(VIRTUAL_SAMPLE_SECONDS)
        _empty_instruments(world)
        gc.collect()
        nodes = [host.node for host in world.hosts]
        sample = VirtualSample(
            (virtual + VIRTUAL_SAMPLE_SECONDS) / 3600,
            time.monotonic() - began,
            max(node.step for node in nodes),
            resident_bytes() / MB,
            max(len(host.journal.bundles) for host in world.hosts),
            max(len(host.journal.closed) for host in world.hosts),
            max(sum(len(held.beyond) for held in node.frontier.held()) for node in nodes),
        )
        table.writerow(asdict(sample))
        yield sample


def _empty_instruments(world: SeedfloodWorld) -> None:
    """What only judges keep: everything that was ever sent, applied, noted. A real node has nothing like it."""
    step = min(host.node.step for host in world.hosts)
    before = max(0, step // REFRESH_PERIOD - EPOCHS_JUDGED) * REFRESH_PERIOD
    world.chronicle.forget(before)
    for host in world.hosts:
        host.ledger.forget(before)
        host.events.clear()
        del host.windows[:-1]


def fit(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Least squares: slope and its standard error. Neighbouring samples are not independent, so it is a lower bound."""
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    residuals = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points)
    return slope, math.sqrt(residuals / max(1, n - 2) / spread)


@contextmanager
def _table(path: Path, row: type[Any]) -> "Iterator[csv.DictWriter[str]]":
    """A CSV file with a column per field of the rows, readable while it grows."""
    with path.open("w", buffering=1, newline="") as file:
        table = csv.DictWriter(file, [field.name for field in fields(row)])
        table.writeheader()
        yield table
