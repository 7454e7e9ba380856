"""Options that several commands share, and what they mean."""

import json
import math
import shutil
import sys
import sysconfig
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from seedflood import VERSION
from seedflood.config import EMBEDDED, EstimateName, Settings, divide_data, merge
from seedflood.errors import ConfigError, UsageError
from seedflood.terminal import Screen, visible

PIPE_COLUMNS = 240

SEEDFLOOD = "seedflood"
"""The mode of a run that fine-tunes."""

SizeName = Literal["small", "medium", "large"]
RANKS: dict[SizeName, int] = {"small": 5, "medium": 16, "large": 32}
"""The rank of a run by gradients, by the size of what it learns and sends. docs/explanation/choosing.md has the bytes
of each, and what was learned with them."""

DATA_HELP = "Rows: a file, a folder or a hub name, perhaps with its splits (ROWS#train,test)"
TASK_HELP = "embedded, places, sst2, rte, boolq, trec, agnews, prompted, lm, completion, chat, reward or own."


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"seedflood {VERSION}")
        raise typer.Exit


PeersOption = Annotated[
    Path, typer.Option("--peers", metavar="FILE", help="Settings of this host: peers.toml.", show_default=True)
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="SECTION.KEY=VALUE", help="Overrides a setting (`config show` lists them); repeatable."
    ),
]
VersionOption = Annotated[
    bool | None, typer.Option("--version", callback=_show_version, is_eager=True, help="Shows the version and exits.")
]
EstimateOption = Annotated[
    str | None,
    typer.Option(
        help=f"{', '.join(get_args(EstimateName))} ([run.seedflood] estimate).",
        show_default="two-sided; of reward and own: gradient",
    ),
]
SizeOption = Annotated[
    SizeName | None,
    typer.Option(
        metavar="NAME",
        help="small, medium or large: how much a step learns and sends. Takes --estimate gradient with --rank 5, 16 or "
        "32; a --rank beside it is stronger.",
    ),
]
RankOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1024,
        help="Rank of the subspace; bytes grow with it ([run.seedflood] rank).",
        show_default="32; of gradients 16",
    ),
]
LearningRateOption = Annotated[
    float | None,
    typer.Option(
        "--learning-rate",
        "--lr",
        callback=lambda rate: _check_rate(rate),
        help="How far a step goes ([run.seedflood] learning_rate).",
        show_default="by estimate, rank and model",
    ),
]
BatchSizeOption = Annotated[
    int | None,
    typer.Option(
        min=1, max=65_536, help="Rows per host and step ([run] batch_size).", show_default="16; of reward 4 prompts"
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout instead of a table.")]


def parse_overrides(overrides: list[str] | None) -> dict[str, Any]:
    """`run.steps=16` becomes {"run": {"steps": 16}}. A value that is not valid TOML is taken as text. Raises
    UsageError."""
    nested: dict[str, Any] = {}
    for override in overrides or ():
        path, equals, text = override.partition("=")
        table, _, key = path.strip().rpartition(".")
        if not equals or not table:
            raise UsageError(
                f'--set "{override}" is not SECTION.KEY=VALUE; write for example --set run.seedflood.rank=16.'
            )
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        given = {key: value}
        for name in reversed(table.split(".")):
            given = {name: given}
        nested = merge(nested, given)
    return nested


def tables_of(
    mode: str | None,
    estimate: str | None,
    size: SizeName | None,
    rank: int | None,
    learning_rate: float | None,
    batch_size: int | None,
) -> dict[str, Any]:
    """The tables of a run of this mode that say what these options say. Raises UsageError."""
    mode = mode or SEEDFLOOD
    if mode != SEEDFLOOD and (estimate, size, rank) != (None, None, None):
        raise UsageError(
            f'--estimate, --size and --rank are for mode "{SEEDFLOOD}"; with mode "{mode}" leave them out.'
        )
    if size is not None:
        if estimate not in (None, "gradient"):
            raise UsageError(f"--size is for --estimate gradient; an update of {estimate} has one size: leave it out.")
        estimate, rank = "gradient", rank or RANKS[size]
    given = {"estimate": estimate, "rank": rank, "learning_rate": learning_rate}
    table = {key: value for key, value in given.items() if value is not None}
    tables: dict[str, Any] = {mode: table} if table else {}
    if batch_size is not None:
        tables["batch_size"] = batch_size
    return tables


def _check_rate(rate: float | None) -> float | None:
    if rate is not None and not 0 < rate < math.inf:
        raise typer.BadParameter(f"it must be a number above 0, and is {rate}")
    return rate


def guessed(data: str, objective: Mapping[str, Any], hosts: int = 1) -> dict[str, Any]:
    """What `[run.objective]` has to say for these rows beside what it says. Rows of a known task that are not here are
    not looked at. Raises SeedfloodError."""
    if objective.get("task") == "own":
        raise ConfigError('task = "own" takes no rows here: the script of each host brings them; leave --data out.')
    place = Path(divide_data(data)[0])
    if data == EMBEDDED or ("task" in objective and not (place.is_file() or (place.is_dir() and any(place.iterdir())))):
        return {}
    from seedflood.training.guessing import guess_objective

    return guess_objective(data, objective, hosts)


def with_guess(flags: dict[str, Any], task: str | None, data: str | None, hosts: int = 1) -> dict[str, Any]:
    """The overrides of a run with `--task` and `--data`, and with what is `guessed` of these rows."""
    given = merge({"run": {"objective": {} if task is None else {"task": task}}}, flags)
    return (
        given if data is None else merge({"run": {"objective": guessed(data, given["run"]["objective"], hosts)}}, given)
    )


def facts_read(settings: Settings, *, has_state: bool = True) -> dict[str, Any]:
    """From where a command has read, for its output. has_state: what a node has learned, too."""
    node, run = settings.node, settings.run
    of_node = {"node": node.name, "state": str(node.state)} if has_state else {}
    return {**of_node, "model": str(node.model_path or run.model), "data": node.data or run.objective.task}


def typed(program: str) -> str:
    """A program of ours as it can be typed here: its name if it is on PATH, else where it is."""
    path = Path(sysconfig.get_path("scripts"), program)
    if (found := shutil.which(program)) and Path(found).resolve() == path.resolve():
        return program
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def say(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """To a person. What it quotes does nothing to a terminal."""
    typer.echo(visible(text), err=err, nl=nl)


def show_facts(facts: dict[str, Any], *, as_json: bool = False) -> None:
    """As a table, or as one JSON object."""
    if as_json:
        say(json.dumps(facts))
        return
    table = Table(show_header=False, box=None)
    for key, value in facts.items():
        table.add_row(key, Text(str(value)))
    table_console().print(table)


def table_console() -> Console:
    """A console as wide as the terminal. If stdout is no terminal, nothing is cut, for a program may look for a whole
    word."""
    return Screen() if sys.stdout.isatty() else Screen(width=PIPE_COLUMNS)
