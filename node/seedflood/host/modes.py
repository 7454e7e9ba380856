"""The modes of a run, by name: how a host opens the engine of each.

One that is built in stands here, and has its table in `config/run`. Another one comes in by `add_mode`, before any
settings are loaded.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from seedflood.config import AlgorithmSettings, Settings, add_algorithm
from seedflood.host.compute_thread import ComputeThread
from seedflood.host.engine import Engine
from seedflood.host.gasloc.engine import open_gasloc
from seedflood.host.seedflood.engine import open_seedflood
from seedflood.identity import Identity
from seedflood.operations.hub import TelemetryHub

Open = Callable[[Settings, Identity, ComputeThread, TelemetryHub, AsyncExitStack], Awaitable[Engine]]
"""Loads model and journal: (settings, key, compute thread, telemetry, what to undo if the daemon does not come up).
Raises SeedfloodError."""

MODES: dict[str, Open] = {"seedflood": open_seedflood, "gasloc": open_gasloc}


def add_mode(name: str, table: type[AlgorithmSettings], open_engine: Open) -> None:
    """One more way of training: `[run] mode` may be this name, and `[run.NAME]` has the settings of the table."""
    add_algorithm(name, table)
    MODES[name] = open_engine
