"""The modes of a run by name, each with the function that opens its engine.

A built-in mode is listed here and has its table of settings in `config/run`. Any other is registered with `add_mode`
before settings are loaded.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from importlib import import_module

from seedflood.config import AlgorithmSettings, Settings, add_algorithm
from seedflood.host.compute import ComputeThread
from seedflood.host.engine import Engine
from seedflood.identity import Identity
from seedflood.operations.hub import TelemetryHub

Open = Callable[[Settings, Identity, ComputeThread, TelemetryHub, AsyncExitStack], Awaitable[Engine]]
"""Loads model and journal: (settings, key, compute thread, telemetry hub, clean-up if the daemon does not start) ->
engine. Raises SeedfloodError."""


def _late(module: str, name: str) -> Open:
    """A function that is imported when it is called: a relay has no torch."""
    return lambda *given: getattr(import_module(module), name)(*given)


MODES: dict[str, Open] = {
    "seedflood": _late("seedflood.host.seedflood.engine", "open_seedflood"),
    "gasloc": _late("seedflood.host.gasloc.engine", "open_gasloc"),
}


def opener(settings: Settings) -> Open:
    """What opens the engine of this host."""
    if settings.node.role == "relay":
        return _late("seedflood.host.seedflood.relay", "open_relay")
    return MODES[settings.run.mode]


def add_mode(name: str, table: type[AlgorithmSettings], open_engine: Open) -> None:
    """Registers a way of training. Then `[run] mode` may be this name, and `[run.NAME]` holds the settings of
    `table`."""
    add_algorithm(name, table)
    MODES[name] = open_engine
