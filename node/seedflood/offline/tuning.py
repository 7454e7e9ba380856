"""`seedflood tune`: finds a learning rate by a short sweep in one process, on the run's own rows.

Each learning rate is tried by a shortened rehearsal of the whole run: all origins, the same estimate, optimiser and
schedule. While the best one is the smallest or the largest that was tried, the next one beyond it is tried as well.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from seedflood.config import RunSettings, Settings
from seedflood.errors import UsageError
from seedflood.terminal import Screen
from seedflood.training.evaluation import Evaluation
from seedflood.training.seedflood.rehearsal import Rehearsal
from seedflood.training.shards import equal_shares

FACTOR = math.sqrt(10)
"""Between two learning rates of a sweep. One that is right within a third is good enough; a factor of 2 would need more
tries."""

TRIES, TRIES_MAX = 3, 7
ORIGINS_MAX = 8
"""The most origins that are rehearsed. With more of them each step only has less noise, so the result is on the safe
side."""
STEPS = {"gradient": 32}
STEPS_OTHERWISE = 100
"""How many steps tell learning rates apart, by estimate."""


@dataclass(frozen=True, slots=True)
class Try:
    """What a learning rate led to. seconds: of computing, for all origins."""

    learning_rate: float
    before: Evaluation
    after: Evaluation
    seconds: float

    @property
    def loss(self) -> float:
        """The loss for comparisons: infinite if it is not a finite number."""
        return self.after.loss if math.isfinite(self.after.loss) else math.inf


@dataclass(frozen=True, slots=True)
class Sweep:
    """All tries of a sweep, ordered by learning rate. run: the shortened run."""

    run: RunSettings
    tries: tuple[Try, ...]

    @property
    def best(self) -> Try:
        return min(self.tries, key=lambda one: one.loss)

    @property
    def is_helpful(self) -> bool:
        """Did the best learning rate bring the loss down at all?"""
        return self.best.loss < self.best.before.loss

    def facts(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "learning_rate": self.best.learning_rate if self.is_helpful else None,
            "steps": self.run.steps,
            "tries": [
                {
                    "learning_rate": one.learning_rate,
                    **_by_name(one.before, "before"),
                    **_by_name(one.after, "after"),
                    "seconds": round(one.seconds, 3),
                }
                for one in self.tries
            ],
        }


Report = Callable[[float, int, int], None]
"""Called with the learning rate that is being tried, the steps done, and all steps."""


def sweep(settings: Settings, rates: Sequence[float], steps: int | None, report: Report) -> Sweep:
    """Tries these learning rates; if there are none, some around the default. Raises what loading a run raises."""
    if settings.run.mode != "seedflood":
        raise UsageError(f'learning rates are tried of mode = "seedflood" alone, and mode is "{settings.run.mode}".')
    run = shorten(settings.run, steps)
    tried: dict[float, Try] = {}
    waiting = list(rates) or rates_about(Rehearsal(run, equal_shares(settings.node, run.clients)).learning_rate)
    while waiting:
        rate = waiting.pop(0)
        tried[rate] = _try(_with_rate(run, rate), settings, report)
        if not waiting and not rates:
            waiting = _beyond(tried)
    return Sweep(run, tuple(tried[rate] for rate in sorted(tried)))


def shorten(run: RunSettings, steps: int | None) -> RunSettings:
    """The run with so many steps, in whole rounds, and not too many origins; the schedule shrinks with it. Raises
    UsageError if `steps` is less than a round."""
    wanted = steps if steps is not None else min(run.steps, STEPS.get(run.seedflood.estimate, STEPS_OTHERWISE))
    local_steps = run.seedflood.local_steps
    if steps is not None and steps < local_steps:
        raise UsageError(f"--steps {steps} is less than one round of the run: its local_steps are {local_steps}.")
    wanted = max(local_steps, wanted // local_steps * local_steps)
    return run.model_copy(update={"steps": wanted, "clients": min(run.clients, ORIGINS_MAX)})


def _with_rate(run: RunSettings, rate: float) -> RunSettings:
    return run.model_copy(update={"seedflood": run.seedflood.model_copy(update={"learning_rate": rate})})


def rates_about(rate: float) -> list[float]:
    """The learning rates that are tried first, with the given one in the middle; in two digits, as people write
    them."""
    return [round_rate(rate * FACTOR**k) for k in range(-(TRIES // 2), TRIES // 2 + 1)]


def round_rate(rate: float) -> float:
    return float(f"{rate:.1e}")


def show_sweep(result: Sweep, console: Console) -> None:
    """A table, and one line to paste."""
    table = Table(
        title=f"{result.run.steps} steps of {result.run.seedflood.estimate}, {result.run.clients} origins", box=None
    )
    names = list(result.tries[0].before.figures)
    for column in ("learning rate", *names, "seconds", ""):
        table.add_column(column, justify="right", no_wrap=True)
    for one in result.tries:
        table.add_row(
            f"{one.learning_rate:g}",
            *(f"{_short(one.before.figures[name])} → {_short(one.after.figures[name])}" for name in names),
            f"{one.seconds:.1f}",
            "best" if one is result.best and result.is_helpful else "",
        )
    console.print(table)
    if result.is_helpful:
        console.print("In \\[run.seedflood] of peers.toml on all hosts:")
        console.print(f"learning_rate = {result.best.learning_rate:g}", highlight=False)
    else:
        console.print("No learning rate made the loss smaller: try more steps (--steps), or other rows.")


@contextmanager
def displayed() -> Iterator[Report]:
    """Within, progress is shown on stderr."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Screen(stderr=True)) as bar:
        task, shown = bar.add_task("loading", total=None), 0.0

        def show(rate: float, done: int, total: int) -> None:
            nonlocal shown
            if rate != shown:
                shown = rate
                bar.reset(task, total=total)
            bar.update(task, description=f"learning rate {rate:g}: step {done}", completed=done)

        yield show


def _try(run: RunSettings, settings: Settings, report: Report) -> Try:
    rate = run.seedflood.learning_rate
    assert rate is not None
    rehearsal = Rehearsal(run, equal_shares(settings.node, run.clients))
    report(rate, 0, run.steps)
    before, seconds = rehearsal.evaluate(), 0.0
    while rehearsal.step < run.steps:
        begun = time.perf_counter()
        told = rehearsal.advance()
        seconds += time.perf_counter() - begun
        report(rate, rehearsal.step, run.steps)
        if not all(one.round.is_finite for one in told):
            break
    return Try(rate, before, rehearsal.evaluate(), seconds)


def _beyond(tried: dict[float, Try]) -> list[float]:
    """The next learning rate to try, if the best one is at an end of those tried."""
    rates = sorted(tried)
    best = min(tried.values(), key=lambda one: one.loss).learning_rate
    if len(rates) >= TRIES_MAX or best not in (rates[0], rates[-1]):
        return []
    return [round_rate(best * FACTOR if best == rates[-1] else best / FACTOR)]


def _by_name(result: Evaluation, when: str) -> dict[str, float | None]:
    return {f"{name}_{when}": value for name, value in result.rounded().items()}


def _short(value: float) -> str:
    """A figure in few characters: if the rate is too high, a perplexity may have 305 digits."""
    return f"{value:.4f}" if abs(value) < 1e6 else f"{value:.0e}"
