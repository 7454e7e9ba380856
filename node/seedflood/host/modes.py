"""The modes of a run by name, each with the function that opens its engine.

A built-in mode is listed here and has its table of settings in `config/run`. Any other is registered with `add_mode`
before settings are loaded.
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
"""Loads model and journal: (settings, key, compute thread, telemetry hub, clean-up if the daemon does not start) ->
engine. Raises SeedfloodError."""

MODES: dict[str, Open] = {"seedflood": open_seedflood, "gasloc": open_gasloc}


def add_mode(name: str, table: type[AlgorithmSettings], open_engine: Open) -> None:
    """Registers a way of training. Then `[run] mode` may be this name, and `[run.NAME]` holds the settings of
    `table`."""
    add_algorithm(name, table)
    MODES[name] = open_engine
