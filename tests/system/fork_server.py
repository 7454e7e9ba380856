"""A process that has imported much, and forks others which find it there: a start takes some seconds of a core less.

The words of this program: the number of the socket at which it is asked (`fork_client`), and the modules that it
imports. It imports only, and nothing of that starts a thread: a process that has threads must not be forked. It ends
with its stdin, and ends all that it has forked.
"""

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import resource
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from fork_client import NUMBER, PASSED_ON

FILES_MAX = 64

FORKABLE = {"jemalloc_bg_thd"}
"""Threads that are well at a fork, by their names: jemalloc, of pyarrow, ends its own before and starts it again."""


class Server:
    """Forks whenever it is asked to. A process that is forked is killed when who asked for it is gone."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._asked: dict[int, socket.socket] = {}
        """By the id of the process."""
        self._ended, waker = socket.socketpair()
        self._sockets = [listener, self._ended, waker]
        for one in self._sockets:
            one.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker.fileno())
        self._selector = selectors.DefaultSelector()
        for one in (sys.__stdin__, self._listener, self._ended):
            self._selector.register(one, selectors.EVENT_READ)

    def serve(self) -> Callable[[], None] | None:
        """Returns None in the end; and in each process that was forked, what it is to do."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    if (program := self._fork()) is not None:
                        return program
                elif key.fileobj is self._ended:
                    self._ended.recv(4096)
                    self._reap()
                elif key.fileobj is sys.__stdin__:
                    for pid in list(self._asked):
                        self._forget(pid)
                    return None
                else:
                    self._forget(key.data)

    def _fork(self) -> Callable[[], None] | None:
        connection, _ = self._listener.accept()
        connection.setblocking(True)
        header, files, _, _ = socket.recv_fds(connection, NUMBER.size, FILES_MAX, socket.MSG_CMSG_CLOEXEC)
        size = NUMBER.unpack(header)[0] if header else 0
        data = connection.recv(size, socket.MSG_WAITALL)
        if not header or len(data) < size:  # who asked was killed meanwhile
            for file in (connection.detach(), *files):
                os.close(file)
            return None
        request = json.loads(data)
        if (pid := os.fork()) == 0:
            for one in (self._selector, connection, *self._asked.values(), *self._sockets):
                one.close()
            return become(request, files)
        with contextlib.suppress(PermissionError):  # it has done so itself, and begun another program
            os.setpgid(pid, pid)
        for file in files:
            os.close(file)
        self._asked[pid] = connection
        self._selector.register(connection, selectors.EVENT_READ, pid)
        _answer(connection, pid)
        return None

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if (connection := self._asked.pop(ended[0], None)) is not None:
                    self._selector.unregister(connection)
                    _answer(connection, os.waitstatus_to_exitcode(ended[1]))
                    connection.close()

    def _forget(self, pid: int) -> None:
        """Kills it, and whatever it has started itself."""
        if (connection := self._asked.pop(pid, None)) is not None:
            self._selector.unregister(connection)
            connection.close()
            os.killpg(pid, signal.SIGKILL)


def _answer(connection: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # nobody is there any more
        connection.sendall(NUMBER.pack(number))


def become(request: dict[str, Any], files: list[int]) -> Callable[[], None]:
    """The process that was asked for; returns its program."""
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in PASSED_ON:
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in request["ignored"] else usual)
    numbers = request["files"]
    high = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, max(3, *numbers) + 1) for file in files]
    for file in files:
        os.close(file)
    for number, file in zip(numbers, high, strict=False):
        os.dup2(file, number)
    for file in high[len(numbers) :]:
        _enter(file)
    for file in high:
        os.close(file)
    for number, limits in request["limits"].items():
        resource.setrlimit(int(number), limits)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:0] = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one and one not in sys.path]
    tempfile.tempdir = None  # it is remembered
    # A stream remembers of what kind its file was when it was opened.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    name, *words = request["words"]
    sys.executable = request["python"]
    sys.argv = [name, *words]
    return _python(words) if name == "python" else _command(name)


def _enter(namespace: int) -> None:
    """This process has one thread."""
    if os.fstat(namespace).st_ino in {os.stat(f"/proc/self/ns/{kind}").st_ino for kind in ("net", "mnt")}:
        return
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(namespace, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot enter a namespace")


def _command(name: str) -> Callable[[], None]:
    from seedflood.cli import main, node_main

    return {"seedflood": main, "seedflood-node": node_main}[name]


def _python(words: list[str]) -> Callable[[], None]:
    """What Python would run, as the module `__main__`."""
    how, *rest = words
    if how == "-m":
        sys.argv = rest
        sys.path.insert(0, os.getcwd())
        return lambda: runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    if how == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        text, file = rest[0], "<string>"
    else:
        sys.argv = words
        sys.path.insert(0, str(Path(how).parent.absolute()))
        text, file = Path(how).read_text(encoding="utf-8"), how
    module = types.ModuleType("__main__")
    module.__file__ = file
    sys.modules["__main__"] = module
    return lambda: exec(compile(text, file, "exec"), vars(module))


def main() -> Callable[[], None] | None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    listener.set_inheritable(False)
    for number in PASSED_ON:  # what ends the tests ends their other end of stdin
        signal.signal(number, signal.SIG_IGN)
    gc.disable()
    for name in sys.argv[2:]:
        importlib.import_module(name)
    threads = {
        path.read_text().strip()
        for path in Path("/proc/self/task").glob("*/comm")
        if path.parent.name != str(os.getpid())
    }
    assert threads <= FORKABLE, f"started by a library when it was imported: {threads}"
    gc.collect()
    gc.freeze()
    gc.enable()
    sys.path.pop(0)  # where this file is
    return Server(listener).serve()


def live(program: Callable[[], None]) -> NoReturn:
    """As Python does it, but the interpreter is not taken apart, for that copies most of what is shared."""
    code: Any = 0
    try:
        program()
    except SystemExit as end:
        code = end.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # nobody reads it any more
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    if (program := main()) is not None:
        live(program)
