"""Joining a run: how soon a newcomer is ready, what it pulls, what that costs its donors, also if a donor dies.

Three scenes, all of real processes. In the first nodes join a run that moves. In the others the run has ended and its
history is made without training (`history`), so that it can be long, and the model large.
"""

import signal
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from transformers import AutoTokenizer, OPTConfig, OPTForCausalLM
from transformers.utils.logging import disable_progress_bar

from benchmarks.history import History
from benchmarks.measure import Metric, make_metric
from benchmarks.processes import Cluster, Facts, NodeProcess, find, moment, ring
from seedflood import embedded
from seedflood.config import load_settings
from seedflood.training.models import load_model
from seedflood.training.seedflood.replica import Replica

ORIGINS = 8
JOIN_STEP = 500
JOINERS = 3
"""One after the other; each leaves before the next."""
BEFORE_SECONDS, AFTER_SECONDS = 10.0, 5.0
SETTLE_SECONDS = 3.0
WAIT_SECONDS_MAX = 600.0
LARGE_STEPS = 500
LARGE_PERIODS = {"bundles": 1000, "sums": 100}
"""An epoch that has not ended is pulled as bundles, one that is closed as their sum."""

LONG_STEPS = 5000
"""Long enough to kill a donor in the middle of its answer: 40,000 signatures to verify."""


def run() -> dict[str, Metric]:
    torch.set_num_threads(1)
    with TemporaryDirectory(prefix="seedflood-join-") as home:
        return _join_running(Path(home, "running")) | _join_large(Path(home, "large")) | _lose_donor(Path(home, "lost"))


def _join_running(home: Path) -> dict[str, Metric]:
    """Newcomers with an empty state folder, each linked with two neighbours of a ring of eight.

    All share the cores of one machine, so one that loads its model slows everyone down: what it costs its donors as
    donors is their processor time per step.
    """
    run = {"clients": ORIGINS, "steps": 1_000_000, "window": "bounded", "batch_size": 4}
    edges = [*ring(ORIGINS), *((ORIGINS + j, donor) for j in range(JOINERS) for donor in (2 * j, 2 * j + 1))]
    ready: list[float] = []
    pulled: list[float] = []
    before: list[float] = []
    after: list[float] = []
    ratios: list[float] = []
    cpu_ratios: list[float] = []
    with Cluster(home, ORIGINS + JOINERS, edges, run=run, node={"progress_seconds": 0}) as cluster:
        for node in cluster.nodes[:ORIGINS]:
            node.start()
        cluster.nodes[0].wait_for("progress", WAIT_SECONDS_MAX, step=JOIN_STEP)
        for j, joiner in enumerate(cluster.nodes[ORIGINS:]):
            donors = cluster.nodes[2 * j : 2 * j + 2]
            time.sleep(SETTLE_SECONDS)
            cpu = [[donor.cpu_seconds()] for donor in donors]
            time.sleep(BEFORE_SECONDS)
            began = time.time()
            for donor, seconds in zip(donors, cpu, strict=True):
                seconds.append(donor.cpu_seconds())
            joiner.start()
            lines = joiner.wait_for("ready", WAIT_SECONDS_MAX)
            linked = moment(find(lines, "link up"))
            ready.append(moment(lines[-1]) - linked)
            pulled.append(lines[-1]["pull_bytes"])
            time.sleep(max(0.0, linked + AFTER_SECONDS - time.time()))
            end = time.time()
            for donor, seconds in zip(donors, cpu, strict=True):
                seconds.append(donor.cpu_seconds())
                steps = [line for line in donor.new_lines() if line["event"] == "progress"]
                cpu_ratios.append(
                    (seconds[2] - seconds[1])
                    / _steps_between(steps, began, end)
                    / ((seconds[1] - seconds[0]) / _steps_between(steps, began - BEFORE_SECONDS, began))
                )
                slow = _step_seconds(steps, linked, linked + AFTER_SECONDS)
                calm = _step_seconds(steps, began - BEFORE_SECONDS, began)
                before += calm
                after += slow
                ratios.append(median(slow) / median(calm))
            joiner.stop()
    return {
        "join.ready_seconds": make_metric(ready, 5.0),
        "join.pull_bytes": make_metric(pulled),
        "join.donor_cpu_ratio": make_metric(cpu_ratios),
        "join.donor_step_ratio": make_metric(ratios),
        "join.donor_step_seconds_before": make_metric(before),
        "join.donor_step_seconds_after": make_metric(after),
    }


