"""A nameless file for data that would fill the memory. It ends with the process; the journal has all of it."""

import tempfile
import weakref
import zlib
from pathlib import Path
from typing import BinaryIO, NamedTuple

from seedflood.errors import JournalError


class Shelved(NamedTuple):
    """Where data are: offset and size in bytes. check: their CRC-32."""

    offset: int
    size: int
    check: int


class Shelf:
    """A file that only grows: nothing is overwritten, so a place stays good."""

    def __init__(self, folder: Path | None) -> None:
        """folder: of the file; None for the system's folder of temporary files."""
        self._folder = folder
        self._file: BinaryIO | None = None
        self._end = 0

    def put(self, data: bytes) -> Shelved | None:
        """Writes data and returns its place; None if it cannot be written at present."""
        try:
            file = self._open()
            file.seek(self._end)
            if file.write(data) < len(data):  # the disk has become full
                return None
        except OSError:
            return None
        place = Shelved(self._end, len(data), zlib.crc32(data))
        self._end += len(data)
        return place

    def read(self, place: Shelved) -> bytes:
        """What was put there. Raises JournalError if the file does not give it back."""
        try:
            file = self._open()
            file.seek(place.offset)
            data = file.read(place.size)
            if zlib.crc32(data) != place.check:
                raise OSError("it has changed")
        except OSError as error:
            raise JournalError(
                f"cannot read back what was put aside on the disk: {error}; check that the disk is healthy and start "
                "the node again: its journal has all of it"
            ) from error
        return data

    def _open(self) -> BinaryIO:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0, dir=self._folder)  # noqa: SIM115 - closed with this object
            weakref.finalize(self, self._file.close)
        return self._file
