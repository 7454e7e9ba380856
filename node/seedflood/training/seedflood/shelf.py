"""A nameless file for data that would fill the memory. It ends with the process; the journal has all of it."""

import tempfile
import weakref
from pathlib import Path
from typing import BinaryIO

Place = tuple[int, int]
"""Offset and size in bytes."""


class Shelf:
    """A file that only grows: nothing is overwritten, so a place stays good."""

    def __init__(self, folder: Path | None) -> None:
        """folder: of the file; None for the system's folder of temporary files."""
        self._folder = folder
        self._file: BinaryIO | None = None
        self._end = 0

    def put(self, data: bytes) -> Place | None:
        """Writes data and returns its place; None if it cannot be written at present."""
        try:
            file = self._open()
            file.seek(self._end)
            if file.write(data) < len(data):  # the disk has become full
                return None
        except OSError:
            return None
        place = self._end, len(data)
        self._end += len(data)
        return place

    def read(self, place: Place) -> bytes:
        """What was put there. Raises OSError."""
        offset, size = place
        file = self._open()
        file.seek(offset)
        return file.read(size)

    def _open(self) -> BinaryIO:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0, dir=self._folder)  # noqa: SIM115 - closed with this object
            weakref.finalize(self, self._file.close)
        return self._file
