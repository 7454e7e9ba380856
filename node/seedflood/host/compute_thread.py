"""The compute thread: the trainer's jobs, one after the other, away from the event loop.

One thread, so jobs run in the order in which they were given: a window is applied before the next step is measured.
The thread never touches grpc; results come back on the loop. It is a daemon thread of its own and no executor, because
an executor makes the interpreter wait for its last job, and a job may be the download of a model.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")


class Run(Protocol):
    """Runs a job on the compute thread, then hands its result over on the loop; a fault of either ends the daemon."""

    def __call__(self, job: Callable[[], Result], then: Callable[[Result], None]) -> None: ...


def nothing(_: object) -> None:
    """What follows a job whose result nobody wants."""


class ComputeThread:
    """`run` gives a job and returns the future of its result, on the running loop."""

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="compute", daemon=True)
        self._thread.start()

    def run(self, job: Callable[[], Result]) -> "asyncio.Future[Result]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()

        def do() -> None:
            try:
                result = job()
            except BaseException as error:
                _tell(loop, future, future.set_exception, error)
            else:
                _tell(loop, future, future.set_result, result)

        with self._wake:
            self._jobs.append(do)
            self._wake.notify()
        return future

    def close(self, seconds_max: float) -> bool:
        """Drops what was not begun and waits so long for the job that runs. False: it runs on, and only the end of the
        process ends it."""
        with self._wake:
            self._is_closed = True
            self._jobs.clear()
            self._wake.notify()
        self._thread.join(seconds_max)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._jobs or self._is_closed)
                if self._is_closed:
                    return
                do = self._jobs.popleft()
            do()


def _tell(
    loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Any]", method: Callable[[Any], None], value: object
) -> None:
    """Sets the future on its loop, unless nobody waits any more."""

    def tell() -> None:
        if not future.done():
            method(value)

    with contextlib.suppress(RuntimeError):  # a closed loop: the process is on its way out
        loop.call_soon_threadsafe(tell)
