"""The two commands: `seedflood-node` runs the daemon of one host, `seedflood` is for everything around it.

stdout carries data, stderr carries logs and faults. A fault is one sentence and an exit code (errors.py). Operators
never see a traceback unless they ask for it by SEEDFLOOD_TRACEBACK=1.
"""

import sys
from typing import Any

from seedflood.errors import ExitCode
from seedflood.host import signals

__all__ = ["main", "node_main"]


def main() -> None:
    """`seedflood`."""
    _run("seedflood", is_daemon=sys.argv[1:2] == ["relay"])


def node_main() -> None:
    """`seedflood-node`."""
    _run("seedflood-node", is_daemon=True)


def _run(name: str, *, is_daemon: bool) -> None:
    """Reading all modules takes a second, in which signals count, too."""
    with signals.begin(is_daemon=is_daemon):
        try:
            from seedflood.cli.faults import run_command
        except KeyboardInterrupt:
            print(f"{name}: interrupted", file=sys.stderr)
            sys.exit(ExitCode.TRY_AGAIN)

        run_command(lambda **given: _app(name)(**given), name)


def _app(name: str) -> Any:
    from seedflood.cli import commands

    return commands.node_app if name == "seedflood-node" else commands.app
