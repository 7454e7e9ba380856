"""What a process does first, before it imports anything that takes time: standard streams, limits and signals.

A signal that comes before its handler is lost if the process is the first one of a container (the kernel gives PID 1 no
default action), and ends any other process. So SIGTERM ends a process in good order from its first line on, and a
daemon remembers a SIGHUP until it can read its settings again.
"""

import contextlib
import io
import os
import resource
import select
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

STREAMS = 3
"""stdin, stdout and stderr."""

STOPPED = "stopped while loading"

_reloads: list[int] = []


@contextlib.contextmanager
def begin(*, is_daemon: bool) -> Iterator[None]:
    """The first and last thing of a process. is_daemon: SIGTERM ends it at once with 0, and SIGHUP waits; any other
    command is interrupted by SIGTERM, as by Ctrl-C."""
    _open_streams()
    _raise_limit()
    wanted: dict[int, Any] = {signal.SIGTERM: signal.default_int_handler}
    if is_daemon:
        wanted = {signal.SIGTERM: _leave, signal.SIGHUP: _remember}
    before: dict[int, Any] = {}
    with contextlib.suppress(ValueError):  # not the main thread
        for number, handler in wanted.items():
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def take_reload() -> bool:
    """Did SIGHUP come before the event loop had its handlers?"""
    is_due = bool(_reloads)
    _reloads.clear()
    return is_due


def _open_streams() -> None:
    """Gives each standard stream that is closed (`2>&-`) a /dev/null. Else the next file that is opened takes its
    number, and whatever a library has to say would be written into the journal."""
    number = os.open(os.devnull, os.O_RDWR)
    while number < STREAMS:
        os.set_inheritable(number, True)
        number = os.open(os.devnull, os.O_RDWR)
    os.close(number)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a test may have put something else in its place
            with contextlib.suppress(OSError):  # a file that has become a pipe (`cli/forks`) cannot be changed
                stream.reconfigure(errors="backslashreplace")  # PYTHONIOENCODING may lack letters of a name
    if sys.stderr is None:  # stdout stays None: whoever prints data there learns of it
        sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115


def _raise_limit() -> None:
    """As many open files as this user may have: each connection is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # a sandbox may forbid it
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _leave(_: int, __: FrameType | None) -> None:
    """Nothing was begun that has to be ended. An exception might be lost in a library that is being imported."""
    line = f"{STOPPED}\n" if os.isatty(2) else f'{{"event": "{STOPPED}", "level": "info"}}\n'
    looking = select.poll()
    looking.register(2, select.POLLOUT)
    with contextlib.suppress(OSError):
        if looking.poll(0):  # else nobody reads, and the write would wait
            os.write(2, line.encode())
    os._exit(0)


def _remember(number: int, _: FrameType | None) -> None:
    _reloads.append(number)
