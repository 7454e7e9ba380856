"""What results say: options that were chosen, and means over seeds."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from study.cell import Cell, Result, best
from study.links import Links, seconds_to
from study.methods.method import Option
from study.plan import OPTIONS, Part, Plan, Study
from study.results import Results

COSTS = ("edge_bytes", "forwards", "backwards", "measure_seconds", "exchange_seconds", "steps", "consensus_error")
"""Figures of the last point of a course; all others are those of the test rows."""


BASE = "base"
"""The setting of a plan, as `spell` says it."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Of a figure over seeds."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(mean(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Row:
    """The results of a method in one setting of a part, one for each seed that is there."""

    method: str
    setting: str
    results: tuple[Result, ...]

    def spread(self, figure: str) -> Spread | None:
        """None if a run has diverged, or has no such figure."""
        values = [_figure(result, figure) for result in self.results]
        found = [value for value in values if value is not None]
        return Spread.of(found) if values and len(found) == len(values) else None

    def seconds_to(self, loss: float, links: Links) -> Spread | None:
        """Until a validation loss is reached, by the points of the courses; None if a run has not reached it."""
        found = [seconds_to(result, loss, links) for result in self.results]
        seconds = [one for one in found if one is not None]
        return Spread.of(seconds) if seconds and len(seconds) == len(found) else None


def tries_of(study: Study, method: str, results: Results) -> list[Cell]:
    """All tries of a method that were made or are to be made next, as far as results tell."""
    cells = study.grid_of(method)
    while not left(cells, results):
        further = study.further_try(cells, best(results[cell] for cell in cells).cell)
        if further is None:
            break
        cells.append(further)
    return cells


def all_tries(study: Study, results: Results) -> list[Cell]:
    """`tries_of` all methods of a study."""
    return [cell for name in study.used() for cell in tries_of(study, name, results)]


def left(cells: Iterable[Cell], results: Results) -> list[Cell]:
    """Those that have no result yet."""
    return [cell for cell in cells if cell not in results]


def chosen(study: Study, results: Results) -> dict[str, Mapping[str, Option]]:
    """The options of every method whose tries have all been made."""
    tried = {name: tries_of(study, name, results) for name in study.used()}
    return {
        name: dict(best(results[cell] for cell in cells).cell.options)
        for name, cells in tried.items()
        if not left(cells, results)
    }


def rows_of(study: Study, part: Part, results: Results) -> list[Row]:
    """All settings of a part that have results, method by method."""
    options = chosen(study, results)
    rows = []
    for change in part.changes:
        alone = Part(part.title, part.methods, (change,))
        by_method: dict[str, list[Result]] = {}
        for cell in study.cells_of(alone, options):
            if cell in results:
                by_method.setdefault(cell.method, []).append(results[cell])
        rows += [Row(method, spell(change), tuple(found)) for method, found in by_method.items()]
    return rows


def spell(change: Mapping[str, Any]) -> str:
    """A change of the base setting, in words."""
    pairs = {**{key: value for key, value in change.items() if key != OPTIONS}, **change.get(OPTIONS, {})}
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in pairs.items()) or BASE


def halfway(rows: Iterable[Row]) -> float | None:
    """A loss to compare times by: in the middle between the base model's, and the least that a method ends with in the
    mean over seeds."""
    courses = [[result.course for result in row.results] for row in rows]
    ends = [[course[-1]["loss"] for course in one] for one in courses]
    least = min((mean(one) for one in ends if None not in one), default=None)
    return None if least is None else (courses[0][0][0]["loss"] + least) / 2


def studies_in(plans: Iterable[Plan], results: Results) -> Iterator[Study]:
    """Of all results, in the order in which they came: each by the plans that they have tries of."""
    for names in dict.fromkeys((one.cell.model, one.cell.task, one.cell.rows) for one in results):
        for study in (Study(plan, *names) for plan in plans):
            if any(cell in results for method in study.used() for cell in study.grid_of(method)):
                yield study


def _figure(result: Result, name: str) -> float | None:
    figures: Mapping[str, Any] = result.course[-1] if name in COSTS else result.test or {}
    value = figures.get(name)
    return None if value is None or math.isinf(result.loss) else float(value)
