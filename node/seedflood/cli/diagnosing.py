"""`seedflood doctor`: what may be wrong with a host before its run."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from seedflood.cli.options import JsonOption, PeersOption, SetOption, parse_overrides, say, table_console
from seedflood.cli.watching import describe_reach
from seedflood.config import load_settings
from seedflood.errors import ExitCode, SeedfloodError
from seedflood.operations.client import node_in

COLOURS = {"ok": "green", "note": "yellow", "bad": "bold red"}


def doctor(peers: PeersOption = Path("peers.toml"), overrides: SetOption = None, as_json: JsonOption = False) -> None:
    """Checks this host before a run: settings, key, clock, port, peers, rows, memory, disk, speed and traffic.

    One line for each, and what to do about those that are bad. A step is measured; nothing is written. Exits with 0,
    or with the code of the first that is bad.

    Example:

        seedflood doctor --peers peers.toml
    """
    from seedflood.offline.doctor import Check, examine

    code, console, flags = ExitCode.OK, table_console(), parse_overrides(overrides)
    for check in chain(examine(peers, flags), (Check("reach", "note", one) for one in _reach(peers, flags))):
        if as_json:
            say(json.dumps(dataclasses.asdict(check)))
        else:
            console.print(Text.assemble((f"{check.level:<5}", COLOURS[check.level]), f"{check.what:<9}", check.text))
        code = code or check.code
    raise typer.Exit(code)


def _reach(peers: Path, flags: dict[str, Any]) -> Iterator[str]:
    """What the neighbours have found out, if the node of this host runs."""
    with contextlib.suppress(SeedfloodError):
        yield from describe_reach(node_in(load_settings(peers, flags).node.state).ask("/api/status"))
