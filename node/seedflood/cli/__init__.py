"""The two commands: `seedflood-node` runs one host's daemon, `seedflood` is for everything around it.

stdout carries data, stderr carries logs and faults. A fault is one sentence and an exit code (errors.py); a traceback
never reaches an operator unless it is asked for by SEEDFLOOD_TRACEBACK=1.
"""

from seedflood.cli.commands import main, node_main

__all__ = ["main", "node_main"]
