"""The event log: what happened on this node, one JSON line per fact, for later questions.

"Node 5 says that it sent something, node 3 never got it": the event files of these two are enough to find out. So they
also say what an algorithm sent to its neighbours and received from them (`seedflood/observer` for SeedFlood).

    {"time":"2026-11-21T07:24:43.123456Z","event":"kept","level":"debug","node":"alpha","run":"0f3a…","from":"beta",…}

    measured    step, count, loss, seconds
    members     names                          fingerprint -> name; the first line of every file
    connected, disconnected                    with the peer's name, and the reason
    …                                          everything in the log on stderr, and what the algorithm adds

The standard library's rotating file handler writes the files, on a thread behind a queue. So neither a flood nor a slow
disk holds up the loop. While the disk is full or broken, lines are lost and the node goes on; a line says how many.
"""

import contextlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from logging.handlers import QueueListener, RotatingFileHandler
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, TextIO

from seedflood.log import log

EVENTS_FILE = "events.jsonl"
FILES = 4
"""The file that is written and three older ones. Each gets a quarter of the space."""

WAITING_MAX = 1 << 16
"""The most lines that wait for the writer. If the disk is too slow, new lines are dropped and counted."""

CLOSE_SECONDS = 5.0

RETRY_SECONDS = 3.0
"""After an error, the writer tries again so much later at the earliest."""

LACKS = "the event log lacks lines"
BROKEN = "the event log cannot be written and is tried again; the node goes on"

Facts = Mapping[str, Any]


class Line(NamedTuple):
    """A line that waits to be written. at: Unix time. facts: if they are costly to make, a function that the writer
    calls."""

    at: float
    event: str
    level: str
    facts: Facts | Callable[[], Facts]


class EventLog:
    """Call `write` on the loop's thread; `close` writes what waits."""

    def __init__(
        self, folder: Path, *, node: str, run: str, bytes_max: int, names: Callable[[], Mapping[str, str]]
    ) -> None:
        """names: name of every known origin by fingerprint, for the first line of a file."""
        self._file = EventFile(folder / EVENTS_FILE, {"node": node, "run": run}, bytes_max, names)
        self._waiting: SimpleQueue[Any] = SimpleQueue()
        self._writer = _Writer(self._waiting, self._file)
        self._writer.start()
        self._is_closed = False

    @property
    def lost(self) -> int:
        """How many lines were never written."""
        return self._file.lost

    def write(self, line: Line) -> None:
        """Never waits, never raises."""
        if self._is_closed or self._waiting.qsize() >= WAITING_MAX:
            self._file.dropped += 1
        else:
            self._waiting.put(line)

    def flush(self) -> threading.Event:
        """Returns an event that is set once all earlier lines are in the file, or lost."""
        is_written = threading.Event()
        if self._is_closed:
            is_written.set()
        else:
            self._waiting.put(is_written)
        return is_written

    def close(self) -> None:
        """Writes what waits. Blocks for CLOSE_SECONDS at most, even if the disk hangs. Idempotent."""
        if self._is_closed:
            return
        is_written = self.flush()
        self._is_closed = True
        if is_written.wait(CLOSE_SECONDS):
            self._writer.stop()
            self._file.close()


class _Writer(QueueListener):
    """Takes lines from the queue, on a thread of its own."""

    def handle(self, taken: Any) -> None:
        if isinstance(taken, threading.Event):
            taken.set()
        else:
            super().handle(logging.makeLogRecord({"line": taken}))


