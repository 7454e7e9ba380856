"""The compute thread: runs the trainer's jobs one after the other, away from the event loop.

There is one thread, so jobs run in the order in which they were given: a window is applied before the next step is
measured. The thread never touches gRPC; results come back on the loop. It is a daemon thread and not an executor,
because the interpreter waits for the last job of an executor, and a job may be the download of a model.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class Run(Protocol):
    """Runs a job on the compute thread, then calls `then` with its result on the loop. An exception of either ends the
    daemon."""

    def __call__(self, job: Callable[[], Result], then: Callable[[Result], None]) -> None: ...


def nothing(_: object) -> None:
    """The `then` of a job whose result nobody wants."""


class ComputeThread:
    """`run` gives a job and returns the future of its result, on the running loop."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="compute", daemon=True)
        self._thread.start()

    def run(self, job: Callable[[], Result]) -> "asyncio.Future[Result]":
        future: Future[Result] = Future()
        future.set_running_or_notify_cancel()  # it is done, whatever becomes of whoever waits for it

        def do() -> None:
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)

        self._jobs.put(do)
        return asyncio.wrap_future(future)

    def close(self, seconds_max: float) -> bool:
        """Drops jobs that have not begun, and waits up to seconds_max for the running one. False: it still runs, and
        ends only with the process."""
        self._is_closed = True
        self._jobs.put(None)
        self._thread.join(seconds_max)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (do := self._jobs.get()) is not None:
            if not self._is_closed:
                do()
