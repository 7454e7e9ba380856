"""Reads a damaged sqlite file: every row on every page that can be parsed, without the help of any index.

The rows of a table are on the leaf pages of its b-tree. sqlite finds a leaf through the pages above it, so one flipped
bit there loses everything below. Here every page of the file, and every committed page of its write-ahead log, is
parsed by itself. A row that is found may have been deleted since, but it was committed once. The caller checks by its
checksum whether it is what was written.

Format: https://www.sqlite.org/fileformat2.html, sections 1.6 (b-tree pages), 2.1 (records), 4 (the log).
"""

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from seedflood.storage.layout import PAGE_BYTES

Column = int | bytes | None
Row = tuple[int, tuple[Column, ...]]
"""(rowid, columns). The column that is the rowid is None."""

_MAGIC = b"SQLite format 3\0" + struct.pack(">H", PAGE_BYTES)
_READ_VERSION_MAX = 2
_LEAF = 0x0D
_LEAF_HEADER_BYTES = 8
_LOCAL_MAX = PAGE_BYTES - 35
_LOCAL_MIN = (PAGE_BYTES - 12) * 32 // 255 - 23
_OVERFLOW_BYTES = PAGE_BYTES - 4
_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)

_LOG_HEADER = struct.Struct(">8I")  # magic, version, page bytes, checkpoints, salt 1, salt 2, checksum 1, checksum 2
_FRAME_HEADER = struct.Struct(">6I")  # page, pages of the file if it commits, salt 1, salt 2, checksum 1, checksum 2
_FRAME_BYTES = _FRAME_HEADER.size + PAGE_BYTES
_LOG_MAGIC = 0x377F0682  # or this plus one: then checksums are over big-endian words


class SqlitePages:
    """A file and its log, as they are. Both stay open, so that they may be renamed meanwhile."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._log = -1
        with contextlib.suppress(FileNotFoundError):
            self._log = os.open(f"{path}-wal", os.O_RDONLY | os.O_CLOEXEC)
        self.is_log_intact, self._frames = _read_log(self._log) if self._log >= 0 else (True, [])
        self._latest = dict(self._frames)
        self._bytes = os.fstat(self._file).st_size + len(self._frames) * PAGE_BYTES

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._file)
        if self._log >= 0:
            os.close(self._log)

    @property
    def is_header_intact(self) -> bool:
        """Is the start of the file that of a database which this process may write?"""
        head = _read(self._file, 0, 20)
        return (
            head.startswith(_MAGIC) and len(head) == 20 and head[18] == head[19] and 1 <= head[18] <= _READ_VERSION_MAX
        )

    def rows(self) -> Iterator[Row]:
        for number in range(os.fstat(self._file).st_size // PAGE_BYTES):
            yield from self._rows(_read(self._file, number * PAGE_BYTES, PAGE_BYTES))
        for _, offset in self._frames:
            yield from self._rows(_read(self._log, offset, PAGE_BYTES))

    def _rows(self, page: bytes) -> Iterator[Row]:
        if len(page) < PAGE_BYTES or page[0] != _LEAF:
            return
        (count,) = struct.unpack_from(">H", page, 3)
        for at in range(_LEAF_HEADER_BYTES, min(_LEAF_HEADER_BYTES + 2 * count, PAGE_BYTES - 1), 2):
            with contextlib.suppress(IndexError, struct.error):
                yield self._row(page, *struct.unpack_from(">H", page, at))

    def _row(self, page: bytes, at: int) -> Row:
        size, at = _varint(page, at)
        number, at = _varint(page, at)
        local = _LOCAL_MIN + (size - _LOCAL_MIN) % _OVERFLOW_BYTES
        if size <= _LOCAL_MAX:
            local = size
        elif local > _LOCAL_MAX:
            local = _LOCAL_MIN
        payload = page[at : at + local]
        if local < size:
            (following,) = struct.unpack_from(">I", page, at + local)
            payload += self._overflow(following, size - local)
        return number, tuple(_columns(payload))

    def _overflow(self, number: int, size: int) -> bytes:
        """The rest of a payload, from a chain of overflow pages, each in its newest version."""
        if size > self._bytes:
            raise IndexError
        parts = []
        while size > 0:
            offset = self._latest.get(number)
            page = (
                _read(self._file, (number - 1) * PAGE_BYTES, PAGE_BYTES)
                if offset is None
                else _read(self._log, offset, PAGE_BYTES)
            )
            (number,) = struct.unpack_from(">I", page)
            parts.append(page[4 : 4 + size])
            size -= _OVERFLOW_BYTES
        return b"".join(parts)


def _columns(payload: bytes) -> Iterator[Column]:
    end, at = _varint(payload, 0)
    value_at = end
    while at < end:
        kind, at = _varint(payload, at)
        if kind < len(_INTEGER_BYTES):
            size = _INTEGER_BYTES[kind]
            yield int.from_bytes(payload[value_at : value_at + size], "big", signed=True) if size else None
        elif kind in (8, 9):
            size = 0
            yield kind - 8
        else:
            size = (kind - 12) // 2
            yield payload[value_at : value_at + size]
        value_at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, offset behind it). Each byte holds seven bits, the ninth one eight."""
    value = 0
    for k in range(8):
        byte = data[at + k]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + k + 1
    return value << 8 | data[at + 8], at + 9


