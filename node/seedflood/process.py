"""One daemon as an operating system process: start-up, signals, exit code.

SIGTERM and SIGINT drain, a second one forces; SIGHUP reads `[[peers]]` again.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import structlog
import uvloop

from seedflood.compute import ComputeThread
from seedflood.config import Settings, load_settings
from seedflood.daemon import Daemon
from seedflood.errors import ConfigError, ExitCode
from seedflood.identity import Identity
from seedflood.storage.journal import Journal
from seedflood.training.trainer import Trainer

KEY_FILE, JOURNAL_FILE = "identity.pem", "journal.sqlite"

_log = structlog.stdlib.get_logger("seedflood")


def run_process(settings: Settings, peers_file: Path | None = None) -> ExitCode:
    """Runs one daemon until its run has ended or a signal came. Raises SeedfloodError."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings, peers_file))


async def start_daemon(settings: Settings) -> Daemon:
    """Loads key, model and rows, opens the journal and the links. Raises SeedfloodError, leaving nothing open."""
    node = settings.node
    identity = Identity.load_or_create(_make_folder(node.state) / KEY_FILE)
    loop = asyncio.get_running_loop()
    compute = ComputeThread()
    _log.info("loading", model=settings.run.model, task=settings.run.task, run=settings.run.run_id().hex()[:16])
    try:
        trainer = await compute.run(lambda: Trainer(settings.run, node))
        journal = Journal.open(node.state / JOURNAL_FILE, settings.run.run_id(), trainer.base_digest)
    except BaseException:
        await asyncio.to_thread(compute.close)
        raise
    daemon = Daemon(settings, identity, trainer, journal, compute, loop)
    try:
        await daemon.start()
    except BaseException:
        await daemon.close()
        raise
    return daemon


async def _serve(settings: Settings, peers_file: Path | None) -> ExitCode:
    loop = asyncio.get_running_loop()
    starting = asyncio.create_task(start_daemon(settings))
    daemon: Daemon | None = None
    stopping = 0

    def stop(name: str) -> None:
        nonlocal stopping
        stopping += 1
        if stopping > 1:
            _log.warning("forced to stop", signal=name)
            sys.stderr.flush()
            os._exit(ExitCode.TRY_AGAIN)
        _log.info("draining", signal=name)
        if daemon is None:
            starting.cancel()
        else:
            daemon.drain()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, signal.Signals(number).name)
    loop.add_signal_handler(signal.SIGHUP, lambda: _reload(daemon, peers_file))
    try:
        daemon = await starting
    except asyncio.CancelledError:
        return ExitCode.OK
    try:
        await daemon.ended
    finally:
        await daemon.close()
    return ExitCode.OK


def _reload(daemon: Daemon | None, peers_file: Path | None) -> None:
    """Reads `[[peers]]` again; everything else needs a restart."""
    if daemon is None or peers_file is None:
        return
    try:
        fresh = load_settings(peers_file)
    except ConfigError as error:
        _log.error("not reloaded", reason=str(error))
        return
    daemon.dial([peer.address for peer in fresh.peers])
    _log.info("reloaded", peers=[peer.address for peer in fresh.peers])


def _make_folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(f"the state folder {path} cannot be made: {error.strerror}; set [node] state.") from None
    return path
