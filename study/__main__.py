"""`python -m study`: methods compared on the same rows."""

import json
from pathlib import Path
from typing import Annotated

import typer

from seedflood.cli.epilogs import EXIT_CODES
from seedflood.cli.faults import run_command
from seedflood.cli.options import JsonOption, show_facts
from seedflood.config import check_folders, load_settings
from seedflood.errors import JournalError, UsageError

app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)


@app.command(epilog=EXIT_CODES)
def study(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of results, report and figures.")],
    plan: Annotated[
        str,
        typer.Option(
            help="smoke (a minute), short (8 clients), default (hours), paper (days, for hub models) or pretrain (from "
            "scratch)."
        ),
    ] = "default",
    model: Annotated[str, typer.Option(help="Base model: embedded, a folder or a hub name.")] = "embedded",
    task: Annotated[
        str | None, typer.Option(help="embedded, places, sst2, rte, boolq, trec, agnews, lm, completion or chat.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Folder or hub data set with the rows of the task.")] = None,
    methods: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Only these methods (default: all of the plan).")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes at once (default: one for each core).")] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The report (default: study.md in the folder).")
    ] = None,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Write the report of what has been measured, and measure nothing.")
    ] = False,
    timings: Annotated[
        bool, typer.Option("--timings", help="Measure what estimates and updates cost on the model, and no learning.")
    ] = False,
    traffic: Annotated[
        bool,
        typer.Option("--traffic", help="Measure the bytes of a step of each method with the model, and no learning."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what is left to be measured, and how long it will take.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compares SeedFlood, GASLoC and their baselines: accuracy, bytes, time and consensus.

    Every method gets the same rows, and as many tries to choose its options by validation rows; test rows are measured
    once. Results are kept one by one: a study that was stopped, however that happened, goes on where it was. The same
    folder may hold studies of several models and tasks.

    Examples:

        python -m study --plan smoke --out study-results

        python -m study --model ./tiny-opt --task sst2 --data ./sst2 --methods seedflood,dsgd,adamw --out study-results

        python -m study --plan pretrain --task lm --data embedded --out study-results

        python -m study --out study-results --report-only
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is a file: name a folder.")

    from study.extra import check_extra

    check_extra()
    if not report_only:
        check_folders(load_settings(None, {"run": {"model": model}, "node": {"data": data}}))
    from study.commands import Request  # torch takes seconds to import

    names = [one.strip() for one in (methods or "").split(",") if one.strip()]
    request = Request.of(out, plan, model, task, data, names)
    try:
        if dry_run:
            facts = request.forecast(jobs)
        else:
            if timings:
                request.time()
            elif traffic:
                request.count_bytes()
            elif not report_only:
                request.run(jobs)
            facts = request.report(report or out / "study.md")
    except OSError as error:
        where = error.filename or out
        sentence = f"cannot write {where} ({error.strerror}): make room or get the rights, and start again."
        raise JournalError(f"{sentence} What has been measured is kept.") from error
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        show_facts(facts)


def main() -> None:
    """`python -m study`."""
    run_command(app, "study")


if __name__ == "__main__":
    main()
