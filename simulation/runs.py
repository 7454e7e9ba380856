"""Whole simulated runs of any algorithm: chaos, healing, checks; and many seeds over all cores.

During chaos only safety is checked: what must never happen, whatever goes wrong. Then everything heals, and liveness is
checked: the run must end within a bound of virtual time, and keep all its promises.

An algorithm brings a world of its hosts, the chaos that can strike them, and a judge.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from typing import Any, Generic, Protocol, TypeVar

from rich.console import Console

from seedflood.errors import UsageError
from seedflood.host import garbage
from simulation.checks import find_ended, find_refusals, find_stuck
from simulation.faults import Chaos
from simulation.host import Host
from simulation.world import AnyHost, World

CHAOS_SECONDS_MAX = 60.0
HEALING_SECONDS_MAX = 600.0
STRIDE_SECONDS = 0.5
WATCH_SECONDS = 2.0
"""Between two looks at all hosts. One at every stride would be a third of the work of a run."""
SHOWN_LINES_MAX = 10


JudgedHost = TypeVar("JudgedHost", bound=Host, contravariant=True)


class Judge(Protocol[JudgedHost]):
    """Checks from outside what an algorithm promises. Each complaint is a sentence that names the host."""

    def look_at(self, host: JudgedHost) -> Iterable[str]:
        """What is wrong with a host that is up, in sentences without its name. Called again and again."""

    def find_mistakes(self, hosts: Sequence[JudgedHost]) -> list[str]:
        """What hosts did that must never happen, whatever the faults are."""

    def find_violations(self, hosts: Sequence[JudgedHost]) -> list[str]:
        """Broken promises of hosts that have healed and finished, including mistakes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run. violations: broken promises. stuck: hosts that had not finished when time was up. carried:
    bytes of frames that arrived, by kind of message."""

    violations: list[str]
    stuck: list[str]
    faults: dict[str, int]
    carried: dict[str, int]
    virtual_seconds: float
    wall_seconds: float

    @property
    def healed(self) -> bool:
        return not self.stuck

    @property
    def is_good(self) -> bool:
        return self.healed and not self.violations

    def facts(self) -> dict[str, Any]:
        """The outcome as plain values, for machines; those of a plan, if it has one, stand among them."""
        facts = asdict(self)
        plan = facts.pop("plan", {})
        return {**plan, "healed": self.healed, **facts}


class Endable(Protocol):
    def end(self) -> None: ...


class Trial(Generic[AnyHost]):
    """A test of a world: chaos, healing, checks."""

    def __init__(self, world: World[AnyHost], chaos: Chaos[AnyHost], judge: Judge[AnyHost]) -> None:
        self.world: World[AnyHost] = world
        self.chaos: Chaos[AnyHost] = chaos
        self.judge: Judge[AnyHost] = judge

    def run(self, is_enough: Callable[[AnyHost], bool], healing_seconds: float = HEALING_SECONDS_MAX) -> Outcome:
        """is_enough: chaos ends as soon as this holds for a host that is up."""
        began, world, judge = time.monotonic(), self.world, self.judge
        garbage.collect_rarely()  # else a sixth of the time goes into searching what all hosts hold
        self.begin()
        self._divergence()
        self._rage(is_enough)
        mistakes = judge.find_mistakes(world.honest)
        self.chaos.end()
        world.run(healing_seconds)
        stuck = find_stuck(world.honest)
        self.settle()
        mistakes = mistakes or find_ended(world.hosts) or find_refusals(world.honest, world.network.refusals)
        return Outcome(
            violations=mistakes or (judge.find_mistakes if stuck else judge.find_violations)(world.honest),
            stuck=stuck,
            faults=shown_faults(self.chaos.faults),
            carried=dict(sorted(world.network.carried.items())),
            virtual_seconds=round(world.clock.now, 3),
            wall_seconds=round(time.monotonic() - began, 3),
        )

    def begin(self) -> None:
        """Starts hosts and faults."""
        self.chaos.begin()

    def settle(self) -> None:
        """Called before the final checks, when everything has healed and had time to end."""

    def _divergence(self) -> None:
        """Checks all hosts now, and again and again from now on."""
        for host in self.world.hosts:
            if host.is_up and not host.is_paused:
                host.mistakes += [mistake for mistake in self.judge.look_at(host) if mistake not in host.mistakes]
        self.world.clock.after(WATCH_SECONDS, self._divergence)

    def _rage(self, is_enough: Callable[[AnyHost], bool]) -> None:
        end = self.world.clock.now + CHAOS_SECONDS_MAX
        while self.world.clock.now < end and not any(host.is_up and is_enough(host) for host in self._listed()):
            self.world.run_for(STRIDE_SECONDS)

    def _listed(self) -> Iterator[AnyHost]:
        return (host for host in self.world.hosts if host.origin not in self.world.outcasts)


class TrialWithLiars(Trial[AnyHost]):
    """A trial in which some hosts may lie, until the others have had time to end."""

    def __init__(
        self,
        world: World[AnyHost],
        chaos: Chaos[AnyHost],
        judge: Judge[AnyHost],
        liars: Iterable[int],
        let_lie: Callable[[list[int]], Sequence[Endable]],
    ) -> None:
        """let_lie: has the hosts with these numbers lie from now on."""
        super().__init__(world, chaos, judge)
        self._chosen = sorted(liars)
        self._let_lie = let_lie
        self.liars: Sequence[Endable] = ()

    def begin(self) -> None:
        super().begin()
        if self._chosen:
            self.liars = self._let_lie(self._chosen)

    def settle(self) -> None:
        for liar in self.liars:
            liar.end()


def shown_faults(faults: Counter[str]) -> dict[str, int]:
    return {kind: count for kind, count in sorted(faults.items()) if count}


# Many of them


class Seeded(Protocol):
    @property
    def seed(self) -> int: ...


class Judged(Protocol):
    """What is shown of one run among many."""

    @property
    def plan(self) -> Seeded: ...

    @property
    def is_good(self) -> bool: ...

    @property
    def violations(self) -> list[str]: ...

    @property
    def stuck(self) -> list[str]: ...


AnyPlan = TypeVar("AnyPlan")
AnyResult = TypeVar("AnyResult")
AnyJudged = TypeVar("AnyJudged", bound=Judged)


def sweep(
    simulate: Callable[[AnyPlan], AnyResult], plans: Iterable[AnyPlan], processes: int | None = None
) -> Iterator[AnyResult]:
    """Simulates each plan, in this many processes (default: one per core). Yields results as they come. simulate: a
    function of a module, because other processes look it up by its name."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        futures: list[Future[AnyResult]] = [pool.submit(simulate, plan) for plan in plans]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            for future in futures:
                future.cancel()


