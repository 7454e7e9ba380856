"""Atomic writes: a file of the state folder is complete and on the disk under its name, or not there at all.

A draft is written beside it, fsynced and renamed; then the folder is fsynced, too. A crash at any moment leaves the old
file or the new one, and perhaps a draft. The next writer of the same name deletes that draft. If several processes may
make the file at once (`is_contested`), each draft has its own name, and one that a crash leaves stays.

Some file systems lack a part of this (exFAT, SMB, drives of Windows in WSL, some of FUSE). Without hard links, of two
that make one file in the same instant the last one may win. Where folders cannot be forced, a power failure may take
back the newest names.
"""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

DRAFT_SUFFIX = ".draft"

_CANNOT = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EBADF}
"""What a file system says that has no such thing. A disk that fails says something else."""


def write(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Writes a file atomically. Raises OSError; even then the file is either the old or the new one, complete."""
    with draft(path, mode=mode) as written:
        written.write_bytes(data)


@contextlib.contextmanager
def draft(path: Path, *, mode: int = 0o600, is_contested: bool = False) -> Iterator[Path]:
    """An empty file for the block to fill. Afterwards it takes the place of `path`; if the block fails it is deleted.

    is_contested: other processes may make the same file now. The first one wins, the others get FileExistsError.
    """
    token = f".{secrets.token_hex(8)}" if is_contested else ""
    written = path.with_name(f"{path.name}{token}{DRAFT_SUFFIX}")
    written.unlink(missing_ok=True)
    os.close(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
    try:
        yield written
        _sync(written, os.O_RDWR)  # SMB forces no file that is open for reading
        if is_contested:
            _claim(written, path)
        else:
            os.replace(written, path)
        sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            written.unlink()


def sync_folder(folder: Path) -> None:
    """Makes the names of new, renamed and deleted files durable (fsync), where that can be had."""
    try:
        _sync(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise


def _claim(written: Path, path: Path) -> None:
    """Gives the file this name, unless there is one already. Raises OSError."""
    try:
        os.link(written, path)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        os.replace(written, path)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
