"""A run in which the disk of one host becomes full at one chosen write, beside a liar that waits for that.

The liar takes part in the first round, says goodbye, and votes for the sums of the others. When an epoch is compacted
it sends a single host one more step of it. Where the order of steps matters, all hosts put that step behind the sum. A
host whose journal has bundles and takes them for a sum gets other coefficients.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from seedflood.cluster.topology import make_topology
from seedflood.protocol.seedflood.bundles import Updates, make_bundle
from seedflood.protocol.seedflood.messages import Vote, Votes
from seedflood.protocol.seedflood.rules import WindowRule
from seedflood.protocol.swarm.rules import Patience
from simulation.checks import find_stuck
from simulation.operator import Operator
from simulation.seedflood.checks import find_mistakes, find_violations, has_mended
from simulation.seedflood.compression import draw_round
from simulation.seedflood.host import SeedfloodHost
from simulation.seedflood.world import SeedfloodWorld
from simulation.work import Pace

HOSTS = 4
VICTIM = 1
LIAR = HOSTS - 1
PERIOD = 4
STEPS = 4 * PERIOD
LATE_STEP = 2
"""The step that the liar sends late, of the first epoch. Steps follow it there, so the order matters."""

FULL_SECONDS = 3.0
DEATH_SECONDS = 1.0
"""If the host dies: how long its disk has been full then. It starts again when there is space."""
GLANCE_SECONDS, REPEAT_SECONDS = 0.05, 1.0
RUN_SECONDS_MAX = 400.0
QUIET_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Plan:
    """write: at which write of its life the disk becomes full; 0: never. is_killed: does the host die meanwhile?"""

    window: WindowRule
    write: int = 0
    closed: bool = False
    is_killed: bool = False
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Result:
    """complaints: of the judges. writes: of the host whose disk was full."""

    complaints: list[str]
    writes: int


class LateTeller:
    """The liar."""

    def __init__(self, world: SeedfloodWorld) -> None:
        self._world = world
        self._host = world.hosts[LIAR]
        self._voted: set[int] = set()
        self._is_over = False
        world.chronicle.liars.add(self._host.origin)
        world.chronicle.is_lied_to = True
        self._look_in(GLANCE_SECONDS)

    def end(self) -> None:
        self._is_over = True
        self._host.is_retired = True
        self._host.crash()

    def _look_in(self, seconds: float) -> None:
        self._world.clock.after(seconds, self._look)

    def _look(self) -> None:
        if self._is_over:
            return
        is_compacted = any(host.is_up and host.node.closings.before > 0 for host in self._others())
        if self._host.is_up and self._host.node.step >= 1:
            if not self._host.has_left:
                self._host.leave()
            self._vote()
            if is_compacted:
                self._tell_late()
        self._look_in(REPEAT_SECONDS if is_compacted else GLANCE_SECONDS)

    def _others(self) -> Sequence[SeedfloodHost]:
        return [host for host in self._world.honest if host.index != VICTIM]

    def _vote(self) -> None:
        """Votes as the others do, once on each epoch."""
        for epoch in range(STEPS // PERIOD):
            known = (host.node.closings.digests(epoch) for host in self._others() if host.is_up)
            digests = next(filter(None, known), None)
            if epoch in self._voted or digests is None:
                continue
            self._voted.add(epoch)
            key, run_id = self._host.public_key, self._world.rules.run_id
            roster = self._host.roster
            vote = Vote(self._host.origin, epoch, digests, serial=0 if roster is None else roster.serial)
            signature = self._world.notary.signature(key, vote.signed_bytes(run_id, key))
            for peer in range(HOSTS):
                if peer != LIAR:
                    self._world.network.send_raw(self._host, peer, Votes((vote._replace(signature=signature),)))

    def _tell_late(self) -> None:
        """Repeats it: a host that has just started has no links yet. It is the same step every time."""
        key, run_id = self._host.public_key, self._world.rules.run_id
        rng = random.Random(f"late {self._world.seed}")
        bundle = make_bundle(
            self._host.origin, LATE_STEP, draw_round(self._world.rules, self._host.origin, LATE_STEP, rng)
        )
        signature = self._world.notary.signature(key, bundle.signed_bytes(run_id, key))
        bundle = bundle.with_signature(signature)
        self._world.network.send_raw(self._host, VICTIM, Updates((bundle,)))


def simulate(plan: Plan) -> Result:
    """Runs the plan to its end."""
    world = SeedfloodWorld(
        HOSTS,
        make_topology("complete", HOSTS, seed=plan.seed),
        seed=plan.seed,
        steps=STEPS,
        window=plan.window,
        refresh_period=PERIOD,
        optimizer="adam" if plan.window == "strict" else "sgd",
        pace=Pace(0.1, 0.2),
        patience=Patience(start_seconds=5.0, linger_seconds=10.0),
    )
    if plan.closed:
        Operator(world)
    liar, victim = LateTeller(world), world.hosts[VICTIM]
    victim.fill_at(plan.write, FULL_SECONDS)
    world.start()
    if plan.is_killed:
        _kill_when_full(world, victim)
    world.run(RUN_SECONDS_MAX)
    stuck = find_stuck(world.honest)
    world.run_for(QUIET_SECONDS)
    liar.end()
    world.clock.run(lambda: has_mended(world.honest), RUN_SECONDS_MAX)
    judge = find_mistakes if stuck else find_violations
    return Result([*stuck, *judge(world.honest)], victim.writes)


def each_write(plan: Plan, step: int = 1) -> Iterator[Plan]:
    """The plan with a full disk at each write that the host does if it is never full, or at every `step`-th one."""
    whole = simulate(replace(plan, write=0, is_killed=False))
    for write in range(1, whole.writes + 1, step):
        yield replace(plan, write=write)


def _kill_when_full(world: SeedfloodWorld, victim: SeedfloodHost) -> None:
    def look() -> None:
        if not victim.journal.is_full:
            world.clock.after(GLANCE_SECONDS, look)
            return
        world.clock.after(DEATH_SECONDS, kill)

    def kill() -> None:
        if victim.is_up:
            victim.crash()
        world.start_later(victim, FULL_SECONDS)

    look()