def _steps_between(progress: Sequence[Facts], begin: float, end: float) -> int:
    within = [int(line["step"]) for line in progress if begin <= moment(line) <= end]
    return within[-1] - within[0]


def _step_seconds(progress: Sequence[Facts], begin: float, end: float) -> list[float]:
    """Wall clock per step, from the lines between two moments."""
    within = [line for line in progress if begin <= moment(line) <= end]
    return [(moment(b) - moment(a)) / (b["step"] - a["step"]) for a, b in pairwise(within) if b["step"] > a["step"]]


def _join_large(home: Path) -> dict[str, Metric]:
    """A model of 125 M parameters: what a newcomer pulls does not depend on the size of the model.

    Sums are kept here even though these few bundles take less room, when a node would keep the bundles.
    """
    model = _make_model(home / "model")
    base = load_model(str(model))
    model_bytes = 4 * base.parameters_count
    ready: list[float] = []
    shares: list[float] = []
    for form, period in LARGE_PERIODS.items():
        run = {"model": str(model), "steps": LARGE_STEPS, "refresh_period": period, "clients": ORIGINS}
        cluster = Cluster(home / form, 2, [(1, 0)], run=run, node={"then": "serve"})
        history = _history(cluster, base.digest, donors=1)
        history.write(history.sums(Replica(base, history.run)) if form == "sums" else ())
        with cluster:
            donor, joiner = cluster.nodes
            _start_donors([donor])
            joiner.start()
            lines = joiner.wait_for("ready", WAIT_SECONDS_MAX)
        ready.append(moment(lines[-1]) - moment(find(lines, "link up")))
        shares.append(lines[-1]["pull_bytes"] / model_bytes)
    bundles, sums = shares
    return {
        "join.pull_to_model": make_metric([bundles], 0.01),
        "join.sums_to_model": make_metric([sums], 0.01),
        "join.large_ready_seconds": make_metric(ready),
    }


def _lose_donor(home: Path) -> dict[str, Metric]:
    """The donor is killed while it answers; the other one goes on. All in one epoch that has not ended: bundles."""
    run = {"steps": LONG_STEPS, "refresh_period": 2 * LONG_STEPS, "clients": ORIGINS}
    cluster = Cluster(home, 3, [(2, 0), (2, 1)], run=run, node={"then": "serve"})
    _history(cluster, load_model(str(embedded.MODEL_FOLDER)).digest, donors=2).write()
    with cluster:
        *donors, joiner = cluster.nodes
        _start_donors(donors)
        joiner.start()
        lines = joiner.wait_for_any(("catching up", "ready"), WAIT_SECONDS_MAX)
        if lines[-1]["event"] == "ready":
            raise RuntimeError("the newcomer was ready before its donor could be killed: make LONG_STEPS greater")
        killed = time.time()
        next(donor for donor in donors if donor.name == lines[-1]["donor"]).stop(signal.SIGKILL)
        lines += joiner.wait_for("ready", WAIT_SECONDS_MAX)
    return {
        "join.lost_donor_ready_seconds": make_metric([moment(lines[-1]) - moment(find(lines, "link up"))]),
        "join.lost_donor_seconds_after_kill": make_metric([moment(lines[-1]) - killed]),
    }


def _start_donors(donors: Sequence[NodeProcess]) -> None:
    for donor in donors:
        donor.start()
    for donor in donors:
        donor.wait_for("finished", WAIT_SECONDS_MAX)


def _history(cluster: Cluster, base_digest: bytes, donors: int) -> History:
    """Of the run that the first nodes of the cluster shall have behind them."""
    run = load_settings(cluster.nodes[0].folder / "peers.toml").run
    return History(run, base_digest, [node.state for node in cluster.nodes[:donors]])


def _make_model(folder: Path) -> Path:
    """OPT-125M's shapes with random weights, and a tokenizer that does."""
    disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.manual_seed(0)
    OPTForCausalLM(OPTConfig()).save_pretrained(folder)
    AutoTokenizer.from_pretrained(embedded.MODEL_FOLDER).save_pretrained(folder)
    return folder
