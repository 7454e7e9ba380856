"""Snapshots: arrays of a replica at a step, so that a restart need not make them again from the journal.

A snapshot is a convenience, never the truth: one that is broken or does not fit is passed over for the one before it,
and without any the journal is enough. It is written as a draft and renamed once it is on the disk. Only safetensors,
nothing pickled; a SHA-256 over facts and arrays tells what the disk has changed.
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
from seedflood.storage.disk import told

Arrays = dict[str, NDArray[Any]]
Facts = dict[str, str]

SET_ASIDE_SUFFIX = ".unusable"

_DIGEST = "sha256"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was saved, as it was saved. facts: whatever tells what the arrays are."""

    step: int
    arrays: Arrays
    facts: Facts


class Snapshots:
    """The newest `keep` snapshots in a folder, which is made if it is not there. Raises JournalError.

    skipped: the files that `load_latest` passed over, with the reason.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self.skipped: list[tuple[Path, str]] = []
        self._folder = folder
        self._keep = keep
        with told(folder, "open", "snapshots"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for pattern in (f"step-*{durable.DRAFT_SUFFIX}", ".tmp*"):  # the latter are of safetensors itself
                for left in folder.glob(pattern):
                    left.unlink()

    def save(self, step: int, arrays: Arrays, facts: Facts) -> None:
        """Raises DiskFullError, JournalError; then no older one is missing that it was to take the place of."""
        path = self._folder / f"step-{step:09d}.safetensors"
        arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}  # copies only what is not
        with told(path, "write", "snapshot"):
            with durable.draft(path) as draft:
                _write(draft, arrays, facts)
            for old in self._newest_first()[self._keep :]:
                old.unlink()

    def load_latest(self, is_usable: Callable[[Facts], bool]) -> Snapshot | None:
        """The newest snapshot that is whole and whose facts are accepted. One that cannot be read is no error."""
        self.skipped.clear()
        for path in self._newest_first():
            try:
                arrays, facts = load(path)
            except (OSError, ValueError) as error:
                self.skipped.append((path, f"cannot be read: {error}"))
                continue
            if is_usable(facts):
                return Snapshot(_step(path), arrays, facts)
            self.skipped.append((path, "does not fit"))
            del arrays  # one set of arrays in memory at a time
        return None

    def newest(self) -> Path | None:
        """The file of the newest snapshot, which is whole; None if there is none."""
        return next(iter(self._newest_first()), None)

    def set_aside(self) -> None:
        """Those that `load_latest` passed over count no more: the next one may have a lower number. Raises
        JournalError."""
        for path, _ in self.skipped:
            with told(path, "set aside", "snapshot"):
                path.rename(path.with_name(path.name + SET_ASIDE_SUFFIX))

    def _newest_first(self) -> list[Path]:
        return sorted(self._folder.glob("step-*.safetensors"), key=_step, reverse=True)


def _write(path: Path, arrays: Arrays, facts: Facts) -> None:
    """Raises OSError, with the number that the library tells in words only."""
    try:
        save_file(arrays, path, metadata=facts | {_DIGEST: _digest(arrays, facts)})
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]) if number else errno.EIO, str(error)) from error


def load(path: Path) -> tuple[Arrays, Facts]:
    """Raises ValueError or OSError if they are not what was saved."""
    facts = _read_facts(path)
    try:
        arrays: Arrays = load_file(path)
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    if facts.pop(_DIGEST, None) != _digest(arrays, facts):
        raise ValueError("it fails its checksum")
    return arrays, facts


def load_facts(path: Path) -> Facts:
    """Unchecked, without the arrays. Raises ValueError or OSError."""
    facts = _read_facts(path)
    facts.pop(_DIGEST, None)
    return facts


def _read_facts(path: Path) -> Facts:
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
    """A name that is none of ours counts as the oldest."""
    digits = path.stem.removeprefix("step-")
    return int(digits) if digits.isascii() and digits.isdigit() else -1
