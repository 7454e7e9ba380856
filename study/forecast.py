"""What is left of a study, and how long it will take, by the cells that have been measured."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean

from study.cell import Cell
from study.methods import METHODS
from study.plan import Study
from study.results import Results
from study.summary import all_tries, chosen, left


@dataclass(frozen=True, slots=True)
class Share:
    """Of a study. seconds: of one core, for what is left; None if nothing like it has been measured."""

    title: str
    cells: int
    left: int
    seconds: float | None


def forecast(study: Study, results: Results) -> Iterator[Share]:
    """The tries that are known so far, then each part without the cells of those before it. A method whose options are
    not chosen yet counts as if the first of its grid were."""
    speeds = _speeds(results)
    options = {name: METHODS[name].grid[0] for name in study.used()} | chosen(study, results)
    seen: set[Cell] = set()
    parts = [("Options", all_tries(study, results))]
    parts += [(part.title, list(study.cells_of(part, options))) for part in study.plan.parts]
    for title, cells in parts:
        new = [cell for cell in dict.fromkeys(cells) if cell not in seen]
        seen.update(new)
        waiting = left(new, results)
        yield Share(title, len(new), len(waiting), _seconds(waiting, speeds))


def _speeds(results: Results) -> dict[tuple[str, str], float]:
    """Seconds of a client's step, by model and method."""
    found = defaultdict(list)
    for result in results:
        found[result.cell.model, result.cell.method].append(result.seconds / result.cell.work)
    return {key: mean(seconds) for key, seconds in found.items()}


def _seconds(cells: Sequence[Cell], speeds: dict[tuple[str, str], float]) -> float | None:
    """As long as the mean of the other methods where a method has not been measured."""
    total = 0.0
    for cell in cells:
        others = [seconds for (model, _), seconds in speeds.items() if model == cell.model]
        if not others:
            return None
        total += cell.work * speeds.get((cell.model, cell.method), mean(others))
    return total
