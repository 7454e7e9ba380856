"""How well real daemons pre-train: GASLoC on a ring of four processes against DiLoCo and D-Adam, which are other
settings of the same daemons; for DiLoCo every host is linked with all others. All see the same number of tokens.

A small OPT from scratch on film reviews, each host on reviews of its own. Perplexities are on held-out reviews, of the
last evaluation of every host, in the mean over the hosts.

*Killed*: GASLoC again, and one host is killed (SIGKILL) in the middle and started again. *Slow*: all links carry
`LINK_BYTES_PER_SECOND`, and one of them a tenth of it; what counts is the time until the hosts have a perplexity that
both algorithms reach, in the mean over the hosts, from the moment when the first of them took part.
"""

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.delay import DelayedLinks
from benchmarks.measure import Metric, make_metric, ratios, shared_folder
from benchmarks.processes import Cluster, Facts, NodeProcess, moment, ring
from seedflood.cluster.ports import reserve_ports
from seedflood.cluster.topology import make_topology
from seedflood.training.sources import read_data

SEEDS = (1, 2, 3)
HOSTS = 4
STEPS, LOCAL_STEPS = 200, 20
TRAIN_REVIEWS, VALIDATION_REVIEWS = 3000, 50
EVALUATE_ROWS = 100
KILL_AT_STEP = 100
LINK_BYTES_PER_SECOND, SLOW_FACTOR = 5e6, 0.1
SLOW_EDGE = 0
"""Its place among the links."""

WAIT_SECONDS_MAX = 600.0

RUN: Mapping[str, Any] = {
    "mode": "gasloc",
    "task": "lm",
    "max_length": 64,
    "batch_size": 8,
    "steps": STEPS,
    "local_steps": LOCAL_STEPS,
    "initial": "random",
    "learning_rate": 2e-3,
}
SINGLE: Mapping[str, Any] = {"local_steps": 1, "matching": "full"}
ALGORITHMS: Mapping[str, Mapping[str, Any]] = {
    "gasloc": {"matching": "two"},
    "diloco": {"matching": "full", "gamma": 0.5},  # as in `pretrain`, the best with run seed 1
    "dadam": {**SINGLE},
}
RATIOS = (("gasloc", "diloco", 1.03), ("gasloc", "dadam", 1.0), ("killed", "gasloc", None))
"""Of perplexities, seed by seed, and what they should be at most."""


@dataclass(frozen=True, slots=True)
class Course:
    """points: of each host, its evaluations as (seconds since the first host took part, perplexity). results: what each
    host has printed in the end."""

    points: Sequence[Sequence[tuple[float, float]]]
    results: Sequence[Facts]

    @property
    def perplexity(self) -> float:
        return mean(points[-1][1] for points in self.points)

    @property
    def seconds(self) -> float:
        return max(points[-1][0] for points in self.points)

    def seconds_to(self, perplexity: float) -> float:
        """The mean over the hosts."""
        return mean(next(at for at, found in points if found <= perplexity) for points in self.points)


def run(seeds: Sequence[int] = SEEDS) -> dict[str, Metric]:
    found = [_seed(seed) for seed in seeds]
    metrics = {
        f"pretrain.swarm_{name}_perplexity": make_metric([courses[name].perplexity for courses in found])
        for name in (*ALGORITHMS, "killed")
    }
    for name, other, target in RATIOS:
        values = ratios(*([courses[one].perplexity for courses in found] for one in (name, other)))
        metrics[f"pretrain.swarm_{name}_to_{other}"] = make_metric(values, target)
    slow = [_slow_ratio(courses["slow_gasloc"], courses["slow_diloco"]) for courses in found]
    metrics["pretrain.swarm_slow_link_seconds_ratio"] = make_metric(slow, 1.0, more_is_better=True)
    return metrics


def _seed(seed: int) -> dict[str, Course]:
    courses = {name: follow(name, seed) for name in ALGORITHMS}
    courses["killed"] = follow("gasloc", seed, is_killed=True)
    courses |= {f"slow_{name}": follow(name, seed, is_slow=True) for name in ("gasloc", "diloco")}
    return courses


