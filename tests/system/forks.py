"""Nodes, commands and scripts that are forked from a process that has imported PyTorch and transformers already
(`fork_server`): a start takes ten seconds of a core less.

To a test such a process is one like any other: it has an id, signals, an exit code, outputs, a folder and an
environment of its own. What it shares with the others is how Python salts hashes and what it read from the environment
when modules were imported; and a command ends without taking the interpreter apart. So some tests start nodes as
operators do: those of the README's recipe, and those in strange environments.
"""

import atexit
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess
from threading import Thread

import fork_client
import fork_server

PRELOADED = (
    "seedflood.cli.commands",
    "seedflood.host.process",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.opt.modeling_opt",
)
PROGRAMS = ("python", "seedflood", "seedflood-node")


@cache
def programs(*more: str) -> Path:
    """A folder with these programs. What they run is forked, and so is what that starts by `sys.executable`. more:
    modules that are imported besides. The processes end with that of the tests."""
    assert os.environ["OMP_NUM_THREADS"] == "1", "else libraries start threads when they are imported"
    python = str(programs() / "python") if more else sys.executable
    home = Path(tempfile.mkdtemp(prefix="seedflood-forks-"))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(home / fork_client.SOCKET))
    listener.listen(64)
    server = subprocess.Popen(
        [python, fork_server.__file__, str(listener.fileno()), *PRELOADED, *more],
        stdin=subprocess.PIPE,
        pass_fds=[listener.fileno()],
    )
    listener.close()
    client = Path(fork_client.__file__).read_text()
    for name in PROGRAMS:
        (home / name).write_text(f"#!{sys.executable} -IS\n{client}")
        (home / name).chmod(0o755)

    def end() -> None:
        assert server.stdin is not None
        server.stdin.close()
        server.wait()
        shutil.rmtree(home)

    atexit.register(end)
    return home


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
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        spaces = [os.open(Path("/run/netns") / space, os.O_RDONLY)] if space else []
        files = {0: nothing, 1: out_end, 2: err_end}
        self._connection, self.pid = fork_client.ask(
            str(programs()), [program, *words], str(folder.absolute()), environment, files, spaces
        )
        self._code: int | None = None
        for file in (*files.values(), *spaces):
            os.close(file)
        self.stdout, self.stderr = os.fdopen(out, "rb"), os.fdopen(err, "rb")

    def poll(self) -> int | None:
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._wait(timeout)
        assert code is not None, f"it has not ended within {timeout} s"
        return code

    def _wait(self, timeout: float | None) -> int | None:
        if self._code is None and select.select([self._connection], [], [], timeout)[0]:
            self._code = fork_client.receive(self._connection)
            self._connection.close()
        return self._code

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
