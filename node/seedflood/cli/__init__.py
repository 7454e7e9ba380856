"""The two commands: `seedflood-node` runs the daemon of one host, `seedflood` is for everything around it.

stdout carries data, stderr carries logs and faults. A fault is one sentence and an exit code (errors.py). Operators
never see a traceback unless they ask for it by SEEDFLOOD_TRACEBACK=1.
"""

from seedflood.cli.commands import main, node_main

__all__ = ["main", "node_main"]
