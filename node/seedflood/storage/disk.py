"""Disk errors, in words for an operator."""

import contextlib
import errno
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from seedflood.errors import DiskFullError, JournalError

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
_PROBE_BYTES = 1 << 16


@contextlib.contextmanager
def disk_errors(path: Path, verb: str, what: str = "journal") -> Iterator[None]:
    """Turns errors of sqlite and of the operating system into JournalError or DiskFullError, with a sentence for an
    operator."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        if _is_full(error, path.parent):
            raise DiskFullError(
                f"no space to {verb} the {what} {path}: {error}; free some space on that disk"
            ) from error
        raise JournalError(
            f"cannot {verb} the {what} {path}: {error}; check that the disk is healthy and that this user may write "
            "there"
        ) from error


def _is_full(error: sqlite3.Error | OSError, folder: Path) -> bool:
    """Did it fail for lack of space? sqlite says "full" only if a page could not be written; for some other errors we
    try to write a file ourselves."""
    if isinstance(error, OSError):
        return error.errno in _NO_SPACE
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
        return _has_no_space(folder)
    return code == sqlite3.SQLITE_FULL


def _has_no_space(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        return error.errno in _NO_SPACE
    return False
