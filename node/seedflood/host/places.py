"""The state folder of a node, and the names of what is in it."""

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

from seedflood.errors import ConfigError, InUseError

KEY_FILE, JOURNAL_FILE, SNAPSHOTS_FOLDER = "identity.pem", "journal.sqlite", "snapshots"

LOCK_FILE = "lock"
"""Locked while a node runs; it stays."""

HOLD_SECONDS = 1.0
"""How long a lock is tried for: who looks whether it is held has it for a moment."""

SNAPSHOTS_KEPT = 2
"""The newest, and one in case it cannot be read."""

RESULT_FILE = "result.json"

ROSTER_FILE = "roster.json"
"""In the state folder: the newest roster that others sent us."""

FORM_FILE = "form"
"""Of a relay: what it has learned of the run from others."""

GASLOC_FOLDER = "gasloc"
"""Holds what hosts that train by GASLoC exchange."""


def make_folder(path: Path) -> Path:
    """Raises ConfigError."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(f"cannot create the state folder {path}: {error.strerror}; set [node] state.") from None
    return path


def is_held(state: Path) -> bool:
    """Does a node run with this state folder? False also if that cannot be found out."""
    try:
        with (state / LOCK_FILE).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def hold(state: Path) -> int:
    """Locks the state folder until this process ends, however it ends, or the descriptor that is returned is closed.
    Raises InUseError, ConfigError or PermissionError."""
    path, until = make_folder(state) / LOCK_FILE, time.monotonic() + HOLD_SECONDS
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)  # a folder cannot be locked over NFS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            except BlockingIOError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
    except BlockingIOError:
        raise InUseError(
            f"another seedflood process uses the state folder {state}: stop it, or give this one another "
            "[node] state (--state)."
        ) from None
    except PermissionError:  # another folder would be another key
        raise
    except OSError as error:
        raise ConfigError(f"cannot lock {path}: {error.strerror}; set [node] state to another folder.") from None


def read_result(state: Path) -> dict[str, Any]:
    """What the node printed at the end of its run; empty if it has not reached the end."""
    try:
        result = json.loads((state / RESULT_FILE).read_text(encoding="utf-8"))["result"]
    except (OSError, ValueError, LookupError, TypeError):  # no such file, no JSON, no result yet
        return {}
    return result if isinstance(result, dict) else {}