def _read_log(log: int) -> tuple[bool, list[tuple[int, int]]]:
    """(is the log intact, (page, offset) of every frame up to the last one that commits).

    For sqlite a log silently ends at the first frame with a wrong checksum. Here it ends at the last frame that commits
    and has one of the log's two salts, and a wrong checksum before that is damage. Frames of an earlier use of the log
    have neither salt.
    """
    header = _read(log, 0, _LOG_HEADER.size)
    if len(header) < _LOG_HEADER.size:
        return True, []
    magic, _, _, _, salt_1, salt_2, *sums = _LOG_HEADER.unpack(header)
    order = ">" if magic & 1 else "<"
    state = _checksum(header[:24], (0, 0), order)
    is_intact = magic & ~1 == _LOG_MAGIC and list(state) == sums
    if not is_intact:
        salt_1, salt_2 = struct.unpack(">8xII", _read(log, _LOG_HEADER.size, 16).ljust(16, b"\0"))
    frames, end = [], 0
    for start in range(_LOG_HEADER.size, os.fstat(log).st_size - _FRAME_BYTES + 1, _FRAME_BYTES):
        page, commits, *salts = struct.unpack(">4I", _read(log, start, 16).ljust(16, b"\0"))
        if salts[0] == salt_1 or salts[1] == salt_2:
            frames.append((page, start + _FRAME_HEADER.size))
            end = len(frames) if commits else end
    del frames[end:]
    return (is_intact and _is_chained(log, frames, (salt_1, salt_2), state, order)) or not frames, frames


def _is_chained(
    log: int, frames: list[tuple[int, int]], salts: tuple[int, int], state: tuple[int, int], order: str
) -> bool:
    """Does every frame have the log's salts, and the checksum of everything up to it?"""
    for k, (_, offset) in enumerate(frames):
        start = _LOG_HEADER.size + k * _FRAME_BYTES
        frame = _read(log, start, _FRAME_BYTES)
        if offset != start + _FRAME_HEADER.size or len(frame) < _FRAME_BYTES:
            return False
        state = _checksum(frame[:8] + frame[_FRAME_HEADER.size :], state, order)
        if struct.unpack_from(">4I", frame, 8) != (*salts, *state):
            return False
    return True


def _checksum(data: bytes, state: tuple[int, int], order: str) -> tuple[int, int]:
    first, second = state
    for a, b in struct.iter_unpack(f"{order}II", data):
        first = first + a + second & 0xFFFFFFFF
        second = second + b + first & 0xFFFFFFFF
    return first, second


def _read(descriptor: int, offset: int, size: int) -> bytes:
    """Up to `size` bytes at an offset; empty if the disk cannot read them."""
    try:
        return os.pread(descriptor, size, offset)
    except OSError:
        return b""
