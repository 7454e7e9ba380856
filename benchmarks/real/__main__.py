"""`python -m benchmarks.real`: see the package."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.real import daemons, yardsticks
from benchmarks.real.plan import EXERCISES, LINES, Exercise, base_cell, cells
from seedflood.config import ObjectiveSettings
from study.cell import Cell, Result
from study.methods.clients import use_one_thread
from study.results import Results, alone
from study.rows import split


def main(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of results.")],
    data: Annotated[Path, typer.Option(metavar="FOLDER", help="Has a folder for each task.")],
    model: Annotated[Path, typer.Option(metavar="FOLDER", help="The model.")],
    task: Annotated[list[str] | None, typer.Option(help=f"{', '.join(EXERCISES)} (default: all); repeatable.")] = None,
    line: Annotated[list[str] | None, typer.Option(help=f"{', '.join(LINES)} (default: all); repeatable.")] = None,
) -> None:
    """Measures what is left."""
    use_one_thread()
    with alone(out):
        results = Results(out)
        for name in task or EXERCISES:
            _measure_all(EXERCISES[name], line or LINES, str(model), data / name, out, results)


def _measure_all(exercise: Exercise, lines: Sequence[str], model: str, data: Path, out: Path, results: Results) -> None:
    rows = split(ObjectiveSettings(task=exercise.task), str(data), exercise.rows, out / "rows")
    base = base_cell(exercise, model, rows.digest)
    for cell in (cell for line in lines for cell in cells(line, base, results)):
        if cell not in results:
            result = _measure(cell, rows.final)
            results.add(result)
            _tell(result)


def _measure(cell: Cell, data: Path) -> Result:
    measure = daemons.measure if cell.method in daemons.ESTIMATES else yardsticks.measure
    return measure(cell, data)


def _tell(result: Result) -> None:
    cell, end = result.cell, result.course[-1]
    options = " ".join(f"{key} {value}" for key, value in cell.options)
    typer.echo(f"{cell.task} {cell.method} {options} seed {cell.seed}: {end}, {result.seconds:.0f} s")


if __name__ == "__main__":
    typer.run(main)
