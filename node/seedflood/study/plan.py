"""Plans: which cells a study has.

A plan has a base setting and parts. A part changes something of it - topology, clients, split, an option - for some
methods. The options of each method are chosen once, in the base setting, by one try for each entry of its grid, with a
seed of its own; all parts take them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from seedflood.errors import UsageError
from seedflood.study.cell import Cell
from seedflood.study.methods import METHODS
from seedflood.study.methods.method import Option
from seedflood.study.rows import Sizes

TUNING_SEED = 1000
"""Of the tries; no result is measured with it."""

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
    """steps: of every client, by the order of the method. tries: how many entries of each grid are tried. points:
    measurements of a course, after the first."""

    steps: Mapping[str, int]
    rows: Sizes
    seeds: tuple[int, ...]
    parts: tuple[Part, ...]
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

    def tries(self) -> list[Cell]:
        """Of all methods, one for each entry of the grid."""
        used = dict.fromkeys(name for part in self.plan.parts for name in self._of(part))
        return [cell for name in used for cell in self.tries_of(name)]

    def tries_of(self, method: str) -> list[Cell]:
        base = replace(self._base(method), seed=TUNING_SEED, is_test=False)
        return [base.with_options(entry) for entry in METHODS[method].grid[: self.plan.tries]]

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
        )


OURS = ("seedflood", "coefficients")
EVERY = tuple(METHODS)

SMOKE = Plan(
    steps={"first": 4, "zeroth": 4},
    rows=Sizes(32, 16, 16),
    seeds=(1,),
    parts=(Part("Accuracy against bytes", EVERY),),
    clients=2,
    local_steps=2,
    batch_size=2,
    points=2,
    tries=1,
)

DEFAULT = Plan(
    steps={"first": 50, "zeroth": 200},
    rows=Sizes(1024, 500, 1000),
    seeds=(1, 2, 3),
    parts=(
        Part("Accuracy against bytes", EVERY),
        Part(
            "Topologies",
            (*OURS, "dsgd", "choco", "gasloc"),
            tuple({"topology": one} for one in ("ring", "grid", "random-regular", "complete")),
        ),
        Part("From 16 to 64 clients", (*OURS, "dsgd"), ({}, {"clients": 32}, {"clients": 64})),
        Part(
            "Labels spread unevenly",
            ("seedflood", "coefficients", "dsgd", "gasloc"),
            ({}, {"skew": 1.0}, {"skew": 0.1}),
        ),
        Part("Rank", ("seedflood",), ({}, *({OPTIONS: {"rank": rank}} for rank in (4, 128)))),
        Part("Refresh period", ("seedflood",), ({}, *({OPTIONS: {"refresh_period": one}} for one in (10, 50)))),
        Part("Delayed rounds", ("seedflood",), ({}, *({OPTIONS: {"delay": rounds}} for rounds in (1, 8)))),
    ),
)

PAPER = replace(
    DEFAULT,
    steps={"first": 500, "zeroth": 5000},
    parts=(
        *DEFAULT.parts[:2],
        Part("From 16 to 128 clients", EVERY, ({}, {"clients": 32}, {"clients": 64}, {"clients": 128})),
        *DEFAULT.parts[3:],
    ),
    points=20,
)

PLANS: Mapping[str, Plan] = {"smoke": SMOKE, "default": DEFAULT, "paper": PAPER}


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
