"""Snapshots: arrays of a replica at a step, so that a restart need not compute them again from the journal.

A snapshot only saves time. If it is broken or does not fit the journal, the one before it is used; without any, the
journal is enough. It is written as a draft and renamed once it is on the disk. The format is safetensors, nothing is
pickled. A SHA-256 over facts and arrays reveals what the disk has changed.
"""

import errno
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from seedflood import durable
from seedflood.storage.disk import disk_errors

Arrays = dict[str, NDArray[Any]]
Facts = dict[str, str]

SET_ASIDE_SUFFIX = ".unusable"

_DIGEST = "sha256"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Arrays that were saved after `step`. facts: texts that say what the arrays are."""

    step: int
    arrays: Arrays
    facts: Facts


class Snapshots:
    """The newest `keep` snapshots in a folder, which is created if needed. Raises JournalError."""

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder = folder
        self._keep = keep
        with disk_errors(folder, "open", "snapshots"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for pattern in (f"step-*{durable.DRAFT_SUFFIX}", ".tmp*"):  # the latter are of safetensors itself
                for left in folder.glob(pattern):
                    left.unlink()

    def save(self, step: int, arrays: Arrays, facts: Facts) -> None:
        """Writes a snapshot, then deletes those beyond the newest `keep`. Raises DiskFullError or JournalError if it
        cannot be written; then none is deleted."""
        path = self._folder / f"step-{step:09d}.safetensors"
        arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}  # copies only what is not
        with disk_errors(path, "write", "snapshot"):
            with durable.draft(path) as draft:
                _write(draft, arrays, facts)
            for old in self._newest_first()[self._keep :]:
                old.unlink()

    def load_latest(self, is_usable: Callable[[Facts], bool]) -> Snapshot | None:
        """The newest snapshot that passes its checksum and whose facts are usable. Other files are set aside, so that
        they do not count as the newest when the next snapshot has a lower step. Raises JournalError for a file that
        cannot be opened: that is not the fault of what is in it."""
        for path in self._newest_first():
            with disk_errors(path, "open", "snapshot"):
                path.open("rb").close()
            try:
                arrays, facts = load(path)
            except (OSError, ValueError):
                arrays, facts = {}, None
            if facts is not None and is_usable(facts):
                return Snapshot(_step(path), arrays, facts)
            del arrays  # one set of arrays in memory at a time
            with disk_errors(path, "set aside", "snapshot"):
                path.rename(path.with_name(path.name + SET_ASIDE_SUFFIX))
        return None

    def newest(self) -> Path | None:
        """The file of the newest snapshot, None if there is none. It is complete: drafts have other names."""
        return next(iter(self._newest_first()), None)

    def _newest_first(self) -> list[Path]:
        return sorted(self._folder.glob("step-*.safetensors"), key=_step, reverse=True)


def _write(path: Path, arrays: Arrays, facts: Facts) -> None:
    """Raises OSError. Its errno is parsed from the library's message, which is all that safetensors gives."""
    try:
        save_file(arrays, path, metadata=facts | {_DIGEST: _digest(arrays, facts)})
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]) if number else errno.EIO, str(error)) from error


def load(path: Path) -> tuple[Arrays, Facts]:
    """The arrays and facts of a file. Raises ValueError or OSError if it cannot be read or fails its checksum."""
    facts = load_facts(path)
    try:
        arrays: Arrays = load_file(path)
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    if facts.pop(_DIGEST, None) != _digest(arrays, facts):
        raise ValueError("it fails its checksum")
    return arrays, facts


def load_digest(path: Path) -> bytes:
    """The SHA-256 that `load` checks, as the file tells it. Raises ValueError or OSError."""
    return bytes.fromhex(load_facts(path).get(_DIGEST, "none"))


def load_facts(path: Path) -> Facts:
    """Only the facts of a file, its digest among them, without comparing that. Raises ValueError or OSError."""
    try:
        with safe_open(path, framework="np") as file:
            return dict(file.metadata() or {})
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def _digest(arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, str]) -> str:
    state = hashlib.sha256(b"seedflood snapshot 1\0" + repr(sorted(facts.items())).encode())
    for name, array in sorted(arrays.items()):
        state.update(f"\0{name}\0{array.dtype.name}\0{array.shape}\0".encode())
        state.update(array.reshape(-1).view(np.uint8).data)
    return state.hexdigest()


def _step(path: Path) -> int:
    """The step in a file's name; -1, older than all others, if the name is not one of ours."""
    digits = path.stem.removeprefix("step-")
    return int(digits) if digits.isascii() and digits.isdigit() else -1