def parse_seeds(text: str) -> range:
    """ "1..200" includes both ends; "7" is one seed. Raises UsageError."""
    first, _, last = text.partition("..")
    try:
        seeds = range(int(first), int(last or first) + 1)
    except ValueError:
        seeds = range(0)
    if not seeds:
        raise UsageError(f'"{text}" names no seeds; say for example --seeds 1..200.')
    return seeds


def show_sweep(results: Iterable[AnyJudged], console: Console, *, count: int) -> list[AnyJudged]:
    """Prints bad seeds as they come. Returns the results of these."""
    bad = []
    done = 0
    for done, result in enumerate(results, start=1):
        if not result.is_good:
            bad.append(result)
            console.print(f"[red]seed {result.plan.seed} is bad[/red]")
            show_complaints(result, console)
        elif done % 10 == 0:
            console.print(f"{done} of {count} seeds, {len(bad)} bad")
    console.print(f"{done} of {count} seeds done, {len(bad)} bad: {sorted(result.plan.seed for result in bad)}")
    return bad


def show_complaints(result: Judged, console: Console) -> None:
    lines = [*result.violations, *result.stuck]
    for line in lines[:SHOWN_LINES_MAX]:
        console.print(f"  {line}", markup=False, highlight=False)
    if len(lines) > SHOWN_LINES_MAX:
        console.print(f"  and {len(lines) - SHOWN_LINES_MAX} more")


def verdict(is_good: bool) -> str:
    return "[green]yes[/green]" if is_good else "[red]no[/red]"
