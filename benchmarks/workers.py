"""Processes of a benchmark: each with a pipe to the one that runs it, and on a core of its own if it says so."""

import contextlib
import os
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Self

ANSWER_SECONDS_MAX = 120.0


class Worker:
    """A process that runs `target(pipe, *args)`. It ends with the context: None is the last thing that it gets."""

    def __init__(self, target: Callable[..., None], *args: object) -> None:
        context = get_context("spawn")  # never fork after gRPC has started
        self._pipe, end = context.Pipe()
        self._process = context.Process(target=target, args=(end, *args))
        self._process.start()
        end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # it may have ended
            self._pipe.send(None)
        self._process.join(ANSWER_SECONDS_MAX)
        self._process.kill()
        self._pipe.close()

    def ask(self, *question: object) -> Any:
        self.tell(*question)
        return self.receive()

    def tell(self, *question: object) -> None:
        self._pipe.send(question)

    def receive(self, seconds_max: float = ANSWER_SECONDS_MAX) -> Any:
        if not self._pipe.poll(seconds_max):
            raise RuntimeError("a process of the benchmark does not answer")
        return self._pipe.recv()


def next_question(pipe: Connection) -> Any:
    """In the worker: what it is asked next; None at the end. Blocks."""
    try:
        return pipe.recv()
    except EOFError:
        return None


def take_core(number: int) -> None:
    """Everything this process does happens on one core; neighbouring numbers are different ones if there are two."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})
