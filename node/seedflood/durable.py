"""The one way to make a file of the state folder: whole and on the disk under its name, or not there at all.

It is written beside its place, flushed and renamed; then the folder is flushed, too. A crash at any instant leaves
what was there before or the new file, and perhaps a draft, which the next writer of the same name takes away; of files
that several may make at once drafts have names of their own and stay.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

DRAFT_SUFFIX = ".draft"


def write(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Raises OSError; then the file is the old or the new one, whole."""
    with draft(path, mode=mode) as written:
        written.write_bytes(data)


@contextlib.contextmanager
def draft(path: Path, *, mode: int = 0o600, is_contested: bool = False) -> Iterator[Path]:
    """An empty file to be filled, which at the end takes the place of `path`; if anything is raised it is gone.

    is_contested: other processes may make the same file now. The first one stays, the others get FileExistsError.
    """
    token = f".{secrets.token_hex(8)}" if is_contested else ""
    written = path.with_name(f"{path.name}{token}{DRAFT_SUFFIX}")
    written.unlink(missing_ok=True)
    os.close(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
    try:
        yield written
        _sync(written, os.O_RDONLY)
        if is_contested:
            os.link(written, path)
        else:
            os.replace(written, path)
        sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            written.unlink()


def sync_folder(folder: Path) -> None:
    """Makes the names of new, renamed and removed files durable."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
