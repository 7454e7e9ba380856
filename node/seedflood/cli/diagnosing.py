"""`seedflood doctor`: what may be wrong with a host before its run."""

import dataclasses
import json
from pathlib import Path

import typer
from rich.text import Text

from seedflood.cli.options import JsonOption, PeersOption, SetOption, parse_overrides, table_console
from seedflood.errors import ExitCode

COLOURS = {"ok": "green", "note": "yellow", "bad": "bold red"}


def doctor(peers: PeersOption = Path("peers.toml"), overrides: SetOption = None, as_json: JsonOption = False) -> None:
    """Checks this host before a run: settings, key, clock, port, peers, rows, memory, disk, speed and traffic.

    One line for each, and what to do about those that are bad. A step is measured; nothing is written. Exits with 0,
    or with the code of the first that is bad.

    Example:

        seedflood doctor --peers peers.toml
    """
    from seedflood.offline.doctor import examine

    code, console = ExitCode.OK, table_console()
    for check in examine(peers, parse_overrides(overrides)):
        if as_json:
            typer.echo(json.dumps(dataclasses.asdict(check)))
        else:
            console.print(Text.assemble((f"{check.level:<5}", COLOURS[check.level]), f"{check.what:<9}", check.text))
        code = code or check.code
    raise typer.Exit(code)
