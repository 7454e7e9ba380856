"""`python -m benchmarks [NAME] [--json]`."""

import json
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks import apply, step
from benchmarks.measure import report

BENCHMARKS = {"step": step.run, "apply": apply.run}


def main(
    name: Annotated[str | None, typer.Argument(help=f"One of {', '.join(BENCHMARKS)}; without it, all.")] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads of torch.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per benchmark.")] = False,
) -> None:
    """Runs benchmarks and prints their metrics: medians over repetitions, with spread and target."""
    if name is not None and name not in BENCHMARKS:
        raise typer.BadParameter(f"there is no benchmark {name!r}; choose one of {', '.join(BENCHMARKS)}")
    if threads is not None:
        torch.set_num_threads(threads)
    for chosen in [name] if name else list(BENCHMARKS):
        metrics = BENCHMARKS[chosen]()
        if as_json:
            typer.echo(json.dumps(report(chosen, metrics)))
            continue
        table = Table("metric", "median", "min", "max", "target", "met", title=chosen)
        for metric, value in metrics.items():
            met = "" if value.met is None else ("yes" if value.met else "no")
            table.add_row(metric, *(f"{x:g}" for x in (value.median, value.min, value.max)), f"{value.target}", met)
        Console().print(table)


if __name__ == "__main__":
    typer.run(main)
