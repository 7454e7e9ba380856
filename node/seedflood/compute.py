"""The compute thread: the trainer's jobs, one after the other, away from the event loop.

One thread, so jobs run in the order in which they were given: a window is applied before the next step is measured.
The thread never touches grpc; results come back on the loop.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


class ComputeThread:
    """`run` gives a job and returns the future of its result, on the running loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compute")

    def run(self, job: Callable[[], Result]) -> "asyncio.Future[Result]":
        return asyncio.get_running_loop().run_in_executor(self._thread, job)

    def close(self) -> None:
        """Drops what was not begun and waits for the job that runs."""
        self._thread.shutdown(wait=True, cancel_futures=True)
