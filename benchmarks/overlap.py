"""How much of its time a node computes when every link takes 100 ms one way, and what that is worth in seconds.

Real daemons on rings of 4 and 8, all links through a delaying proxy (`delay`). Utilisation is seconds of measuring over
seconds of wall clock, of all nodes, between two lines of their logs. With `delay = 0` a node waits for the farthest
one in every round. `delay = D` lets it measure on while the windows of the last D rounds are under way; the least
sufficient D is the first, from what the flight and the work of a round call for on, with which utilisation is enough.

Seconds to a loss: steps until a rehearsal of the very same settings has it on the validation rows (strict windows are
exact, so the network changes nothing of what is learned), times the seconds per step that the daemons of the ring took.
Gradients reach the loss of two-sided estimates within their first round or two; theirs is the lower one that takes them
some twenty steps.
"""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.course import Exercise, first_below, follow
from benchmarks.delay import DelayedLinks
from benchmarks.measure import Metric, make_metric, shared_folder
from benchmarks.processes import Cluster, NodeProcess, moment, ring
from seedflood.cluster.ports import reserve_ports

LINK_SECONDS = 0.1
RINGS = (4, 8)
ROUNDS, WARM_UP_ROUNDS = 40, 10
UTILISATION = 0.9
DELAY_MAX = 64
WAIT_SECONDS_MAX = 900.0
SEEDS = (1, 2, 3)
Run = Mapping[str, Any]

LOSSES: Mapping[str, float] = {"two-sided": 0.63, "gradient": 0.58}
"""By estimate."""

BEFORE: Mapping[str, Run] = {"two-sided": {"steps": 800}, "gradient": {"estimate": "gradient", "steps": 96}}
"""To reach the loss, with `delay = 0`: by estimate."""

RECOMMENDED: Mapping[str, Run] = {
    "two-sided": {"steps": 800, "delay": 1, "local_steps": 4},
    "gradient": {"estimate": "gradient", "steps": 96, "local_steps": 4, "learning_rate": 0.023},
}
"""What this project recommends for 42 ms of work a step and 200 ms across the ring: rounds that fill the flight.
Gradients by Adam do not bear the delay: with `delay = 1` and rounds of four they do not learn at all, or slowly."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Of a ring: means over its nodes. work_seconds, step_seconds: per step, of measuring and of wall clock."""

    work_seconds: float
    step_seconds: float

    @property
    def utilisation(self) -> float:
        return self.work_seconds / self.step_seconds


def run() -> dict[str, Metric]:
    shared = shared_folder()
    metrics: dict[str, Metric] = {}
    best = []
    for nodes in RINGS:
        waiting = pace(shared, nodes, {})
        delay, overlapped = least_delay(shared, nodes, waiting)
        best.append(overlapped.utilisation)
        metrics[f"overlap.ring_{nodes}_waiting"] = make_metric([waiting.utilisation])
        metrics[f"overlap.ring_{nodes}_delay"] = make_metric([delay])
    metrics["overlap.utilisation"] = make_metric([min(best)], UTILISATION, more_is_better=True)
    ratios: list[float] = []
    for name in BEFORE:
        ratio = _seconds_ratio(shared, name)
        metrics[f"overlap.{name.replace('-', '_')}_seconds_ratio"] = make_metric(ratio, 3, more_is_better=True)
        ratios += ratio
    metrics["overlap.seconds_ratio"] = make_metric([min(ratios)], 3, more_is_better=True)
    return metrics


def least_delay(shared: Path, nodes: int, waiting: Pace) -> tuple[int, Pace]:
    """The least delay in rounds of one step with which the nodes hardly wait, and what they do then."""
    flight_seconds = nodes // 2 * LINK_SECONDS
    delay = max(1, math.floor(flight_seconds / waiting.work_seconds))
    while delay <= DELAY_MAX:
        overlapped = pace(shared, nodes, {"delay": delay})
        if overlapped.utilisation >= UTILISATION:
            return delay, overlapped
        delay += 1
    raise RuntimeError(f"on a ring of {nodes} no delay up to {DELAY_MAX} rounds was enough")


def pace(shared: Path, nodes: int, settings: Run, rounds: int = ROUNDS) -> Pace:
    """Of real daemons, over a run of so many rounds."""
    local_steps = settings.get("local_steps", 1)
    steps = (rounds + WARM_UP_ROUNDS) * local_steps
    run = {**_task(shared), **settings, "clients": nodes, "steps": steps, "refresh_period": steps}
    node = {"data": str(shared / "data" / "sst2"), "progress_seconds": 0.0}
    edges = ring(nodes)
    ports = reserve_ports(len(edges))
    with TemporaryDirectory(prefix="seedflood-overlap-") as home:
        cluster = Cluster(Path(home), nodes, edges, run=run, node=node, through=dict(zip(edges, ports, strict=True)))
        targets = {port: cluster.ports[b] for port, (_, b) in zip(ports, edges, strict=True)}
        with DelayedLinks(targets, LINK_SECONDS), cluster:
            for one in cluster.nodes:
                one.start()
            paces = [_pace_of(one, local_steps) for one in cluster.nodes]
    work, wall = (sum(parts) / nodes for parts in zip(*paces, strict=True))
    found = Pace(work, wall)
    _tell(f"ring of {nodes}, {dict(settings)}", found)
    return found


def _pace_of(node: NodeProcess, local_steps: int) -> tuple[float, float]:
    """Seconds of measuring and of wall clock per step, after the first rounds."""
    lines = node.wait_for("finished", WAIT_SECONDS_MAX)
    rounds = [line for line in lines if line["event"] == "progress"][WARM_UP_ROUNDS:]
    between = rounds[1:]
    steps = between[-1]["step"] - rounds[0]["step"]
    wall = (moment(between[-1]) - moment(rounds[0])) / steps
    return sum(line["step_seconds"] for line in between) / len(between), wall


def _seconds_ratio(shared: Path, name: str) -> list[float]:
    """Per run seed, on the ring of four. Both are looked at after so many steps as are a round of the second."""
    both = BEFORE[name], RECOMMENDED[name]
    loss, every = LOSSES[name], both[1]["local_steps"]
    paces = [pace(shared, RINGS[0], {k: v for k, v in one.items() if k != "steps"}) for one in both]
    exercise = Exercise("sst2", {**_task(shared), "clients": RINGS[0]}, shared / "data" / "sst2")
    ratios = []
    for seed in SEEDS:
        steps = []
        for settings in both:
            course = follow(exercise, seed, every=every, until_loss=loss, **settings)
            reached = first_below(course, loss)
            steps.append(reached.step if reached is not None else settings["steps"])
            if reached is None:
                print(f"{dict(settings)}, seed {seed}: loss {loss} was not reached", file=sys.stderr, flush=True)
        ratios.append(steps[0] * paces[0].step_seconds / (steps[1] * paces[1].step_seconds))
        print(f"{name}, seed {seed}: {steps[0]} and {steps[1]} steps to {loss}", file=sys.stderr, flush=True)
    return ratios


def _task(shared: Path) -> dict[str, Any]:
    return {"model": str(shared / "models" / "tiny-opt"), "task": "sst2", "train_examples": 1024}


def _tell(name: str, found: Pace) -> None:
    print(
        f"{name}: {found.work_seconds * 1000:.0f} ms of work in {found.step_seconds * 1000:.0f} ms a step, "
        f"utilisation {found.utilisation:.2f}",
        file=sys.stderr,
        flush=True,
    )
