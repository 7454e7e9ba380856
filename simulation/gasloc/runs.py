"""Whole simulated runs of GASLoC: chaos, healing and checks in one call; and many seeds over all cores."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import get_args

from rich.console import Console
from rich.table import Table

from seedflood.cluster.topology import make_topology
from seedflood.errors import UsageError
from seedflood.protocol.gasloc.rules import Bounds, GaslocRules, Habits, Matching
from seedflood.protocol.swarm.rules import Patience
from simulation import runs
from simulation.climate import Climate, draw_climate
from simulation.gasloc.bounds import find_excess
from simulation.gasloc.checks import (
    find_distance,
    find_kept_out,
    find_mistakes,
    find_movement,
    find_silence,
    find_violations,
    mean_moved,
)
from simulation.gasloc.faults import GaslocChaos
from simulation.gasloc.host import GaslocHost, Manner
from simulation.gasloc.liars import let_lie
from simulation.gasloc.profiles import PROFILES, Profile
from simulation.gasloc.world import BASE_DIGEST, RUN_ID, GaslocWorld
from simulation.liars import choose_liars
from simulation.operator import Operator, close
from simulation.runs import Outcome, TrialWithLiars, show_complaints, verdict

HEALING_SECONDS_MAX = 3600.0
"""A closing round may take a minute over narrow links."""
PATIENCE = Patience(start_seconds=5.0)
CHAOS_SHARE = 0.7
"""Chaos ends when a host has done this share of the steps, or when time is up."""
QUIET_SECONDS = 10.0
"""How long messages that come late have at the end."""
MATCHINGS: tuple[Matching, ...] = get_args(Matching)
LOCAL_STEPS = (1, 2, 4)
GAMMAS = (0.0, 0.0, 0.0, 0.5)
BOUNDS = Bounds(chunk_bytes=4096)
PADDINGS = (0, 0, 20_000)
"""Contents are one chunk, or several."""
CHECKPOINT_ROUNDS = (1, 1, 3)
ALWAYS = 1 << 40
"""A number of rounds that no run reaches: every host that joins begins with the base model."""
CONTENT_BYTES_SPARE = 1 << 14


@dataclass(frozen=True, slots=True)
class Plan:
    """What is simulated. The same plan gives exactly the same run, on any machine. Raises UsageError.

    local_steps, matching, gamma: drawn from the seed if None. Everything else that the rules leave open
    is always drawn. closed: is there an operator, who changes the roster during chaos, and a stranger?
    """

    clients: int = 16
    topology: str = "ring"
    seed: int = 1
    steps: int = 20
    profile: str = "all"
    local_steps: int | None = None
    matching: Matching | None = None
    gamma: float | None = None
    closed: bool = False

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise UsageError(f'unknown fault profile "{self.profile}"; choose one of {", ".join(PROFILES)}.')
        if self.matching not in (None, *MATCHINGS):
            raise UsageError(f'unknown matching "{self.matching}"; choose one of {", ".join(MATCHINGS)}.')
        if self.steps < 1 or self.steps % (self.local_steps or 1):
            raise UsageError("--steps must be 1 or more, and a multiple of the local steps.")

    def drawn(self) -> "Plan":
        """The plan with everything that is None drawn from the seed."""
        rng = random.Random(f"plan {self.seed}")
        local_steps = rng.choice([count for count in LOCAL_STEPS if self.steps % count == 0])
        matching, gamma = rng.choice(MATCHINGS), rng.choice(GAMMAS)
        return replace(
            self,
            local_steps=self.local_steps or local_steps,
            matching=self.matching or matching,
            gamma=gamma if self.gamma is None else self.gamma,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Outcome):
    """The result of a plan. uneven: how many ends mixed what the other did not. mean_moved: how far that has moved the
    mean (`mean_moved`). Both are None where nothing is promised of it. exchanges, skipped: pairs that mixed or did not,
    as both ends count them. copies: how many hosts took one. distance: `find_distance`."""

    plan: Plan
    uneven: int | None
    mean_moved: float | None
    exchanges: int
    skipped: int
    copies: int
    distance: float | None
    climate: str = "usual"
    liars: int = 0


class Judge:
    """Checks what GASLoC promises. operator: of a closed run."""

    def __init__(self, operator: Operator | None) -> None:
        self._operator = operator

    def look_at(self, host: GaslocHost) -> list[str]:
        """Is the host's memory within its bounds, does it have a blocker if it waits, and is it not kept out?"""
        return [*find_excess(host.driver), *filter(None, [find_silence(host), find_kept_out(host)])]

    def find_mistakes(self, hosts: Sequence[GaslocHost]) -> list[str]:
        return find_mistakes(hosts)

    def find_violations(self, hosts: Sequence[GaslocHost]) -> list[str]:
        unheeded = self._operator.find_unheeded(hosts) if self._operator is not None else []
        return [*find_violations(hosts), *unheeded]


