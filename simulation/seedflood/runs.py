"""Whole simulated runs of SeedFlood: chaos, healing and checks in one call; and many seeds over all cores."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from rich.console import Console
from rich.table import Table

from seedflood.cluster.topology import make_topology
from seedflood.errors import UsageError
from seedflood.protocol.seedflood.divergence import MEND_SECONDS_MAX
from seedflood.protocol.seedflood.rules import WindowRule
from seedflood.protocol.swarm.rules import Patience
from simulation import runs
from simulation.climate import Climate, draw_climate
from simulation.liars import choose_liars
from simulation.operator import Operator, close
from simulation.runs import HEALING_SECONDS_MAX, Outcome, TrialWithLiars, show_complaints, verdict
from simulation.seedflood.bounds import find_excess
from simulation.seedflood.checks import (
    find_doubles,
    find_mistakes,
    find_silence,
    find_surplus,
    find_violations,
    has_equal_digests,
    has_equal_frontiers,
    has_mended,
    has_settled,
)
from simulation.seedflood.compression import UPDATE_KINDS, UpdateKind, make_compression
from simulation.seedflood.faults import SeedfloodChaos
from simulation.seedflood.host import SeedfloodHost
from simulation.seedflood.liars import let_lie
from simulation.seedflood.optimisers import OPTIMIZERS, OptimizerName
from simulation.seedflood.profiles import PROFILES, Profile
from simulation.seedflood.world import SeedfloodWorld

PATIENCE = Patience(start_seconds=5.0)
CHAOS_SHARE = 0.7
"""Chaos ends when a host has done this share of the steps, or when time is up."""
STALL_SECONDS_MAX = 60.0
"""How long a strict run is simulated after chaos if there are liars, which may keep it from ending."""
QUIET_SECONDS = 20.0
"""How long honest hosts have for repair after the liars are gone."""
MENDING_SECONDS_MAX = 3 * MEND_SECONDS_MAX
"""How long hosts may take then until all have rebuilt their replicas. A host that receives contradictions again and
again rebuilds once a minute. Then replicas are compared."""
RELAYS_SECONDS_MAX = 30.0
"""Hosts do not wait for relays, which may have just started when the last host ends: how long they may take to repair
what they lack then."""

DOUBLES_SECONDS_MAX = 120.0
"""How long copies of a relay may take to find out which of them is the newer one. They outbid each other up to
OUTLIVED_MAX times, and each bid may wait for a comparison on every hop: 62 seconds were seen in rings of six."""
DELAYS = (0, 0, 1, 1, 2, 3)
"""One of these is drawn if the plan has no delay."""
EPOCH_ROUNDS = (1, 2, 4, 4, 8, 16)
"""Rounds per epoch: short ones and long ones."""
USUAL_EPOCH_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """What is simulated. The same plan gives exactly the same run, on any machine. Raises UsageError.

    refresh_period, update_kind, delay, optimizer: drawn from the seed if None. closed: is there an operator, who
    changes the roster during chaos, and a stranger? relays: how many hosts that measure nothing stand among the
    clients. participants: about how many of the clients measure a round; None: all.
    """

    clients: int = 16
    topology: str = "ring"
    seed: int = 1
    steps: int = 20
    window: WindowRule = "strict"
    profile: str = "all"
    local_steps: int = 1
    refresh_period: int | None = None
    update_kind: UpdateKind | None = None
    delay: int | None = None
    optimizer: OptimizerName | None = None
    closed: bool = False
    relays: int = 0
    participants: int | None = None

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise UsageError(f'unknown fault profile "{self.profile}"; choose one of {", ".join(PROFILES)}.')
        if self.window not in ("strict", "bounded"):
            raise UsageError(f'unknown window rule "{self.window}"; choose strict or bounded.')
        if self.profile == "cuts" and not self.closed:
            raise UsageError("only the operator of a closed run cuts hosts off: add --closed to --faults cuts.")
        if self.steps < 1 or self.steps % self.local_steps or (self.refresh_period or 0) % self.local_steps:
            raise UsageError("--steps must be 1 or more, and a multiple of the local steps, as the refresh period is.")
        if self.participants and self.window != "strict":
            raise UsageError("--participants is for windows that wait for all who measure: choose --window strict.")

    def drawn(self) -> "Plan":
        """The plan with the kind of updates, delay and optimizer drawn from the seed, where they are None."""
        rng = random.Random(f"plan {self.seed}")
        update_kind, delay = rng.choice(UPDATE_KINDS), rng.choice(DELAYS)
        update_kind = update_kind if self.update_kind is None else self.update_kind
        optimizer = rng.choice(OPTIMIZERS)
        return replace(
            self,
            update_kind=update_kind,
            delay=delay if self.delay is None else self.delay,
            optimizer=optimizer if self.optimizer is None else self.optimizer,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Outcome):
    """The result of a plan."""

    plan: Plan
    frontiers_equal: bool
    digests_equal: bool
    digest: str
    climate: str = "usual"
    liars: int = 0

    @property
    def is_good(self) -> bool:
        """Did the run heal without violations? With strict windows a run with liars need not heal, because nobody goes
        on without them."""
        may_stall = self.liars > 0 and self.plan.window == "strict"
        return (self.healed or may_stall) and not self.violations


class Judge:
    """Checks what SeedFlood promises. operator: of a closed run."""

    def __init__(self, operator: Operator | None) -> None:
        self._operator = operator

    def look_at(self, host: SeedfloodHost) -> list[str]:
        """Is the host's memory within its bounds, and does it have a blocker if it waits?"""
        return [*find_excess(host.driver), *filter(None, [find_silence(host)])]

    def find_mistakes(self, hosts: Sequence[SeedfloodHost]) -> list[str]:
        return find_mistakes(hosts)

    def find_violations(self, hosts: Sequence[SeedfloodHost]) -> list[str]:
        violations, operator = find_violations(hosts), self._operator
        if operator is not None:
            violations += [*operator.find_unheeded(hosts), *find_surplus(hosts, operator.roster)]
        return violations


