"""What is left of a study, and how long it will take: by the cells that have been measured, or by a sample."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from study.cell import Cell
from study.methods import METHODS
from study.plan import Study
from study.results import Results
from study.summary import all_tries, chosen, left

Speeds = Mapping[str, float]
"""Seconds of a client's step, by method."""


@dataclass(frozen=True, slots=True)
class Share:
    """Of a study. seconds: of one core, for what is left."""

    title: str
    cells: int
    left: int
    seconds: float


def measured_speeds(study: Study, results: Results) -> Speeds:
    """By the cells of the study's model that have been measured."""
    found = defaultdict(list)
    for result in results:
        if result.cell.model == study.model:
            found[result.cell.method].append(result.seconds / result.cell.work)
    return {name: mean(seconds) for name, seconds in found.items()}


def sampled_speeds(study: Study, sample: Callable[[Cell], float]) -> Speeds:
    """By a sample of one method with gradients and one without, those that the study has. sample: seconds of a
    cell."""
    of_order = {METHODS[name].order: name for name in reversed(study.used())}
    cells = [study.grid_of(name)[0] for name in of_order.values()]
    return {cell.method: sample(cell) / cell.work for cell in cells}


def forecast(study: Study, results: Results, speeds: Speeds) -> Iterator[Share]:
    """The tries that are known so far, then each part without the cells of those before it. A method whose options are
    not chosen yet counts as if the first of its grid were."""
    options = {name: METHODS[name].grid[0] for name in study.used()} | chosen(study, results)
    seen: set[Cell] = set()
    parts = [("Options", all_tries(study, results))]
    parts += [(part.title, list(study.cells_of(part, options))) for part in study.plan.parts]
    for title, cells in parts:
        new = [cell for cell in dict.fromkeys(cells) if cell not in seen]
        seen.update(new)
        waiting = left(new, results)
        yield Share(title, len(new), len(waiting), _seconds(waiting, speeds))


def _seconds(cells: Sequence[Cell], speeds: Speeds) -> float:
    """As long as the mean of the other methods where a method has not been measured."""
    return sum(cell.work * (speeds.get(cell.method) or mean(speeds.values())) for cell in cells)