class EventFile(RotatingFileHandler):
    """The file that is written, and the older ones. dropped: how many lines could not wait."""

    def __init__(
        self, path: Path, identity: Mapping[str, str], bytes_max: int, names: Callable[[], Mapping[str, str]]
    ) -> None:
        super().__init__(path, maxBytes=max(1, bytes_max // FILES), backupCount=FILES - 1, delay=True)
        self.namer = _spell_older
        self.dropped = 0
        self._unwritten = 0
        self._logged = 0
        """How many of the lost lines a line in the file counts."""
        self._is_broken = False
        self._retry_at = 0.0
        self._identity = identity
        self._names = names

    @property
    def lost(self) -> int:
        return self.dropped + self._unwritten

    def format(self, record: logging.LogRecord) -> str:
        """It is asked twice: how long the line is, and for the line."""
        if not record.msg:
            record.msg = encode(record.line, self._identity)  # type: ignore[attr-defined]
        return str(record.msg)

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802, the library calls it so
        """As the library's, but for two calls of stat(2) with each line."""
        return self.stream is not None and self.stream.tell() + len(self.format(record)) >= self.maxBytes

    def emit(self, record: logging.LogRecord) -> None:
        if self._is_broken and time.monotonic() < self._retry_at:
            self._unwritten += 1
            return
        missing, unwritten = self.lost - self._logged, self._unwritten
        if missing:
            gap = Line(time.time(), LACKS, "warning", {"lines_lost": missing})
            record.msg = "\n".join((encode(gap, self._identity), self.format(record)))
        super().emit(record)
        if self._unwritten > unwritten:
            return
        self._logged += missing
        if self._is_broken:
            self._is_broken = False
            log.warning("the event log goes on", lines_lost=missing)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802, the library calls it so
        """Forgets the file: what its buffer holds would only fail again."""
        self._unwritten += 1
        self._retry_at = time.monotonic() + RETRY_SECONDS
        if self.stream is not None:
            with contextlib.suppress(OSError):
                self.stream.close()
            self.stream = None
        if not self._is_broken:
            log.warning(
                BROKEN,
                path=self.baseFilename,
                reason=getattr(sys.exception(), "strerror", None) or str(sys.exception()),
            )
        self._is_broken = True

    def _open(self) -> TextIO:  # type: ignore[override]
        is_cut = _is_cut(self.baseFilename)
        file = open(self.baseFilename, "a", encoding="ascii", opener=partial(os.open, mode=0o600))  # noqa: SIM115
        head = Line(time.time(), "members", "debug", {"names": dict(self._names())})
        file.write(("\n" if is_cut else "") + encode(head, self._identity) + "\n")
        return file


def _is_cut(path: str) -> bool:
    """Does the file end within a line, as after a crash or on a full disk?"""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
    return False


def _spell_older(path: str) -> str:
    """What the library calls events.jsonl.1 is events.1.jsonl."""
    whole, _, age = path.rpartition(".")
    return str(older_file(Path(whole), int(age)))


def spell_time(at: float) -> str:
    """Unix time as ISO 8601, UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


_encode = json.JSONEncoder(separators=(",", ":"), default=str).encode


def encode(line: Line, identity: Mapping[str, str]) -> str:
    facts = line.facts() if callable(line.facts) else line.facts
    return _encode({"time": spell_time(line.at), "event": line.event, "level": line.level, **identity, **facts})


def older_file(path: Path, age: int) -> Path:
    """The file that was `path` before `age` rotations."""
    return path if age == 0 else path.with_suffix(f".{age}{path.suffix}")


def event_files(folder: Path) -> list[Path]:
    """The event files in a state folder, the oldest first."""
    paths = (older_file(folder / EVENTS_FILE, age) for age in reversed(range(FILES)))
    return [path for path in paths if path.is_file()]


def read_lines(paths: list[Path]) -> Iterator[bytes]:
    """All lines of the files, one file after the other. A file that cannot be read, or vanishes because of a rotation,
    is skipped."""
    for path in paths:
        with contextlib.suppress(OSError), path.open("rb") as file:
            yield from file


def decode(line: bytes) -> dict[str, Any] | None:
    """The values of a line; None if it is not a whole line, as after a crash."""
    try:
        whole = json.loads(line)
    except ValueError:
        return None
    return whole if isinstance(whole, dict) and isinstance(whole.get("event"), str) else None
