"""The daemon beside a script: in the one event loop of the process, which has a thread of its own.

gRPC binds itself to the first loop that it meets, so a second run in the same process uses the same loop. The loop ends
before the interpreter does: a thread that still runs then may take the process down.
"""

import asyncio
import atexit
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import cache, partial
from typing import Any, TypeVar

import uvloop

from seedflood.config import Settings
from seedflood.host.daemon import Daemon
from seedflood.host.process import start_daemon
from seedflood.host.seedflood.engine import open_seedflood
from seedflood.log import log
from seedflood.protocol.origin import OriginId
from seedflood.training.seedflood.lending import Handover, LendingTrainer

Answer = TypeVar("Answer")

HERE = ("self", "linked", "reachable")
"""The states of those who take part now."""


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="seedflood", daemon=True)
    thread.start()

    def end() -> None:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    atexit.register(end)
    return loop


class Hosting:
    """A daemon whose steps are measured by the thread that made this. trainer: of the model, once it is made."""

    trainer: LendingTrainer
    unexported: Exception | None = None
    """Why `[node] export` was not written."""

    def __init__(self, settings: Settings, model: Any, handover: Handover) -> None:
        """Returns when the daemon runs. Raises what keeps it from that; then nothing is left of it."""
        self._settings, self._model, self._handover = settings, model, handover
        self._is_unwanted = False
        self._started: Future[Daemon] = Future()
        self._served = asyncio.run_coroutine_threadsafe(self._serve(), _loop())
        try:
            self._daemon = self._started.result()
        except BaseException:  # also Ctrl-C, while the model is loaded
            self._is_unwanted = True
            _loop().call_soon_threadsafe(self._end_if_unwanted)
            self._served.exception()
            raise
        self.origin: OriginId = self._daemon.identity.origin

    def leave(self) -> None:
        """Says goodbye to the neighbours, and closes everything; then the weights stand for all that was applied.
        Returns when that is done."""
        if not self._served.done():
            self._ask(self._daemon.drain)
        self._served.exception()
        if not self._daemon.is_compute_idle:
            log.warning("waiting for the compute thread, so that the model has what was learned")
            self._daemon.wait_for_compute()
        self.trainer.close()
        results = self._daemon.engine.results
        self.unexported = None if results is None else results.unexported

    @property
    def step(self) -> int:
        return self._daemon.node.step

    def bytes_sent(self) -> int:
        links = self._daemon.links
        return self._ask(lambda: sum(one.bytes_sent for one in links.totals.stats().values()))

    def figures(self) -> Mapping[str, float]:
        """Those of the status page, and how many `hosts` take part now."""

        def look() -> Mapping[str, float]:
            view = self._daemon.status_source.view()
            here = [one for one in view.members if one.first_step is not None and one.status in HERE]
            return {**view.figures, "hosts": float(len(here))}

        return self._ask(look)

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        """What this returns on the loop, where the tables of the daemon may be read."""

        async def answer() -> Answer:
            return question()

        if not _loop().is_running():
            raise RuntimeError("the interpreter ends, and the event loop of seedflood has ended")
        return asyncio.run_coroutine_threadsafe(answer(), _loop()).result()

    def _end_if_unwanted(self) -> None:
        if self._is_unwanted and self._started.done() and self._started.exception() is None:
            self._started.result().drain()

    def _load(self) -> LendingTrainer:
        self.trainer = LendingTrainer(self._settings.run, self._settings.node, self._model, self._handover)
        return self.trainer

    async def _serve(self) -> None:
        """Runs the daemon until the run is over, or it is drained. Raises what ends it before that."""
        try:
            daemon = await start_daemon(self._settings, partial(open_seedflood, load=self._load))
        except BaseException as error:
            self._handover.finish(fault=error)  # the compute thread may wait for the script already
            self._started.set_exception(error)
            return
        self._started.set_result(daemon)
        self._end_if_unwanted()
        try:
            await daemon.ended
            self._handover.finish(is_over=daemon.result is not None)
        except BaseException as error:
            self._handover.finish(fault=error)
            raise
        finally:
            await daemon.close()
