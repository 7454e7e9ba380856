"""Whole simulated runs: chaos, healing, judgement, in one call; and many seeds over all cores.

Chaos is judged for safety: what may never happen, whatever goes wrong. Then everything heals, and the run is judged for
liveness: it must come to its end within a bound of virtual time, and everybody must hold everything.
"""

import random
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from typing import Any

from rich.console import Console
from rich.table import Table

from seedflood.cluster.topology import make_topology
from seedflood.errors import UsageError
from seedflood.protocol.seedflood.watch import MEND_SECONDS_MAX
from seedflood.protocol.seedflood.window import WindowRule
from seedflood.protocol.swarm.rules import Patience
from seedflood.simulation.climate import draw_climate
from seedflood.simulation.seedflood.bounds import find_excess
from seedflood.simulation.seedflood.checks import (
    find_mistakes,
    find_refusals,
    find_silence,
    find_stuck,
    find_violations,
    has_equal_digests,
    has_equal_frontiers,
    has_mended,
)
from seedflood.simulation.seedflood.faults import Chaos
from seedflood.simulation.seedflood.liars import choose_liars, let_lie
from seedflood.simulation.seedflood.optimisers import OPTIMIZERS, OptimizerName
from seedflood.simulation.seedflood.profiles import PROFILES
from seedflood.simulation.seedflood.telling import TELLS, Tell, make_telling
from seedflood.simulation.seedflood.world import World

PATIENCE = Patience(start_seconds=5.0)
CHAOS_SHARE = 0.7
"""Chaos ends when somebody has done this share of the steps, or time is up."""
CHAOS_SECONDS_MAX = 60.0
HEALING_SECONDS_MAX = 600.0
STALL_SECONDS_MAX = 60.0
"""So long a strict run is watched that liars may keep from its end."""
QUIET_SECONDS = 20.0
"""Liars have gone, and the honest tell each other what they lack."""
MENDING_SECONDS_MAX = 3 * MEND_SECONDS_MAX
"""So long they may take until all have made their replicas again from what they hold then: who was told two things all
the time does that once a minute. Then they are compared."""
STRIDE_SECONDS = 0.5
SHOWN_LINES_MAX = 10
DELAYS = (0, 0, 1, 1, 2, 3)
"""Of a plan that names none."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is simulated. The same plan gives exactly the same run, on any machine. Raises UsageError.

    refresh_period, tell, delay, optimizer: None to have them drawn from the seed.
    """

    clients: int = 16
    topology: str = "ring"
    seed: int = 1
    steps: int = 20
    window: WindowRule = "strict"
    profile: str = "all"
    local_steps: int = 1
    refresh_period: int | None = None
    tell: Tell | None = None
    delay: int | None = None
    optimizer: OptimizerName | None = None

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise UsageError(f'unknown fault profile "{self.profile}"; choose one of {", ".join(PROFILES)}.')
        if self.window not in ("strict", "bounded", "none"):
            raise UsageError(f'unknown window rule "{self.window}"; choose one of strict, bounded, none.')
        if self.steps < 1 or self.steps % self.local_steps or (self.refresh_period or 0) % self.local_steps:
            raise UsageError("--steps must be 1 or more, and a multiple of the local steps, as the refresh period is.")
        if self.optimizer not in (None, "sgd") and self.window != "strict":
            raise UsageError(
                f'optimizer "{self.optimizer}" goes by steps, which must be complete: choose --window strict.'
            )

    def drawn(self) -> "Plan":
        """With nothing left open: runs that differ in their seed also differ in what they tell and how far ahead, and
        in what makes coefficients of it."""
        rng = random.Random(f"plan {self.seed}")
        tell, delay = rng.choice(TELLS), rng.choice(DELAYS)
        optimizer = rng.choice(OPTIMIZERS) if self.window == "strict" else "sgd"
        return replace(
            self,
            tell=tell if self.tell is None else self.tell,
            delay=delay if self.delay is None else self.delay,
            optimizer=optimizer if self.optimizer is None else self.optimizer,
        )


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a plan. violations: broken promises; stuck: who had not finished when time was up."""

    plan: Plan
    violations: list[str]
    stuck: list[str]
    frontiers_equal: bool
    digests_equal: bool
    digest: str
    virtual_seconds: float
    wall_seconds: float
    faults: dict[str, int]
    climate: str = "usual"
    liars: int = 0

    @property
    def healed(self) -> bool:
        return not self.stuck

    @property
    def is_good(self) -> bool:
        """In strict windows a liar may keep the honest waiting: nobody goes on without it there."""
        may_stall = self.liars > 0 and self.plan.window == "strict"
        return (self.healed or may_stall) and not self.violations

    def facts(self) -> dict[str, Any]:
        """For machines: plain values."""
        facts = asdict(self)
        plan = facts.pop("plan")
        return {**plan, "healed": self.healed, **facts}


def simulate(plan: Plan) -> Result:
    """Runs the plan to its end, or until virtual time is up."""
    began = time.monotonic()
    profile = PROFILES[plan.profile]
    edges = make_topology(plan.topology, plan.clients, seed=plan.seed)
    draws = random.Random(f"world {plan.seed}")
    climate = draw_climate(profile.climates, profile.weather, plan.clients, draws)
    plan = replace(plan, refresh_period=plan.refresh_period or climate.epoch_rounds * plan.local_steps)
    plan = plan.drawn()
    assert plan.refresh_period is not None
    assert plan.tell is not None
    assert plan.delay is not None
    assert plan.optimizer is not None
    world = World(
        plan.clients,
        edges,
        seed=plan.seed,
        steps=plan.steps,
        window=plan.window,
        local_steps=plan.local_steps,
        refresh_period=plan.refresh_period,
        telling=make_telling(plan.tell, random.Random(f"telling {plan.seed}")),
        delay=plan.delay,
        optimizer=plan.optimizer,
        weather=climate.weather,
        pace=climate.paces,
        patience=PATIENCE,
    )
    chaos = Chaos(world, profile)
    chaos.begin()
    chosen = choose_liars(plan.clients, edges, profile.liars, draws)
    liars = let_lie(world, chosen, chaos.faults) if chosen else []
    _watch(world)
    _rage(world, CHAOS_SHARE * plan.steps)
    mistakes = find_mistakes(world.honest)
    chaos.end()
    world.run(STALL_SECONDS_MAX if liars and plan.window == "strict" else HEALING_SECONDS_MAX)
    stuck = find_stuck(world.honest)
    if liars:
        for liar in liars:
            liar.end()
        world.run_for(QUIET_SECONDS)
        world.clock.run(lambda: has_mended(world.honest), MENDING_SECONDS_MAX)
        chaos.faults["culprits"] += len(world.chronicle.two_tongued)
    mistakes = mistakes or find_refusals(world.honest, world.network.refusals)
    return Result(
        plan=plan,
        violations=mistakes or (find_mistakes(world.honest) if stuck else find_violations(world.honest)),
        stuck=stuck,
        frontiers_equal=has_equal_frontiers(world.honest),
        digests_equal=has_equal_digests(world.honest),
        digest=world.honest[0].ledger.digest().hex()[:16],
        virtual_seconds=round(world.clock.now, 3),
        wall_seconds=round(time.monotonic() - began, 3),
        faults={kind: count for kind, count in sorted(chaos.faults.items()) if count},
        climate=climate.name,
        liars=len(liars),
    )


def _watch(world: World) -> None:
    """From now on, again and again: is what nodes keep as little as is promised, and can all say why they wait?"""
    for host in world.hosts:
        if host.is_up and not host.is_paused:
            found = [*find_excess(host.driver), *filter(None, [find_silence(host)])]
            host.mistakes += [mistake for mistake in found if mistake not in host.mistakes]
    world.clock.after(STRIDE_SECONDS, _watch, world)


def _rage(world: World, steps: float) -> None:
    end = world.clock.now + CHAOS_SECONDS_MAX
    while world.clock.now < end and not any(host.is_up and host.node.step >= steps for host in world.hosts):
        world.run_for(STRIDE_SECONDS)


def sweep(plan: Plan, seeds: Iterable[int], processes: int | None = None) -> Iterator[Result]:
    """The plan under each seed, over so many processes (default: one per core); results as they come."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        futures: list[Future[Result]] = [pool.submit(simulate, replace(plan, seed=seed)) for seed in seeds]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            for future in futures:
                future.cancel()


