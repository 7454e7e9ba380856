"""The event log: what happened on this node, one JSON line per fact, for questions that are asked afterwards.

"Node 5 says it sent, node 3 never got it" is answered from the files of the two alone. So what an algorithm tells its
neighbours and hears of them stands here, too (`seedflood/observer` for SeedFlood).

    {"time":"2026-11-21T07:24:43.123456Z","event":"kept","level":"debug","node":"alpha","run":"0f3a…","from":"beta",…}

    measured    step, count, loss, seconds
    members     names                          fingerprint -> name; the first line of every file
    connected, disconnected                    with the peer's name, and why
    …                                          everything the log on stderr tells, and what the algorithm adds

Lines are encoded and written by a thread of their own, as many at a time as a turn of the loop has brought, so neither
a flood nor a slow disk holds the loop up. A disk that is full or broken ends the event log, not the node.
"""

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import structlog

EVENTS_FILE = "events.jsonl"
FILES = 4
"""The one that is written, and three older ones: a quarter of the room each."""

WAITING_MAX = 1 << 16
"""Lines that wait for the writer. A disk that is slower than the facts loses the newest, and their number is told."""

CLOSE_SECONDS = 5.0

MICROSECONDS = 1_000_000

Facts = Mapping[str, Any]

_log = structlog.stdlib.get_logger("seedflood")


class Spelled(str):
    """JSON, as it is to be written."""

    __slots__ = ()


class Line(NamedTuple):
    """A fact that waits to be written. facts: called by the writer, for what is costly to spell."""

    microseconds: int
    event: str
    level: str
    facts: Facts | Callable[[], Facts]


class EventLog:
    """`write` from the loop's thread; `close` writes what waits. lost: lines that were never written."""

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
        """names: fingerprints and names of all known origins, for the head of a file. call_soon: the loop's."""
        self.lost = 0
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
        self._file: int | None = None
        self._size = 0
        self._thread = threading.Thread(target=self._write_for_ever, name="event log", daemon=True)
        self._thread.start()

    def write(self, line: Line) -> None:
        """Never waits, never raises."""
        if self._is_stopped or self._waiting - self._written >= WAITING_MAX:
            self.lost += 1
            return
        self._waiting += 1
        if not self._turn:
            self._call_soon(self._hand_over)
        self._turn.append(line)

    def flush(self) -> threading.Event:
        """Set once all that was told before is in the file (or lost)."""
        self._hand_over()
        is_written = threading.Event()
        self._queue.put(is_written)
        if not self._thread.is_alive():
            is_written.set()
        return is_written

    def close(self) -> None:
        """Writes what waits. Blocks, but not for ever if the disk does."""
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
        is_over = False
        while not is_over:
            lines: list[Line] = []
            taken = self._queue.get()
            while isinstance(taken, list):
                lines += taken
                if self._queue.empty():
                    break
                taken = self._queue.get()
            if lines and not self._is_broken:
                self._append(lines)
            self._written += len(lines)
            if isinstance(taken, threading.Event):
                taken.set()
            is_over = taken is None
        if self._file is not None:
            os.close(self._file)

    def _append(self, lines: list[Line]) -> None:
        try:
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
        except OSError as error:
            if self._file is not None:
                with contextlib.suppress(OSError):
                    os.close(self._file)
            self._file, self._is_broken, self._is_stopped = None, True, True
            _log.warning("the event log has ended; the node goes on", path=str(self._path), reason=error.strerror)

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._file).st_size
        if self._size and os.pread(self._file, 1, self._size - 1) != b"\n":
            self._put(b"\n")  # a line that a crash has cut
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
    """UTC, ISO 8601."""
    seconds, rest = divmod(microseconds, MICROSECONDS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:06d}Z"


def encode(line: Line, identity: Mapping[str, str]) -> bytes:
    facts = line.facts() if callable(line.facts) else line.facts
    whole = {"time": spell_time(line.microseconds), "event": line.event, "level": line.level, **identity}
    whole |= {key: value for key, value in facts.items() if not isinstance(value, Spelled)}
    text = json.dumps(whole, separators=(",", ":"), default=str)
    spelled = "".join(f',"{key}":{value}' for key, value in facts.items() if isinstance(value, Spelled))
    return f"{text[:-1]}{spelled}}}\n".encode()


def older_file(path: Path, age: int) -> Path:
    """The file that was `path` so many rotations ago."""
    return path if age == 0 else path.with_suffix(f".{age}{path.suffix}")


def event_files(folder: Path) -> list[Path]:
    """The event files in a state folder, the oldest first."""
    paths = (older_file(folder / EVENTS_FILE, age) for age in reversed(range(FILES)))
    return [path for path in paths if path.is_file()]


def read_lines(paths: list[Path]) -> Iterator[bytes]:
    """All lines of the files, one after the other. One that vanishes meanwhile (it is rotated), or cannot be read, is
    passed over."""
    for path in paths:
        with contextlib.suppress(OSError), path.open("rb") as file:
            yield from file


def decode(line: bytes) -> dict[str, Any] | None:
    """None if a crash has cut the line."""
    try:
        whole = json.loads(line)
    except ValueError:
        return None
    return whole if isinstance(whole, dict) and isinstance(whole.get("event"), str) else None
