"""A host's files beside journal and checkpoints: contents that arrive.

`incoming/` has one file per content, named by who sends it and by its digest. It grows as chunks arrive, so a transfer
that was given up can go on where it stopped. Nothing in it outlives the process: after a power failure the end of a
file may be anything, and who had sent it would be taken for a liar.

Files are read and written piece by piece, and none is mapped, so an exchange needs hardly any memory.
"""

import contextlib
import errno
import os
import weakref
from collections.abc import Collection
from itertools import count
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from seedflood.protocol.gasloc.transfer import Sink
from seedflood.protocol.origin import OriginId
from seedflood.storage.disk import disk_errors

LEFT_MAX = 4
"""How many files of contents that did not come to an end are kept, to go on with one of them."""


class _Descriptor:
    """An open file, which may be renamed or deleted meanwhile. It is closed when nobody refers to it any more."""

    def __init__(self, path: Path, flags: int) -> None:
        """Raises OSError."""
        self.number = os.open(path, flags | os.O_CLOEXEC, 0o600)
        self.close = weakref.finalize(self, os.close, self.number)


class FileSink:
    """A file of received bytes. held: how many. Raises JournalError, DiskFullError."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self._size = size
        self._file: _Descriptor | None = None
        with disk_errors(path, "open", "file"):
            self.held = path.stat().st_size if path.exists() else 0
            if self.held > size:
                path.unlink()
                self.held = 0

    def write(self, data: memoryview | bytes) -> None:
        with disk_errors(self.path, "write", "file"):
            if self._file is None:
                self._file = _Descriptor(self.path, os.O_WRONLY | os.O_CREAT)
            try:
                if os.pwrite(self._file.number, data, self.held) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file.number, self.held)  # another life would take it for received
                raise
        self.held += len(data)
        if self.held == self._size:
            self._file = None


class Incoming:
    """The folder for contents that arrive (`transfer.Sinks`). It is created if needed, and empty at first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: WeakValueDictionary[str, FileSink] = WeakValueDictionary()
        """Sinks that are still in use, by the name of the file."""
        with disk_errors(folder, "open", "folder"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove(self.all())

    def open(self, peer: OriginId, digest: bytes, size: int) -> FileSink:
        """A sink for a content. It resumes what this peer has sent of it, unless that is in use: it may have offered
        the same bytes before. Deletes old files that nobody uses: neighbours may offer without end, and send a part of
        each."""
        names = (f"{peer:016x}-{digest.hex()}-{number}" for number in count())
        name = next(name for name in names if name not in self._open)
        sink = self._open[name] = FileSink(self._folder / name, size)
        remove(self._unused()[:-LEFT_MAX])
        return sink

    def _unused(self) -> list[Path]:
        """Files of contents, the oldest first."""
        found = []
        for path in self.all():
            if path.name not in self._open:
                with contextlib.suppress(FileNotFoundError):  # the compute thread has deleted it
                    found.append((path.stat().st_mtime_ns, path))
        return [path for _, path in sorted(found)]

    def all(self) -> list[Path]:
        return list(self._folder.iterdir())


Item = TypeVar("Item", bound=np.generic)


class StoredArray(Generic[Item]):
    """An array in a file; a slice reads only its part. The file may be deleted meanwhile."""

    def __init__(self, path: Path, dtype: type[Item], length: int) -> None:
        """Raises OSError."""
        self._file = _Descriptor(path, os.O_RDONLY)
        self._dtype = np.dtype(dtype)
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, part: slice, /) -> NDArray[Item]:
        """Raises OSError if the file is shorter."""
        start, end, _ = part.indices(self._length)
        found: NDArray[Any] = np.empty(max(0, end - start), dtype=self._dtype)
        if os.preadv(self._file.number, [found.data.cast("B")], start * self._dtype.itemsize) < found.nbytes:
            raise OSError("the file is shorter than it was")
        return found


class FileContent:
    """The present content of a file, to be sent (`transfer.Content`). The file may be replaced meanwhile.

    digest: by which it is offered. For a checkpoint it is the digest in the file, so nothing has to be read; the host
    that loads the copy checks it.
    """

    def __init__(self, path: Path, digest: bytes) -> None:
        """Raises OSError."""
        self.digest = digest
        self.size = path.stat().st_size
        self._stored = StoredArray(path, np.uint8, self.size)

    def read(self, offset: int, count: int) -> memoryview:
        return self._stored[offset : offset + count].data


def path_of(sink: Sink) -> Path:
    assert isinstance(sink, FileSink), "sinks are files here"
    return sink.path


def remove(paths: Collection[Path]) -> None:
    """Raises JournalError."""
    for path in paths:
        with disk_errors(path, "remove", "file"):
            path.unlink(missing_ok=True)
