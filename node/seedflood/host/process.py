"""One daemon as an operating system process: start-up and signals (exit codes: `errors`).

SIGTERM and SIGINT drain the node, a second one ends it at once; SIGHUP reads `[[peers]]` and the roster again and makes
a new certificate.
"""

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import uvloop

from seedflood import durable
from seedflood.config import Settings
from seedflood.errors import ConfigError, ExitCode
from seedflood.host import garbage, signals
from seedflood.host.compute import ComputeThread
from seedflood.host.daemon import Daemon
from seedflood.host.enrolment import Enrolment
from seedflood.host.leaving import leave
from seedflood.host.modes import Open, opener
from seedflood.host.places import KEY_FILE, make_folder
from seedflood.identity import Identity
from seedflood.listening import listen_at
from seedflood.log import log
from seedflood.operations.console import Console
from seedflood.operations.status import describe_line
from seedflood.operations.systemd import Notifier


def run_process(settings: Settings, reload: Callable[[], Settings] | None = None) -> ExitCode:
    """Runs a daemon until its run is over or a signal ends it. Raises SeedfloodError.

    reload: reads the settings again, for SIGHUP.
    """
    garbage.exclude()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_Process(settings, reload).serve())


async def start_daemon(settings: Settings, open_engine: Open | None = None) -> Daemon:
    """Loads key and model, opens the journal and the links. open_engine: default: that of the mode. Raises
    SeedfloodError, and leaves nothing open then.

    Probes and the page are served first, before the model is loaded; and a port that is in use is reported before that.
    """
    run = settings.run
    identity = _load_identity(settings.node.state)
    enrolment = Enrolment.open(settings, identity)
    if address := settings.node.listen:
        listen_at(address, "[node] listen").close()
    async with AsyncExitStack() as undo:
        console = await Console.open(settings, identity.origin)
        undo.push_async_callback(console.close)
        hub = console.hub
        compute = ComputeThread()
        undo.push_async_callback(asyncio.to_thread, compute.close, 0.0)
        what = {"mode": run.mode, "model": run.model, "task": run.objective.task}
        hub.log("loading", **what, run_id=run.shown_id(), http=console.address)
        engine = await (open_engine or opener(settings))(settings, identity, compute, hub, undo)
        if (damaged := engine.journal.damaged) is not None:
            hub.log("the journal was damaged; what was lost is pulled from neighbours", "error", kept_at=str(damaged))
        daemon = Daemon(settings, identity, engine, compute, console, asyncio.get_running_loop(), enrolment)
        undo.push_async_callback(daemon.close)
        await daemon.start()
        undo.pop_all()
    return daemon


def _load_identity(state: Path) -> Identity:
    """The key of the host. Also makes the state folder. Raises ConfigError."""
    identity = Identity.load_or_create(make_folder(state) / KEY_FILE)
    with suppress(PermissionError):  # who may not read the folder above did not make this one in it
        durable.sync_folder(state.parent)
    return identity


class _Process:
    """The operating system process: runs a daemon, and handles signals."""

    def __init__(self, settings: Settings, reload: Callable[[], Settings] | None) -> None:
        self._settings = settings
        self._read_again = reload
        self._notifier = Notifier.from_environment()
        self._daemon: Daemon | None = None
        """None while a model is loaded."""
        self._is_reload_due = False
        self._signals = 0

    async def serve(self) -> ExitCode:
        loop, notifier = asyncio.get_running_loop(), self._notifier
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, signal.Signals(number).name)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        self._is_reload_due = signals.take_reload()
        notifier.status("loading the model")
        notifier.start_watchdog(loop, self._describe)
        try:
            await self._serve_run()
        finally:
            notifier.stop_watchdog()
        return ExitCode.OK

    async def _serve_run(self) -> None:
        """Serves the run until it is over here or a signal ends it."""
        self._daemon = daemon = await start_daemon(self._settings)
        garbage.settle()
        self._notifier.ready()
        if self._is_reload_due:
            self._reload()
        try:
            await daemon.ended
        finally:
            self._notifier.stopping()
            await daemon.close()
        results = daemon.engine.results
        if results is not None and results.unexported is not None:
            raise results.unexported  # raised only now, since others have still to learn of the run's end
        if daemon.result is None:
            log.info("stopped before the end of the run; start again to go on", step=daemon.node.step)
        if not daemon.is_compute_idle:
            log.warning("a compute job still runs; leaving without waiting for it")
            leave(ExitCode.OK)

    def _describe(self) -> str:
        return describe_line(self._daemon.hub if self._daemon is not None else None)

    def _stop(self, name: str) -> None:
        self._signals += 1
        self._notifier.stopping()
        if self._daemon is None:  # still loading: nothing was sent yet, and loading cannot be interrupted
            log.info(signals.STOPPED, signal=name)
            leave(ExitCode.OK)
        self._daemon.hub.log("draining" if self._signals == 1 else "forced to stop", signal=name)
        if self._signals > 1:
            leave(ExitCode.TRY_AGAIN)
        self._daemon.drain()

    def _reload(self) -> None:
        """Reads `[[peers]]` and the roster again, and makes a new certificate. All other settings need a restart, and
        are named if they have changed."""
        daemon = self._daemon
        if self._read_again is None:
            return
        self._is_reload_due = daemon is None
        if daemon is None:
            log.info("settings are read again as soon as the model is loaded")
            return
        self._notifier.reloading()
        try:
            settings = self._read_again()
            roster = daemon.enrolment.read(settings.node.roster)
        except ConfigError as error:
            daemon.hub.log("not reloaded", "error", reason=str(error))
        else:
            addresses = [peer.address for peer in settings.peers]
            if roster is not None:
                daemon.enrol(roster)
            daemon.dial(addresses, settings.pins)
            daemon.credentials.renew()
            if waiting := self._settings.changes_until_restart(settings):
                daemon.hub.log("other changes count after a restart only", "warning", settings=waiting)
            daemon.hub.log("reloaded", peers=addresses)
        self._notifier.ready()
