"""The compute thread: runs the trainer's jobs one after the other, away from the event loop.

There is one thread, so jobs run in the order in which they were given: a window is applied before the next step is
measured. What a job finds is exactly what was ordered before it: a digest covers those windows, a checkpoint those
rounds. The thread never touches gRPC; results come back on the loop. It is a daemon thread and not an executor, because
the interpreter waits for the last job of an executor, and a job may be the download of a model.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar

from seedflood.host.driver import Driver

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

    def close(self, seconds_max: float | None) -> bool:
        """Drops jobs that have not begun, and waits up to seconds_max for the running one; None: as long as it takes.
        False: it still runs, and ends only with the process."""
        self._is_closed = True
        self._jobs.put(None)
        self._thread.join(seconds_max)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (do := self._jobs.get()) is not None:
            if not self._is_closed:
                do()


class Done(NamedTuple):
    """What came of a job. answer: for the node, if it waits for one. facts: for the log. rest: what is left of the job,
    for later."""

    answer: Any = None
    facts: Sequence[Any] = ()
    rest: Any = None


@dataclass(eq=False, repr=False)
class Compute:
    """The seam of a driver to its model. driver: must be set before the first job.

    begin: is called with a job on the loop; what it returns is called on the compute thread. note: is called with each
    fact on the loop, before the node has the answer. drive: runs an action that calls the driver.
    """

    _run: Run
    _drive: Callable[[Callable[[], None]], None]
    _begin: Callable[[Any], Callable[[], Done]]
    _note: Callable[[Any], None]
    driver: Driver = field(init=False)

    def put(self, job: Any) -> None:
        self._run(self._begin(job), self._end)

    def _end(self, done: Done) -> None:
        for fact in done.facts:
            self._note(fact)
        if done.answer is not None:
            self._drive(lambda: self.driver.answered(done.answer))
        if done.rest is not None:
            self.put(done.rest)