def _slow_ratio(gasloc: Course, diloco: Course) -> float:
    """Seconds of DiLoCo to those of GASLoC."""
    perplexity = max(points[-1][1] for course in (gasloc, diloco) for points in course.points)
    both = [course.seconds_to(perplexity) for course in (gasloc, diloco)]
    _tell(f"perplexity {perplexity:.1f} with a slow link: GASLoC {both[0]:.1f} s, DiLoCo {both[1]:.1f} s")
    return both[1] / both[0]


def follow(name: str, seed: int, *, is_killed: bool = False, is_slow: bool = False) -> Course:
    """A run of real daemons."""
    shared = shared_folder()
    settings = {**RUN, **ALGORITHMS[name], "model": str(shared / "models" / "tiny-opt"), "clients": HOSTS, "seed": seed}
    with TemporaryDirectory(prefix="seedflood-swarm-") as home, ExitStack() as undo:
        texts = _write_texts(shared, Path(home) / "texts")
        node = {
            "data": str(texts),
            "evaluate_every": LOCAL_STEPS,
            "evaluate_examples": EVALUATE_ROWS,
            "progress_seconds": 0.0,
        }
        edges = make_topology("complete", HOSTS) if name == "diloco" else ring(HOSTS)
        ports = reserve_ports(len(edges)) if is_slow else []
        through = dict(zip(edges, ports, strict=True)) if is_slow else None
        cluster = Cluster(Path(home), HOSTS, edges, run=settings, node=node, through=through)
        if is_slow:
            for place, (port, (_, b)) in enumerate(zip(ports, edges, strict=True)):
                rate = LINK_BYTES_PER_SECOND * (SLOW_FACTOR if place == SLOW_EDGE else 1.0)
                undo.enter_context(DelayedLinks({port: cluster.ports[b]}, 0.0, rate))
        with cluster:
            course = _watch(cluster, is_killed=is_killed)
    what = f"{name}{', one host killed' if is_killed else ''}{', one slow link' if is_slow else ''}, seed {seed}"
    sums = {key: sum(one[key] for one in course.results) for key in COUNTED}
    _tell(
        f"{what}: perplexity {course.perplexity:.1f} "
        f"({', '.join(f'{points[-1][1]:.1f}' for points in course.points)}) after {course.seconds:.0f} s, "
        f"{sums['parameter_bytes_sent'] / 1e6 / HOSTS:.0f} MB sent by a host, {sums['exchanges'] // 2} pairs mixed, "
        f"{sums['exchanges_skipped']} skipped by an end"
    )
    return course


COUNTED = ("parameter_bytes_sent", "exchanges", "exchanges_skipped")


def _watch(cluster: Cluster, *, is_killed: bool) -> Course:
    lines: list[list[Facts]] = [[] for _ in cluster.nodes]
    for node in cluster.nodes:
        node.start()
    if is_killed:
        victim = cluster.nodes[1]
        lines[1] += victim.wait_for("progress", WAIT_SECONDS_MAX, step=KILL_AT_STEP)
        victim.stop(signal.SIGKILL)
        lines[0] += cluster.nodes[0].wait_for("progress", WAIT_SECONDS_MAX, step=KILL_AT_STEP + 2 * LOCAL_STEPS)
        victim.start()
    for seen, node in zip(lines, cluster.nodes, strict=True):
        seen += node.wait_for("finished", WAIT_SECONDS_MAX)
    began = min(moment(line) for seen in lines for line in seen if line["event"] == "takes part")
    points = [
        [(moment(line) - began, line["perplexity"]) for line in seen if line["event"] == "evaluated" and line["step"]]
        for seen in lines
    ]
    return Course(points, [_result(node) for node in cluster.nodes])


def _result(node: NodeProcess) -> Facts:
    result: Facts = json.loads((node.state / "result.json").read_text())["result"]
    return result


def _write_texts(shared: Path, folder: Path) -> Path:
    """The first reviews of each split."""
    folder.mkdir()
    splits = read_data(str(shared / "data" / "imdb"))
    train, validation = splits.train.rows, splits.validation.rows
    for name, rows in (("train", train[:TRAIN_REVIEWS]), ("validation", validation[:VALIDATION_REVIEWS])):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row.columns)}\n" for row in rows))
    return folder


def _tell(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
