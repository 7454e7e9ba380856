"""One daemon as an operating system process: start-up and signals (exit codes: `errors`).

SIGTERM and SIGINT drain, a second one forces; SIGHUP reads `[[peers]]` again.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NoReturn

import structlog
import uvloop

from seedflood.config import Settings
from seedflood.errors import ConfigError, ExitCode
from seedflood.host import garbage
from seedflood.host.compute_thread import ComputeThread
from seedflood.host.daemon import Daemon
from seedflood.host.modes import MODES
from seedflood.host.places import KEY_FILE
from seedflood.identity import Identity
from seedflood.operations.console import Console
from seedflood.operations.status import describe_line
from seedflood.operations.systemd import Notifier

_log = structlog.stdlib.get_logger("seedflood")


def run_process(settings: Settings, reload: Callable[[], Settings] | None = None) -> ExitCode:
    """Runs one daemon until its run has ended or a signal came. Raises SeedfloodError.

    reload: reads the settings again, for SIGHUP.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings, reload))


async def start_daemon(settings: Settings) -> Daemon:
    """Loads key and model, opens the journal and the links. Raises SeedfloodError, leaving nothing open.

    Whoever looks sees the node from the beginning: probes and the page are served before the model is loaded.
    """
    node, run = settings.node, settings.run
    identity = Identity.load_or_create(_make_folder(node.state) / KEY_FILE)
    async with AsyncExitStack() as undo:
        console = await Console.open(settings, identity.origin)
        undo.push_async_callback(console.close)
        hub = console.hub
        compute = ComputeThread()
        undo.push_async_callback(asyncio.to_thread, compute.close, 0.0)
        what = {"mode": run.mode, "model": run.model, "task": run.objective.task}
        hub.tell("loading", **what, run_id=run.run_id().hex()[:16], http=console.address)
        engine = await MODES[run.mode](settings, identity, compute, hub, undo)
        if engine.journal.damage is not None:
            facts = engine.journal.damage.facts()
            hub.tell("the journal was damaged; what is lost comes from the neighbours", "error", **facts)
        daemon = Daemon(settings, identity, engine, compute, console, asyncio.get_running_loop())
        undo.push_async_callback(daemon.close)
        await daemon.start()
        undo.pop_all()
    return daemon


async def _serve(settings: Settings, reload: Callable[[], Settings] | None) -> ExitCode:
    loop = asyncio.get_running_loop()
    notifier = Notifier.from_environment()
    daemon: Daemon | None = None
    signals = 0

    def stop(name: str) -> None:
        nonlocal signals
        signals += 1
        notifier.stopping()
        if daemon is None:  # still loading: nothing was said, and a load cannot be interrupted
            _log.info("stopped while loading", signal=name)
            _leave(ExitCode.OK)
        daemon.hub.tell("draining" if signals == 1 else "forced to stop", signal=name)
        if signals > 1:
            _leave(ExitCode.TRY_AGAIN)
        daemon.drain()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, signal.Signals(number).name)
    loop.add_signal_handler(signal.SIGHUP, lambda: _reload(daemon, reload, notifier))
    notifier.status("loading the model")
    notifier.start_watchdog(loop, lambda: describe_line(daemon.hub if daemon is not None else None))
    try:
        daemon = await start_daemon(settings)
        garbage.settle()
        notifier.ready()
        try:
            await daemon.ended
        finally:
            notifier.stopping()
            await daemon.close()
    finally:
        notifier.stop_watchdog()
    if daemon.result is None:
        _log.info("left before the end; start again to go on", step=daemon.node.step)
    if not daemon.is_compute_idle:
        _log.warning("a job of the model still runs; it is not waited for")
        _leave(ExitCode.OK)
    return ExitCode.OK


def _reload(daemon: Daemon | None, reload: Callable[[], Settings] | None, notifier: Notifier) -> None:
    """Reads `[[peers]]` again; everything else needs a restart."""
    if daemon is None or reload is None:
        return
    notifier.reloading()
    try:
        addresses = [peer.address for peer in reload().peers]
    except ConfigError as error:
        daemon.hub.tell("not reloaded", "error", reason=str(error))
    else:
        daemon.dial(addresses)
        daemon.hub.tell("reloaded", peers=addresses)
    notifier.ready()


def _leave(code: ExitCode) -> NoReturn:
    """Ends the process at once. Nothing needs closing: journal and event log are as safe as under kill -9."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _make_folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(f"the state folder {path} cannot be made: {error.strerror}; set [node] state.") from None
    return path