def parse_seeds(text: str) -> range:
    """ "1..200": both ends belong to it; "7" is one seed. Raises UsageError."""
    first, _, last = text.partition("..")
    try:
        seeds = range(int(first), int(last or first) + 1)
    except ValueError:
        seeds = range(0)
    if not seeds:
        raise UsageError(f'"{text}" names no seeds; say for example --seeds 1..200.')
    return seeds


def show_result(result: Result, console: Console) -> None:
    """One run, for people."""
    plan = result.plan
    hosts = f"{plan.clients} hosts, {plan.topology}, {plan.window}, delay {plan.delay}"
    what = f"{hosts}, {plan.tell}, {plan.optimizer}, seed {plan.seed}"
    table = Table(title=what, title_justify="left")
    table.add_column("what")
    table.add_column("result", justify="right")
    table.add_row("every update applied exactly once, nothing lost", _verdict(not result.violations))
    table.add_row("healed", _verdict(result.healed))
    table.add_row("frontiers equal", _verdict(result.frontiers_equal))
    table.add_row("digests equal", f"{_verdict(result.digests_equal)} {result.digest}")
    table.add_row("climate", plan_of(result))
    if result.liars:
        table.add_row("liars", str(result.liars))
    table.add_row("virtual seconds", f"{result.virtual_seconds:.1f}")
    for kind, count in result.faults.items():
        table.add_row(f"fault: {kind.replace('_', ' ')}", str(count))
    console.print(table)
    _show_complaints(result, console)


def show_sweep(results: Iterable[Result], console: Console, *, count: int) -> list[Result]:
    """Many runs, for people: bad seeds as they come. Returns those."""
    bad = []
    done = 0
    for done, result in enumerate(results, start=1):
        if not result.is_good:
            bad.append(result)
            console.print(f"[red]seed {result.plan.seed} is bad[/red]")
            _show_complaints(result, console)
        elif done % 10 == 0:
            console.print(f"{done} of {count} seeds, {len(bad)} bad")
    console.print(f"{done} of {count} seeds done, {len(bad)} bad: {sorted(result.plan.seed for result in bad)}")
    return bad


def plan_of(result: Result) -> str:
    """What was drawn from the seed."""
    return f"{result.climate}, epochs of {result.plan.refresh_period} steps"


def _show_complaints(result: Result, console: Console) -> None:
    lines = [*result.violations, *result.stuck]
    for line in lines[:SHOWN_LINES_MAX]:
        console.print(f"  {line}", markup=False, highlight=False)
    if len(lines) > SHOWN_LINES_MAX:
        console.print(f"  and {len(lines) - SHOWN_LINES_MAX} more")


def _verdict(is_good: bool) -> str:
    return "[green]yes[/green]" if is_good else "[red]no[/red]"