class _Trial(TrialWithLiars[GaslocHost]):
    world: GaslocWorld

    def __init__(self, world: GaslocWorld, chaos: GaslocChaos, liars: Iterable[int], operator: Operator | None) -> None:
        super().__init__(world, chaos, Judge(operator), liars, lambda chosen: let_lie(world, chosen, chaos.faults))

    def settle(self) -> None:
        super().settle()
        self.world.run_for(QUIET_SECONDS)


def simulate(plan: Plan) -> Result:
    """Runs the plan to its end, or until virtual time is up."""
    profile, plan = PROFILES[plan.profile], plan.drawn()
    edges = make_topology(plan.topology, plan.clients, seed=plan.seed)
    draws = random.Random(f"world {plan.seed}")
    climate = draw_climate(profile.climates, profile.weather, plan.clients, draws)
    world = _make_world(plan, profile, edges, climate, draws)
    liars = choose_liars(plan.clients, edges, profile.liars, draws)
    operator = close(world, draws) if plan.closed else None
    outcome = _Trial(world, GaslocChaos(world, profile, operator), liars, operator).run(
        lambda host: host.node.step >= CHAOS_SHARE * plan.steps, HEALING_SECONDS_MAX
    )
    movement = find_movement(world.honest)
    seen = [host.node.gasloc.exchange for host in world.honest if host.is_up]
    return Result(
        **asdict(outcome),
        plan=plan,
        uneven=movement.halves if movement is not None else None,
        mean_moved=mean_moved(world.honest),
        exchanges=sum(one.mixed for one in seen),
        skipped=sum(one.skipped for one in seen),
        copies=sum(host.copies for host in world.honest),
        distance=find_distance(world.honest),
        climate=climate.name,
        liars=len(liars),
    )


def _make_world(
    plan: Plan, profile: Profile, edges: Iterable[tuple[int, int]], climate: Climate, draws: random.Random
) -> GaslocWorld:
    """plan: as `Plan.drawn` returns it. If no fault destroys a replica, and nobody lies, no host takes a copy, which
    would count one replica twice. Then the mean can be checked."""
    assert plan.local_steps is not None
    assert plan.matching is not None
    assert plan.gamma is not None
    padding = draws.choice(PADDINGS)
    is_whole = not profile.liars and "lose_disk" not in profile.rates and "copy_key" not in profile.rates
    rules = GaslocRules(
        RUN_ID,
        BASE_DIGEST,
        plan.clients,
        plan.steps,
        run_seed=plan.seed,
        local_steps=plan.local_steps,
        gamma=plan.gamma,
        matching=plan.matching,
        encoding="exact",
        delay_steps=draws.choice((0, 0, plan.local_steps)),
        last_encoding="exact",
        content_bytes_max=padding + CONTENT_BYTES_SPARE,
        copy_bytes_max=padding + 8 * CONTENT_BYTES_SPARE,
        fresh_rounds=ALWAYS if is_whole else draws.choice((0, 2)),
    )
    habits = [Habits(None, draws.choice(CHECKPOINT_ROUNDS), BOUNDS, PATIENCE) for _ in range(plan.clients)]
    return GaslocWorld(
        rules,
        edges,
        seed=plan.seed,
        manner=lambda index: Manner(habits[index % plan.clients], padding),
        weather=climate.weather,
        pace=climate.paces,
    )


def sweep(plan: Plan, seeds: Iterable[int], processes: int | None = None) -> Iterator[Result]:
    """Simulates the plan with each seed, in this many processes (default: one per core). Yields results as they
    come."""
    return runs.sweep(simulate, (replace(plan, seed=seed) for seed in seeds), processes)


def show_result(result: Result, console: Console) -> None:
    """Prints one run for people."""
    plan = result.plan
    how = f"{plan.local_steps} local steps, matching {plan.matching}, gamma {plan.gamma}"
    how += ", closed" if plan.closed else ""
    what = f"{plan.clients} hosts, {plan.topology}, {how}, seed {plan.seed}"
    table = Table(title=what, title_justify="left")
    table.add_column("what")
    table.add_column("result", justify="right")
    table.add_row("promises", verdict(not result.violations))
    table.add_row("healed", verdict(result.healed))
    if result.mean_moved is not None:
        table.add_row("ends that mixed what the other did not", str(result.uneven))
        table.add_row("how far they moved the mean, of how far apart base models are", f"{result.mean_moved:.2g}")
    if result.distance is not None:
        table.add_row("distance to the mean, of that before closing rounds", f"{result.distance:.2g}")
    table.add_row("exchanges, skipped", f"{result.exchanges}, {result.skipped}")
    if result.copies:
        table.add_row("copies taken", str(result.copies))
    table.add_row("climate", result.climate)
    if result.liars:
        table.add_row("liars", str(result.liars))
    table.add_row("virtual seconds", f"{result.virtual_seconds:.1f}")
    for kind, count in result.faults.items():
        table.add_row(f"fault: {kind.replace('_', ' ')}", str(count))
    console.print(table)
    show_complaints(result, console)
