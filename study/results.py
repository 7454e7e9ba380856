"""The results of a study: a file of JSON lines, one for each cell that has ended.

A line is put on the disk when its cell has ended, so `kill -9` costs little more than the cells that were running. A
line that was cut off by a crash is removed when the file is opened.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seedflood.errors import DataError, ExitCode, JournalError, SeedfloodError
from study.cell import Cell, Result

RESULTS_FILE = "results.jsonl"
LOCK_FILE = "lock"


class FolderInUseError(SeedfloodError):
    """Another study writes into the folder. It may be about to end, so it is right to try again."""

    exit_code = ExitCode.TRY_AGAIN


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keeps other studies from writing into a folder. The operating system drops the lock when this process ends,
    however it ends. Raises FolderInUseError, or OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_FILE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUseError(
                f"another python -m study writes into {folder}: wait until it has ended, or name another folder."
            ) from None
        yield


class Results:
    """All results of a folder; one process writes. Raises DataError for a file that cannot be read."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / RESULTS_FILE
        self._found: dict[Cell, Result] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            data = self.path.read_bytes() if self.path.exists() else b""
            whole = data.rfind(b"\n") + 1
            if whole < len(data):
                os.truncate(self.path, whole)
        except OSError as error:
            raise self._fault(error) from error
        for number, line in enumerate(data[:whole].splitlines(), 1):
            try:
                result = Result.parse(line.decode())
            except ValueError as error:
                where = f"{self.path}, line {number}"
                sentence = f"{where}: not a result of this study ({error}): remove the line, or take another folder."
                raise DataError(sentence) from error
            self._found[result.cell] = result

    def __contains__(self, cell: Cell) -> bool:
        return cell in self._found

    def __getitem__(self, cell: Cell) -> Result:
        return self._found[cell]

    def __iter__(self) -> Iterator[Result]:
        return iter(self._found.values())

    def __len__(self) -> int:
        return len(self._found)

    def add(self, result: Result) -> None:
        """Appends a result, and returns when it is on the disk. Raises JournalError."""
        try:
            with self.path.open("a") as file:
                file.write(result.line())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise self._fault(error) from error
        self._found[result.cell] = result

    def _fault(self, error: OSError) -> JournalError:
        sentence = (
            f"cannot write {self.path} ({error.strerror}): check the disk and the folder's rights, and start again."
        )
        return JournalError(sentence)
