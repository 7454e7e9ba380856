"""Notifications to systemd (sd_notify(3), Type=notify): ready, reloading, stopping, a status line, and the watchdog.

The event loop sends the watchdog's keep-alive. So systemd notices a loop that hangs, but does not take a long step for
one.
"""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Self

MICROSECONDS = 1_000_000


class Notifier:
    """Sends notifications. Does nothing if there is no supervisor."""

    def __init__(self, path: str | None, watchdog_seconds: float | None = None) -> None:
        """path: of the supervisor's datagram socket; "@..." is an abstract socket."""
        self.watchdog_seconds = watchdog_seconds
        self._address = f"\0{path[1:]}" if path is not None and path.startswith("@") else path
        self._beat: asyncio.TimerHandle | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        microseconds = environment.get("WATCHDOG_USEC", "")
        is_ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        seconds = int(microseconds) / MICROSECONDS if microseconds.isdigit() and is_ours else None
        return cls(environment.get("NOTIFY_SOCKET") or None, seconds or None)

    def ready(self) -> None:
        self._notify("READY=1")

    def reloading(self) -> None:
        """Call `ready` when it is done."""
        self._notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._notify("STOPPING=1")

    def status(self, sentence: str) -> None:
        self._notify(f"STATUS={sentence}")

    def start_watchdog(self, loop: asyncio.AbstractEventLoop, status: Callable[[], str]) -> None:
        """Sends a keep-alive and the status twice per watchdog interval."""
        if self.watchdog_seconds is None or self._address is None:
            return
        self._notify("WATCHDOG=1", f"STATUS={status()}")
        self._beat = loop.call_later(self.watchdog_seconds / 2, self.start_watchdog, loop, status)

    def stop_watchdog(self) -> None:
        if self._beat is not None:
            self._beat.cancel()

    def _notify(self, *lines: str) -> None:
        if self._address is None:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as s:
            s.setblocking(False)
            s.sendto("\n".join(lines).encode(), self._address)
