"""`seedflood tune`: a short sweep of learning rates on the run's own rows."""

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from seedflood.cli.options import (
    DATA_HELP,
    TASK_HELP,
    JsonOption,
    SetOption,
    facts_read,
    parse_overrides,
    say,
    show_facts,
    table_console,
    with_guess,
)
from seedflood.config import check_folders, load_settings, merge
from seedflood.errors import UsageError

OF_THE_RUN = ("nodes", "model", "task", "data", "train_examples", "seed")
"""Flags that tell a run, which --peers does, too."""


def tune(
    context: typer.Context,
    peers: Annotated[
        Path | None,
        typer.Option(
            "--peers", metavar="FILE", help="Take the run of this peers.toml; without it, that of the flags below."
        ),
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, max=65536, help="How many origins the run has.")] = 4,
    model: Annotated[str, typer.Option(help="Base model: embedded, a folder or a hub name.")] = "embedded",
    task: Annotated[str | None, typer.Option(help=TASK_HELP)] = None,
    data: Annotated[str | None, typer.Option(help=DATA_HELP)] = None,
    train_examples: Annotated[int, typer.Option(help="Training rows, split over the nodes.")] = 1024,
    seed: Annotated[int, typer.Option(help="Seed of the run.")] = 1,
    steps: Annotated[int | None, typer.Option(min=1, help="Per learning rate (32 of gradients, else 100).")] = None,
    rates: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Learning rates to try, instead of some around the default.")
    ] = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Finds a learning rate: tries some on the run's own rows, in one process, and recommends one.

    No daemon runs and nothing is written to the run's state. With --peers, rows and model are those that this host has.

    Examples:

        seedflood tune --peers peers.toml

        seedflood tune --nodes 4 --model ./opt-125m --task sst2 --data ./sst2 --set run.seedflood.estimate=gradient
    """
    chosen = _parse_rates(rates)
    flags = parse_overrides(overrides)
    sources = {name: context.get_parameter_source(name) for name in OF_THE_RUN}
    told = next((name for name, source in sources.items() if source and source.name == "COMMANDLINE"), None)
    if peers is not None and told is not None:
        flag = "--" + told.replace("_", "-")
        raise UsageError(f"--peers tells the run: in place of {flag} give --set SECTION.KEY=VALUE.")
    if peers is None:
        run = {
            "model": model,
            "objective": {"task": task or ("embedded" if model == "embedded" else "sst2")},
            "clients": nodes,
            "train_examples": train_examples,
            "seed": seed,
        }
        node = {"data": data} if data is not None else {}
        flags = merge({"run": run, "node": node}, with_guess(flags, task, data))
    settings = load_settings(peers, flags)
    check_folders(settings)

    from seedflood.offline.tuning import displayed, show_sweep, sweep  # torch takes seconds to import

    with displayed() as report:
        result = sweep(settings, chosen, steps, report)
    read = facts_read(settings, has_state=False)
    if as_json:
        say(json.dumps({**read, **result.facts()}))
    else:
        show_facts(read)
        show_sweep(result, table_console())


def _parse_rates(text: str | None) -> list[float]:
    try:
        rates = [float(part) for part in (text or "").split(",") if part.strip()]
    except ValueError:
        rates = [0.0]
    if text is not None and (not rates or not all(rate > 0 and math.isfinite(rate) for rate in rates)):
        raise UsageError(f'--rates "{text}" must be positive numbers with commas between them, such as 1e-4,3e-4.')
    return rates
