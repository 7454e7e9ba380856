"""Disk errors, in words for an operator."""

import contextlib
import errno
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from seedflood.errors import DiskFullError, ExhaustedError, JournalError

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
_NO_DESCRIPTORS = {errno.EMFILE, errno.ENFILE}
_PROBE_BYTES = 1 << 16


@contextlib.contextmanager
def disk_errors(path: Path, verb: str, what: str = "journal") -> Iterator[None]:
    """Turns errors of sqlite and of the operating system into JournalError, DiskFullError or ExhaustedError, with a
    sentence for an operator."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        number = _number_of(error, path.parent)
        if number in _NO_DESCRIPTORS:
            raise ExhaustedError(
                f"too many open files to {verb} the {what} {path}: raise the limit (ulimit -n, LimitNOFILE=), or see "
                "who opens so many connections"
            ) from error
        if number in _NO_SPACE:
            raise DiskFullError(
                f"no space to {verb} the {what} {path}: {error}; free some space on that disk"
            ) from error
        raise JournalError(
            f"cannot {verb} the {what} {path}: {error}; check that the disk is healthy and that this user may write "
            "there"
        ) from error


def _number_of(error: sqlite3.Error | OSError, folder: Path) -> int:
    """Why it failed, as the operating system numbers it; 0 if that is unknown. sqlite says "full" only if a page could
    not be written; for some other errors we try to write a file ourselves."""
    if isinstance(error, OSError):
        return error.errno or 0
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
        return _tried(folder)
    return errno.ENOSPC if code == sqlite3.SQLITE_FULL else 0


def _tried(folder: Path) -> int:
    """What a small file fails with here; 0 if it does not."""
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        return error.errno or 0
    return 0
