"""Folders of models: whole, or not there."""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from seedflood.config import CARD_FILE, RUN_IN_CARD, check_place
from seedflood.errors import DiskFullError, ExhaustedError, ModelError

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}


@contextmanager
def writing_folder(folder: str | os.PathLike[str], mark: str, card: str) -> Iterator[Path]:
    """A new folder with a model card, for the block to fill with files. It takes the place of `folder` afterwards, or
    is gone if the block fails.

    mark: see `check_place`. Raises ConfigError if the folder holds something else than an earlier export of the run
    that the card is of, DiskFullError or ModelError if it cannot be written.
    """
    target, found = Path(folder), RUN_IN_CARD.search(card)
    check_place(target, None if found is None else found[1], mark)
    with _folder_beside(target) as beside:
        (beside / CARD_FILE).write_text(card, encoding="utf-8")
        yield beside
        for path in beside.rglob("*"):
            _open_to_all(path)
        _replace(beside, target)


@contextmanager
def trying_folder(target: Path) -> Iterator[Path]:
    """A new folder like that of `writing_folder`, with the same errors of the disk. It is gone afterwards, with folders
    that were made for it."""
    missing = [one for one in target.parents if not one.exists()]
    try:
        with _folder_beside(target) as beside:
            yield beside
    finally:
        for one in missing:
            with suppress(OSError):
                one.rmdir()


@contextmanager
def _folder_beside(target: Path) -> Iterator[Path]:
    """An empty folder on the same disk. Whatever is left of it afterwards is removed."""
    beside: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        _open_to_all(beside)
        yield beside
    except Exception as error:
        if (number := _errno(error)) is None:
            raise
        if number in _NO_SPACE:
            raise DiskFullError(f"no space to export to {target}: free some on that disk, and try again.") from error
        if number in (errno.EMFILE, errno.ENFILE):
            raise ExhaustedError(
                f"too many open files to export to {target}: raise the limit (ulimit -n, LimitNOFILE=)."
            ) from error
        raise ModelError(f"Cannot export to {target}: {getattr(error, 'strerror', None) or error}.") from error
    finally:
        if beside is not None:
            shutil.rmtree(beside, ignore_errors=True)


def _open_to_all(path: Path) -> None:
    """safetensors writes for its user alone. A file system without modes refuses that."""
    with suppress(OSError):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _errno(error: Exception) -> int | None:
    """Of a fault of the disk. safetensors and tokenizers give it in their text only."""
    if isinstance(error, OSError):
        return error.errno or errno.EIO
    number = re.search(r"\(os error (\d+)\)", str(error))
    return int(number[1]) if number else None


def _replace(new: Path, target: Path) -> None:
    """Renames the new folder. A folder that is in the way is moved aside first and removed last."""
    if not target.exists():
        new.rename(target)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    target.rename(aside / "model")
    new.rename(target)
    shutil.rmtree(aside, ignore_errors=True)
