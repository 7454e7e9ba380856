"""A copy of a journal, also of one that a node is writing.

The node keeps sqlite's lock of the file, so nobody else can read it through sqlite. But the files can be copied, in
this order, because of how sqlite writes them. A page of the file is written by a checkpoint alone, from the log. A log
only grows, until it begins anew with another header. So if the file is copied first, and the header is still the same
after the log was copied, too, then all pages that were written meanwhile are in the log, from where sqlite takes them.
What stands at the end of the log and is no whole group is what the node is about to write; sqlite leaves it out.

Nothing is locked and nothing is written beside the journal, so the node does not notice.
"""

import contextlib
import shutil
from pathlib import Path

from seedflood.errors import JournalError
from seedflood.storage.disk import disk_errors

COPIES_MAX = 16
"""How often a copy is begun again. A log begins anew after some 16 MB."""

HEADER_BYTES = 32


def copy_journal(path: Path, folder: Path) -> Path:
    """Copies the journal into a folder and returns where it is. Raises JournalError."""
    copy = folder / path.name
    log, log_copy = (one.with_name(f"{one.name}-wal") for one in (path, copy))
    with disk_errors(path, "copy"):
        for _ in range(COPIES_MAX):
            header = _header(log)
            shutil.copyfile(path, copy)
            log_copy.unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(log, log_copy)
            if _header(log) == header:
                return copy
    raise JournalError(f"the journal {path} changes too fast to be copied; try again later")


def _header(log: Path) -> bytes:
    """Of the log as it is now; empty if there is none, as after a node has stopped."""
    with contextlib.suppress(FileNotFoundError), log.open("rb") as file:
        return file.read(HEADER_BYTES)
    return b""
