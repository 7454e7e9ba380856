"""stdout and stderr that never keep anybody waiting.

Whoever reads them may stop: a terminal after Ctrl-S, a pipe whose reader hangs. Then a plain write blocks, and with it
the event loop: probes, signals and all other hosts of a strict run. So a daemon writes to an *outlet*: a queue, and a
thread that empties it. When the queue is full, what is written is dropped and counted, and the log says so once there
is room again.
"""

import io
import logging
import os
import select
import sys
import threading
import time
from queue import SimpleQueue
from typing import TextIO

WAITING_BYTES_MAX = 4 << 20
"""The most that waits for a reader: some twenty thousand lines of a log."""

FINISH_SECONDS = 3.0
"""How long a process that ends waits for its readers."""

LINES_LOST = "lines of this log were dropped, for nobody read it"
RESULT_LOST = "cannot write the result to stdout; it is in the state folder"

_log = logging.getLogger("seedflood")
_outlets: "list[Outlet]" = []


class Outlet(io.TextIOBase):
    """Takes the place of a text stream over a file. For any thread, and for signal handlers."""

    def __init__(self, stream: TextIO, *, is_log: bool) -> None:
        """is_log: what is dropped is counted in a line when there is room again. Else at once, in the log."""
        self.lost = 0
        """How many writes were dropped, or have failed."""
        self._logged = 0
        """How many of them the log knows of."""
        self._file = stream.fileno()
        self._encoding = stream.encoding
        self.stream = stream
        self.is_log = is_log
        self._waiting = 0
        """Bytes in the queue, and those that are being written."""
        self._unfinished = 0
        """Writes that are not done yet. One that failed is done when the log says so."""
        # A signal handler may write while its own thread counts, so the lock of this may be taken twice.
        self._counting = threading.Condition()
        self._queue: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=self._write_for_ever, name="outlet", daemon=True).start()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def fileno(self) -> int:
        return self._file

    def isatty(self) -> bool:
        return os.isatty(self._file)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        """Never waits, never raises."""
        data = text.encode(self._encoding, "backslashreplace")
        with self._counting:
            if self._waiting + len(data) > WAITING_BYTES_MAX:
                self.lost += 1
            else:
                self._waiting += len(data)
                self._unfinished += 1
                self._queue.put(data)
        return len(text)

    def finish(self, until: float) -> bool:
        """Waits for the reader, at most until this time of the monotonic clock. False if something was not written."""
        with self._counting:
            return self._counting.wait_for(lambda: not self._unfinished, until - time.monotonic())

    # On the thread

    def _write_for_ever(self) -> None:
        while True:
            data = self._queue.get()
            is_written = self._put(data)
            with self._counting:
                self._waiting -= len(data)
                self.lost += not is_written
                missing = self.lost - self._logged
            if missing and (is_written or not self.is_log):
                self._logged += missing
                self._log_missing(missing)
            with self._counting:
                self._unfinished -= 1
                self._counting.notify_all()

    def _put(self, data: bytes) -> bool:
        """False if the reader has left, or the disk is full."""
        try:
            while data:
                try:
                    data = data[os.write(self._file, data) :]
                except BlockingIOError:  # another process has made a shared terminal or pipe non-blocking
                    _wait_for_room(self._file)
        except OSError:
            return False
        return True

    def _log_missing(self, missing: int) -> None:
        if self.is_log:
            _log.warning(LINES_LOST, extra={"lines_lost": missing})
        else:
            _log.warning(RESULT_LOST)


def begin(*, is_daemon: bool) -> None:
    """From here on stderr keeps nobody waiting; of a daemon, stdout neither. Call it before the log is set up."""
    if _has_file(sys.stderr):
        sys.stderr = _open(sys.stderr, is_log=True)
    if is_daemon and _has_file(sys.stdout):
        sys.stdout = _open(sys.stdout, is_log=False)


def finish() -> None:
    """The process ends: waits for a moment until all is written."""
    until = time.monotonic() + FINISH_SECONDS
    for outlet in reversed(_outlets):  # stdout first, of which the log may have to speak
        if not outlet.finish(until) and not outlet.is_log:
            _log.warning(RESULT_LOST)
        if sys.stdout is outlet:
            sys.stdout = outlet.stream
        if sys.stderr is outlet:
            sys.stderr = outlet.stream
    _outlets.clear()


def _open(stream: TextIO, *, is_log: bool) -> Outlet:
    stream.flush()
    outlet = Outlet(stream, is_log=is_log)
    _outlets.append(outlet)
    return outlet


def _has_file(stream: TextIO | None) -> bool:
    """False for one that was closed, or that a test has put in its place."""
    try:
        return stream is not None and not isinstance(stream, Outlet) and stream.fileno() >= 0
    except OSError:
        return False


def _wait_for_room(file: int) -> None:
    waiting = select.poll()
    waiting.register(file, select.POLLOUT)
    waiting.poll()
