"""Nodes and commands forked from a process that has imported PyTorch and transformers already: a start takes some
seconds of a core less.

To a test such a process is one like any other: it has an id, signals, an exit code, outputs, a folder and an
environment of its own. What it shares with the others is how Python salts hashes, and it ends without taking the
interpreter apart. So some tests start nodes as operators do: those of the README's recipe and of `seedflood local`.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from subprocess import CompletedProcess
from threading import Thread

from networks import enter

PRELOADED = [
    "seedflood.cli.commands",
    "seedflood.host.process",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.opt.modeling_opt",
]
"""Imports only: nothing of it starts a thread, and a process that has threads must not be forked. A fork server passes
over what it cannot import, so every node looks whether all of it is there."""


class ForkedNode:
    """`seedflood-node` with these words, behind the part of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        space: str = "",
        program: str = "seedflood-node",
    ) -> None:
        """space: a network namespace. program: or "seedflood"."""
        (out, out_end), (err, err_end) = multiprocessing.Pipe(duplex=False), multiprocessing.Pipe(duplex=False)
        arguments = ([program, *words], folder, dict(environment), space, out_end, err_end)
        self._process = _context().Process(target=_live, args=arguments, daemon=True)
        self._process.start()
        for end in (out_end, err_end):
            end.close()
        self.stdout, self.stderr = (os.fdopen(_take(end), "rb") for end in (out, err))

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        assert code is not None, f"it has not ended within {timeout} s"
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_command(*words: object, **environment: str) -> "CompletedProcess[str]":
    """What `seedflood` with these words has said in the end."""
    told = [str(word) for word in words]
    command = ForkedNode(told, Path(), {**os.environ, **environment}, program="seedflood")
    said: dict[str, str] = {}

    def read(name: str) -> None:
        with getattr(command, name) as stream:
            said[name] = stream.read().decode()

    readers = [Thread(target=read, args=(name,)) for name in ("stdout", "stderr")]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return CompletedProcess(told, command.wait(), said["stdout"], said["stderr"])


@cache
def _context() -> ForkServerContext:
    """Its process is started with the first node, and ends with that of the tests."""
    assert os.environ["OMP_NUM_THREADS"] == "1", "else libraries start threads when they are imported"
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(PRELOADED)
    return made


def _take(end: Connection) -> int:
    number = os.dup(end.fileno())
    end.close()
    return number


def _live(
    words: list[str], folder: Path, environment: dict[str, str], space: str, out: Connection, err: Connection
) -> None:
    for end, number in ((out, sys.__stdout__), (err, sys.__stderr__)):
        assert number is not None
        os.dup2(end.fileno(), number.fileno())
        end.close()
    # A stream remembers of what kind its file was when it was opened.
    sys.stdout, sys.stderr = (open(number, "w", closefd=False, buffering=1) for number in (1, 2))  # noqa: SIM115
    assert sys.modules.keys() >= set(PRELOADED), f"not there: {set(PRELOADED) - sys.modules.keys()}"
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if space:
        enter(space)
    sys.argv = words

    from seedflood.cli import main, node_main

    {"seedflood": main, "seedflood-node": node_main}[words[0]]()