class _Trial(TrialWithLiars[SeedfloodHost]):
    world: SeedfloodWorld

    def __init__(
        self, world: SeedfloodWorld, chaos: SeedfloodChaos, liars: Iterable[int], operator: Operator | None
    ) -> None:
        super().__init__(world, chaos, Judge(operator), liars, lambda chosen: let_lie(world, chosen, chaos.faults))

    def settle(self) -> None:
        super().settle()
        self.world.clock.run(lambda: not find_doubles(self.world.honest), DOUBLES_SECONDS_MAX)
        if any(host.is_relay for host in self.world.honest):
            self.world.clock.run(lambda: has_settled(self.world.honest), RELAYS_SECONDS_MAX)
        if not self.liars:
            return
        self.world.run_for(QUIET_SECONDS)
        self.world.clock.run(lambda: has_mended(self.world.honest), MENDING_SECONDS_MAX)
        self.chaos.faults["culprits"] += len(self.world.chronicle.two_tongued)


def simulate(plan: Plan) -> Result:
    """Runs the plan to its end, or until virtual time is up."""
    profile = PROFILES[plan.profile]
    edges = _draw_edges(plan)
    draws = random.Random(f"world {plan.seed}")
    climate = draw_climate(profile.climates, profile.weather, plan.clients + plan.relays, draws)
    epoch_rounds = draw_epoch_rounds(profile, draws)
    plan = replace(plan, refresh_period=plan.refresh_period or epoch_rounds * plan.local_steps).drawn()
    world = _make_world(plan, edges, climate)
    liars = choose_liars(plan.clients, edges, profile.liars, draws, relays=plan.relays)
    is_stalling = bool(liars) and plan.window == "strict"
    operator = close(world, draws) if plan.closed else None
    outcome = _Trial(world, SeedfloodChaos(world, profile, operator), liars, operator).run(
        lambda host: host.node.step >= CHAOS_SHARE * plan.steps,
        STALL_SECONDS_MAX if is_stalling else HEALING_SECONDS_MAX,
    )
    return Result(
        **asdict(outcome),
        plan=plan,
        frontiers_equal=has_equal_frontiers(world.honest),
        digests_equal=has_equal_digests(world.honest),
        digest=world.honest[0].ledger.digest().hex()[:16],
        climate=climate.name,
        liars=len(liars),
    )


