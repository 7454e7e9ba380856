"""What lies on the disk of a host beside journal and checkpoints: contents that come in, and what is kept of them.

`incoming/` holds one file per content, named by its digest. It grows as chunks come, so a copy of a replica goes on
where it stopped, even after a crash: what is torn fails its digest. `kept/` holds the difference of ours and theirs of
each partner and round whose outcome counts: float32 numbers as they lie in memory, then their SHA-256. It is on the
disk before the partner hears that we are prepared.
"""

import hashlib
import os
from collections.abc import Callable, Collection
from itertools import count
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from seedflood import durable
from seedflood.protocol.gasloc.transfer import Sink
from seedflood.protocol.origin import OriginId
from seedflood.storage.disk import told

HASHED_BYTES = 1 << 22
"""At once, so that a large file is not in memory."""

_SHA_BYTES = hashlib.sha256().digest_size

Numbers = NDArray[np.float32]


class FileSink:
    """Received bytes, in a file. held: how many. Raises JournalError, DiskFullError."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        with told(path, "open", "file"):
            self.held = path.stat().st_size if path.exists() else 0
            if self.held > size:
                path.unlink()
                self.held = 0

    def write(self, data: memoryview | bytes) -> None:
        with told(self.path, "write", "file"), self.path.open("ab") as file:
            file.truncate(self.held)  # of a write that failed half-way
            file.write(data)
        self.held += len(data)


class Incoming:
    """Where contents go that come in (`transfer.Sinks`). The folder is made if it is not there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: WeakValueDictionary[str, FileSink] = WeakValueDictionary()
        """Those that somebody still writes or reads, by the name of the file."""
        with told(folder, "open", "folder"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def open(self, digest: bytes, size: int) -> FileSink:
        """A file that was left goes on. Two partners may offer the same bytes at once: a file for each."""
        names = (f"{digest.hex()}-{number}" for number in count())
        name = next(name for name in names if name not in self._open)
        sink = self._open[name] = FileSink(self._folder / name, size)
        return sink

    def draft(self, digits: str, size: int) -> Path:
        """A file of zeros for something of our own that is sent."""
        path = self._folder / digits
        with told(path, "write", "file"), path.open("wb") as file:
            file.truncate(size)
        return path

    def all(self) -> list[Path]:
        return list(self._folder.iterdir())


class KeptParts:
    """Differences by partner and round. Raises JournalError, DiskFullError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with told(folder, "open", "folder"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def keep(self, round_: int, partner: OriginId, numbers: int, fill: Callable[[Numbers], None]) -> None:
        """fill: writes the numbers, which are zeros, in place. On the disk when this returns."""
        path = self._path(round_, partner)
        with told(path, "write", "file"), durable.draft(path) as draft:
            difference = np.memmap(draft, dtype=np.float32, mode="w+", shape=numbers)
            fill(difference)
            difference.flush()
            digest = hashlib.sha256(difference.data.cast("B")).digest()
            del difference
            with draft.open("ab") as file:
                file.write(digest)

    def load(self, round_: int, partner: OriginId, numbers: int) -> Numbers | None:
        """None if it is not there, or not what was kept."""
        path = self._path(round_, partner)
        try:
            if path.stat().st_size != 4 * numbers + _SHA_BYTES:
                return None
            difference: Numbers = np.memmap(path, dtype=np.float32, mode="c", shape=numbers)
            with path.open("rb") as file:
                file.seek(-_SHA_BYTES, os.SEEK_END)
                digest = file.read()
        except OSError:
            return None
        return difference if hashlib.sha256(difference.data.cast("B")).digest() == digest else None

    def drop(self, round_: int, partner: OriginId) -> None:
        remove([self._path(round_, partner)])

    def drop_others(self, wanted: Collection[tuple[int, OriginId]]) -> None:
        """All but these (round, partner): of what was kept just before a crash the node knows nothing."""
        names = {self._path(*one).name for one in wanted}
        remove([path for path in self._folder.iterdir() if path.name not in names])

    def _path(self, round_: int, partner: OriginId) -> Path:
        return self._folder / f"{round_:012d}-{partner.to_bytes(8, 'big').hex()}"


class FileContent:
    """A file that is sent as it is now, though another one may take its place meanwhile (`transfer.Content`)."""

    def __init__(self, path: Path, digest: bytes | None = None) -> None:
        """digest: if it is known; else all of it is read once. Raises OSError."""
        self._bytes = np.memmap(path, dtype=np.uint8, mode="r")
        self.size = len(self._bytes)
        self.digest = hashlib.sha256(self._bytes.data).digest() if digest is None else digest

    def read(self, offset: int, count: int) -> memoryview:
        return self._bytes[offset : offset + count].data


def path_of(sink: Sink) -> Path:
    assert isinstance(sink, FileSink), "sinks are files here"
    return sink.path


def digest_of(path: Path) -> bytes:
    """SHA-256. Raises OSError."""
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(HASHED_BYTES):
            hasher.update(data)
    return hasher.digest()


def remove(paths: Collection[Path]) -> None:
    """Raises JournalError."""
    for path in paths:
        with told(path, "remove", "file"):
            path.unlink(missing_ok=True)
