"""Plans: which cells a study has.

A plan has a base setting and parts. A part changes something of it - topology, clients, split, an option - for some
methods. The options of each method are chosen once, in the base setting, by one try for each entry of its grid, with a
seed of its own; all parts take them.

A grid may lie beside what is best. So, while the best try has the least or the greatest learning rate of those that
were tried with its other options, the next rate on that side is tried, too, as far on as the grid's rates are apart.
That ends after `FURTHER_TRIES`, for every method.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from seedflood.errors import UsageError
from study.cell import Cell
from study.methods import METHODS
from study.methods.method import Initial, Option
from study.rows import Sizes

TUNING_SEED = 1000
"""Of the tries; no result is measured with it."""

FURTHER_TRIES = 3

RATES = ("rate", "times_default")
"""The options that are learning rates; every method has one of them."""

OPTIONS = "options"
"""The key of a change that is of the method; all others are fields of a cell."""


@dataclass(frozen=True, slots=True)
class Part:
    """changes: of the base setting, each a setting of its own."""

    title: str
    methods: tuple[str, ...]
    changes: tuple[Mapping[str, Any], ...] = ({},)


@dataclass(frozen=True, slots=True)
class Plan:
    """steps: of every client, by the order of the method. initial: do clients begin with the model's weights, or with
    random ones? tries: how many entries of each grid are tried. points: measurements of a course, after the first."""

    name: str
    steps: Mapping[str, int]
    rows: Sizes
    seeds: tuple[int, ...]
    parts: tuple[Part, ...]
    initial: Initial = "pretrained"
    clients: int = 16
    topology: str = "ring"
    local_steps: int = 5
    batch_size: int = 16
    points: int = 5
    tries: int = 4


@dataclass(frozen=True, slots=True)
class Study:
    """A plan for a model and the rows of a task."""

    plan: Plan
    model: str
    task: str
    rows: str
    methods: Sequence[str] = field(default_factory=lambda: list(METHODS))

    @property
    def name(self) -> str:
        """Model, task and plan, as short as a heading."""
        return f"{Path(self.model).name}, {self.task}, {self.plan.name}"

    def used(self) -> list[str]:
        """The methods that a part has."""
        return list(dict.fromkeys(name for part in self.plan.parts for name in self._of(part)))

    def grid_of(self, method: str) -> list[Cell]:
        """A try for each entry of a method's grid."""
        base = replace(self._base(method), seed=TUNING_SEED, is_test=False)
        return [base.with_options(entry) for entry in METHODS[method].grid[: self.plan.tries]]

    def further_try(self, made: Sequence[Cell], best: Cell) -> Cell | None:
        """The next try of a method, of which these were made; None if there is no need for one."""
        options = dict(best.options)
        (name,) = options.keys() & set(RATES)
        others = options | {name: None}
        rates = sorted(float(dict(cell.options)[name]) for cell in made if dict(cell.options) | {name: None} == others)
        at = rates.index(float(options[name]))
        if len(rates) < 2 or 0 < at < len(rates) - 1 or len(made) >= self.plan.tries + FURTHER_TRIES:
            return None
        inner = rates[1] if at == 0 else rates[at - 1]
        return best.with_options({name: float(f"{rates[at] ** 2 / inner:.2g}")})

    def cells(self, chosen: Mapping[str, Mapping[str, Option]]) -> list[Cell]:
        """All that are not tries. chosen: the options of each method; those of others are left out."""
        return list(dict.fromkeys(cell for part in self.plan.parts for cell in self.cells_of(part, chosen)))

    def cells_of(self, part: Part, chosen: Mapping[str, Mapping[str, Option]]) -> Iterator[Cell]:
        """Those of a part; others may have the same."""
        for change in part.changes:
            for method in (name for name in self._of(part) if name in chosen):
                fields = {key: value for key, value in change.items() if key != OPTIONS}
                cell = replace(self._base(method), **fields)
                cell = cell.with_options({**chosen[method], **change.get(OPTIONS, {})})
                yield from (replace(cell, seed=seed) for seed in self.plan.seeds)

    def _of(self, part: Part) -> list[str]:
        return [name for name in part.methods if name in self.methods]

    def _base(self, method: str) -> Cell:
        plan = self.plan
        return Cell(
            model=self.model,
            task=self.task,
            rows=self.rows,
            method=method,
            topology=plan.topology,
            clients=plan.clients,
            skew=None,
            steps=plan.steps[METHODS[method].order],
            local_steps=plan.local_steps,
            batch_size=plan.batch_size,
            seed=0,
            points=plan.points,
            initial=plan.initial,
        )


