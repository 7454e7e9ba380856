"""The modes of a run, by name: how a host opens the engine of each.

An algorithm is added here and in `config.algorithms` (its table of settings), and nowhere else in the shell.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from seedflood.config import Settings
from seedflood.host.compute_thread import ComputeThread
from seedflood.host.engine import Engine
from seedflood.host.seedflood.engine import open_seedflood
from seedflood.identity import Identity
from seedflood.operations.hub import TelemetryHub

Open = Callable[[Settings, Identity, ComputeThread, TelemetryHub, AsyncExitStack], Awaitable[Engine]]
"""Loads model and journal: (settings, key, compute thread, telemetry, what to undo if the daemon does not come up).
Raises SeedfloodError."""

MODES: dict[str, Open] = {"seedflood": open_seedflood}
