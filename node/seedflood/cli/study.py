"""`seedflood study`: methods compared on the same rows."""

import json
from pathlib import Path
from typing import Annotated

import typer

from seedflood.cli.options import JsonOption, show_facts
from seedflood.errors import UsageError


def study(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of results, report and figures.")],
    plan: Annotated[
        str, typer.Option(help="smoke (a minute), default (hours) or paper (days, for hub models).")
    ] = "default",
    model: Annotated[str, typer.Option(help="Base model: embedded, a folder or a hub name.")] = "embedded",
    task: Annotated[str | None, typer.Option(help="embedded, places, sst2, rte, boolq, trec, agnews or lm.")] = None,
    data: Annotated[str | None, typer.Option(help="Folder or hub data set with the rows of the task.")] = None,
    methods: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Only these methods (default: all of the plan).")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes at once (default: one for each core).")] = None,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Write the report of what has been measured, and measure nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compares SeedFlood, GASLoC and their baselines: accuracy, bytes, time and consensus.

    Every method gets the same rows, and as many tries to choose its options by validation rows; test rows are measured
    once. Results are kept one by one: a study that was stopped, however that happened, goes on where it was. The same
    folder may hold studies of several models and tasks.

    Examples:

        seedflood study --plan smoke --out study

        seedflood study --model ./tiny-opt --task sst2 --data ./sst2 --methods seedflood,dsgd,adamw --out study

        seedflood study --out study --report-only
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is a file: name a folder.")

    from seedflood.study.extra import check_extra

    check_extra()
    from seedflood.study.harness import Display, cores, run  # torch takes seconds to import
    from seedflood.study.plan import Study, check_methods, find_plan
    from seedflood.study.report import write_report
    from seedflood.study.results import Results
    from seedflood.study.rows import objective_of, split

    found, names = find_plan(plan), check_methods([one.strip() for one in (methods or "").split(",") if one.strip()])
    objective = objective_of(task or ("embedded" if model == "embedded" else "sst2"))
    results = Results(out)
    if not report_only:
        with Display() as told:
            rows = split(objective, data, found.rows, out / "rows")
            wanted = Study(found, model, objective.task, rows.digest, names)
            run(wanted, rows, results, jobs or cores(), told)
    report = write_report(found, results, out)
    facts = {"report": str(report), "results": str(results.path), "cells": len(results)}
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        show_facts(facts)
