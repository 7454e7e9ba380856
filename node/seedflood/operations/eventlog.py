"""The event log: what happened on this node, one JSON line per fact, for later questions.

"Node 5 says that it sent something, node 3 never got it": the event files of these two are enough to find out. So they
also say what an algorithm sent to its neighbours and heard from them (`seedflood/observer` for SeedFlood).

    {"time":"2026-11-21T07:24:43.123456Z","event":"kept","level":"debug","node":"alpha","run":"0f3a…","from":"beta",…}

    measured    step, count, loss, seconds
    members     names                          fingerprint -> name; the first line of every file
    connected, disconnected                    with the peer's name, and the reason
    …                                          everything in the log on stderr, and what the algorithm adds

A separate thread encodes and writes the lines, all lines of a turn of the loop at once. So neither a flood nor a slow
disk holds up the loop. While the disk is full or broken, lines are lost and the node goes on; a line tells how many.
"""

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import structlog

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

MICROSECONDS = 1_000_000

Facts = Mapping[str, Any]

_log = structlog.stdlib.get_logger("seedflood")


class Line(NamedTuple):
    """A line that waits to be written. facts: if they are costly to make, a function that the writer calls."""

    microseconds: int
    event: str
    level: str
    facts: Facts | Callable[[], Facts]


class EventLog:
    """Call `write` on the loop's thread; `close` writes what waits."""

    def __init__(
        self,
        folder: Path,
        *,
        node: str,
        run: str,
        bytes_max: int,
        names: Callable[[], Mapping[str, str]],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """names: name of every known origin by fingerprint, for the first line of a file. call_soon: the loop's."""
        self._dropped = self._unwritten = self._told = 0
        """Lost lines: those that could not wait, those that could not be written, and how many of both were told."""
        self._path = folder / EVENTS_FILE
        self._file_bytes_max = max(1, bytes_max // FILES)
        self._identity = {"node": node, "run": run}
        self._names = names
        self._call_soon = call_soon
        self._turn: list[Line] = []
        self._queue: SimpleQueue[list[Line] | threading.Event | None] = SimpleQueue()
        self._waiting = 0
        self._written = 0
        self._is_stopped = False
        self._is_broken = False
        self._retry_at = 0.0
        self._file: int | None = None
        self._size = 0
        self._thread = threading.Thread(target=self._write_for_ever, name="event log", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """How many lines were never written."""
        return self._dropped + self._unwritten

    def write(self, line: Line) -> None:
        """Never waits, never raises."""
        if self._is_stopped or self._waiting - self._written >= WAITING_MAX:
            self._dropped += 1
            return
        self._waiting += 1
        if not self._turn:
            self._call_soon(self._hand_over)
        self._turn.append(line)

    def flush(self) -> threading.Event:
        """Returns an event that is set once all earlier lines are in the file, or lost."""
        self._hand_over()
        is_written = threading.Event()
        self._queue.put(is_written)
        if not self._thread.is_alive():
            is_written.set()
        return is_written

    def close(self) -> None:
        """Writes what waits. Blocks for CLOSE_SECONDS at most, even if the disk hangs."""
        self._hand_over()
        self._is_stopped = True
        self._queue.put(None)
        self._thread.join(CLOSE_SECONDS)

    def _hand_over(self) -> None:
        if self._turn:
            self._queue.put(self._turn)
            self._turn = []

    # On the thread

    def _write_for_ever(self) -> None:
        while (taken := self._queue.get()) is not None:
            if isinstance(taken, threading.Event):
                taken.set()
                continue
            if self._is_broken and time.monotonic() < self._retry_at:
                self._unwritten += len(taken)
            else:
                self._append(taken)
            self._written += len(taken)
        if self._file is not None:
            os.close(self._file)

    def _append(self, lines: list[Line]) -> None:
        lost = self.lost
        try:
            missing = lost - self._told
            gap = [Line(now_microseconds(), LACKS, "warning", {"lines_lost": missing})] if missing else []
            self._put_lines([*gap, *lines])
        except OSError as error:
            if self._file is not None:
                with contextlib.suppress(OSError):
                    os.close(self._file)
            self._file, self._retry_at = None, time.monotonic() + RETRY_SECONDS
            self._unwritten += len(lines)
            if not self._is_broken:
                _log.warning(BROKEN, path=str(self._path), reason=error.strerror)
            self._is_broken = True
            return
        if self._is_broken:
            _log.warning("the event log goes on", lines_lost=lost - self._told)
        self._is_broken, self._told = False, lost

    def _put_lines(self, lines: list[Line]) -> None:
        if self._file is None:
            self._open()
        batch = bytearray()
        for line in lines:
            encoded = encode(line, self._identity)
            if self._size + len(batch) + len(encoded) > self._file_bytes_max:
                self._put(batch)
                batch.clear()
                self._rotate()
            batch += encoded
        self._put(batch)

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._file).st_size
        if self._size and os.pread(self._file, 1, self._size - 1) != b"\n":
            self._put(b"\n")  # a crash or a full disk has cut the last line
        head = Line(now_microseconds(), "members", "debug", {"names": dict(self._names())})
        self._put(encode(head, self._identity))

    def _rotate(self) -> None:
        assert self._file is not None
        os.close(self._file)
        self._file = None
        for k in range(FILES - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                older_file(self._path, k - 1).replace(older_file(self._path, k))
        self._open()

    def _put(self, data: bytes | bytearray) -> None:
        assert self._file is not None
        written = 0
        while written < len(data):
            written += os.write(self._file, data[written:])
        self._size += written


def now_microseconds() -> int:
    return int(datetime.now(UTC).timestamp() * MICROSECONDS)


def spell_time(microseconds: int) -> str:
    """Unix time in microseconds as ISO 8601, UTC."""
    seconds, rest = divmod(microseconds, MICROSECONDS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:06d}Z"


def encode(line: Line, identity: Mapping[str, str]) -> bytes:
    facts = line.facts() if callable(line.facts) else line.facts
    whole = {"time": spell_time(line.microseconds), "event": line.event, "level": line.level, **identity}
    return json.dumps(whole | dict(facts), separators=(",", ":"), default=str).encode() + b"\n"


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