def _options(name: str, *values: Option) -> tuple[Mapping[str, Any], ...]:
    """The base setting, and each of these values of an option."""
    return ({}, *({OPTIONS: {name: value}} for value in values))


BYTES = "Accuracy against bytes"
HOPS = "Hops per round, on a path"
DELAY = "Delayed rounds"
RANK = "Rank"
REFRESH = "Refresh period"
TOPOLOGIES = "Topologies"
UNEVEN = "Labels spread unevenly"
UNBOUNDED = "Labels spread unevenly, and no bound on liars"
EXCHANGES = "Steps between two exchanges"
SLOW = "Links of which every fourth is slow"
CLIENTS = "From 16 to 128 clients"

UNBOUNDED_PART = Part(UNBOUNDED, ("coefficients",), tuple({"skew": k, OPTIONS: {"clip": "none"}} for k in (1.0, 0.1)))
"""A host with unlike rows looks like a liar: a run of such hosts does without the bound."""

OURS = ("seedflood", "coefficients")
EVERY = tuple(METHODS)

SMOKE = Plan(
    name="smoke",
    steps={"first": 4, "zeroth": 4},
    rows=Sizes(32, 16, 16),
    seeds=(1,),
    parts=(Part(BYTES, EVERY),),
    clients=2,
    local_steps=2,
    batch_size=2,
    points=2,
    tries=1,
)

PATH = {"topology": "path"}
COMPARED = ("seedflood", "dzsgd", "dsgd", "choco", "gasloc")
PRE_TRAINERS = ("gasloc", "diloco", "d-adam", "dsgd")

DEFAULT = Plan(
    name="default",
    steps={"first": 40, "zeroth": 100},
    rows=Sizes(1024, 500, 1000),
    seeds=(1, 2, 3),
    parts=(
        Part(BYTES, EVERY),
        Part(HOPS, ("seedflood",), tuple({**PATH, **one} for one in _options("hops", 8, 4, 2, 1))),
        Part(DELAY, ("seedflood",), _options("delay", 1, 4, 8, 16)),
        Part(RANK, ("seedflood",), _options("rank", 4, 8, 128)),
        Part(REFRESH, ("seedflood",), _options("refresh_period", 1, 10, 50)),
        Part(TOPOLOGIES, COMPARED, ({}, *({"topology": one} for one in ("grid", "star", "complete")))),
        Part(UNEVEN, (*COMPARED, "coefficients"), ({}, {"skew": 1.0}, {"skew": 0.1})),
        UNBOUNDED_PART,
        Part(EXCHANGES, PRE_TRAINERS, ({}, {"local_steps": 1}, {"local_steps": 10})),
        Part(SLOW, ("gasloc",), _options("slow_class", 3)),
        Part(CLIENTS, (*OURS, "dsgd"), ({}, *({"clients": one} for one in (32, 64, 128)))),
    ),
    batch_size=8,
)

PAPER = replace(
    DEFAULT,
    name="paper",
    steps={"first": 500, "zeroth": 5000},
    parts=tuple(replace(part, methods=EVERY) if part.title == CLIENTS else part for part in DEFAULT.parts),
    batch_size=16,
    points=20,
)

SHORT = replace(
    DEFAULT,
    name="short",
    rows=Sizes(1024, 256, 1000),
    parts=(
        Part(BYTES, EVERY),
        Part(UNEVEN, (*COMPARED, "coefficients"), ({}, {"skew": 0.1})),
        UNBOUNDED_PART,
    ),
    clients=8,
)

PRETRAIN = Plan(
    name="pretrain",
    steps={"first": 80},
    rows=Sizes(1024, 128, 256),
    seeds=(1, 2, 3),
    parts=(
        Part(BYTES, (*PRE_TRAINERS, "adamw")),
        Part(SLOW, ("gasloc",), _options("slow_class", 3)),
        Part(EXCHANGES, PRE_TRAINERS, ({}, {"local_steps": 1}, {"local_steps": 10})),
    ),
    initial="random",
    batch_size=8,
)

PLANS: Mapping[str, Plan] = {plan.name: plan for plan in (SMOKE, SHORT, DEFAULT, PAPER, PRETRAIN)}


def find_plan(name: str) -> Plan:
    """Raises UsageError."""
    if name not in PLANS:
        raise UsageError(f'unknown plan "{name}"; choose one of {", ".join(PLANS)}.')
    return PLANS[name]


def check_methods(names: Sequence[str]) -> list[str]:
    """All methods if there are no names. Raises UsageError."""
    for name in names:
        if name not in METHODS:
            raise UsageError(f'unknown method "{name}"; choose of {", ".join(METHODS)}.')
    return list(names) or list(METHODS)
