"""The two commands: `seedflood-node` runs the daemon of one host, `seedflood` is for everything around it.

stdout carries data, stderr carries logs and faults. A fault is one sentence and an exit code (errors.py). Operators
never see a traceback unless they ask for it by SEEDFLOOD_TRACEBACK=1.
"""

from typing import Any

from seedflood.cli.faults import run_command

__all__ = ["main", "node_main"]


def main() -> None:
    """`seedflood`."""
    run_command(lambda **told: _commands().app(**told), "seedflood")


def node_main() -> None:
    """`seedflood-node`."""
    run_command(lambda **told: _commands().node_app(**told), "seedflood-node")


def _commands() -> Any:
    """Reading all modules takes a second, in which whoever presses Ctrl-C is to see a sentence, too."""
    from seedflood.cli import commands

    return commands