def _draw_edges(plan: Plan) -> Sequence[tuple[int, int]]:
    """Relays have the last numbers, and places among the others that are drawn from the seed."""
    hosts = plan.clients + plan.relays
    edges = make_topology(plan.topology, hosts, seed=plan.seed)
    if not plan.relays:
        return edges
    places = random.Random(f"relays {plan.seed}").sample(range(hosts), hosts)
    return [(places[one], places[other]) for one, other in edges]


def draw_epoch_rounds(profile: Profile, draws: random.Random) -> int:
    """How many rounds an epoch has. It is drawn only if the climate is."""
    return USUAL_EPOCH_ROUNDS if profile.climates == ("usual",) else draws.choice(EPOCH_ROUNDS)


def _make_world(plan: Plan, edges: Iterable[tuple[int, int]], climate: Climate) -> SeedfloodWorld:
    """plan: as `Plan.drawn` returns it, with a refresh period."""
    assert plan.refresh_period is not None
    assert plan.update_kind is not None
    assert plan.delay is not None
    assert plan.optimizer is not None
    return SeedfloodWorld(
        plan.clients,
        edges,
        seed=plan.seed,
        steps=plan.steps,
        window=plan.window,
        local_steps=plan.local_steps,
        refresh_period=plan.refresh_period,
        compression=make_compression(plan.update_kind, random.Random(f"telling {plan.seed}")),
        delay=plan.delay,
        optimizer=plan.optimizer,
        weather=climate.weather,
        pace=climate.paces,
        patience=PATIENCE,
        relays=plan.relays,
        turn_rounds=-(-plan.clients // (plan.participants or plan.clients)),
    )


def sweep(plan: Plan, seeds: Iterable[int], processes: int | None = None) -> Iterator[Result]:
    """Simulates the plan with each seed, in this many processes (default: one per core). Yields results as they
    come."""
    return runs.sweep(simulate, (replace(plan, seed=seed) for seed in seeds), processes)


def show_result(result: Result, console: Console) -> None:
    """Prints one run for people."""
    plan = result.plan
    hosts = f"{plan.clients} hosts, {plan.topology}, {plan.window}, delay {plan.delay}"
    hosts += f", {plan.participants} of them measure a round" if plan.participants else ""
    hosts += f", {plan.relays} relays" if plan.relays else ""
    hosts += ", closed" if plan.closed else ""
    what = f"{hosts}, {plan.update_kind}, {plan.optimizer}, seed {plan.seed}"
    table = Table(title=what, title_justify="left")
    table.add_column("what")
    table.add_column("result", justify="right")
    table.add_row("every update applied exactly once, nothing lost", verdict(not result.violations))
    table.add_row("healed", verdict(result.healed))
    table.add_row("frontiers equal", verdict(result.frontiers_equal))
    table.add_row("digests equal", f"{verdict(result.digests_equal)} {result.digest}")
    table.add_row("climate", plan_of(result))
    if result.liars:
        table.add_row("liars", str(result.liars))
    table.add_row("virtual seconds", f"{result.virtual_seconds:.1f}")
    table.add_row("megabytes over links", f"{sum(result.carried.values()) / 1e6:.1f}")
    for kind, count in result.faults.items():
        table.add_row(f"fault: {kind.replace('_', ' ')}", str(count))
    console.print(table)
    show_complaints(result, console)


def plan_of(result: Result) -> str:
    """The climate and the length of epochs, in words."""
    return f"{result.climate}, epochs of {result.plan.refresh_period} steps"
