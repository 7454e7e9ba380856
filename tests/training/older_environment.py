"""An environment with an older transformers, made once and kept in the cache of the user. PyTorch is that of tests."""

import fcntl
import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seedflood-tests"
READY = "ready"
INSTALL_SECONDS_MAX = 200


def older_python(*wanted: str) -> Path:
    """The interpreter of an environment with these packages. Raises OSError or subprocess.SubprocessError if it cannot
    be had."""
    folder = CACHE / re.sub(r"\W+", "-", f"{'_'.join(wanted)} {metadata.version('torch')} {sys.version_info[1]}")
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / "bin" / "python"
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # processes of one test run make it together
        if not (folder / READY).exists():
            venv.create(folder, with_pip=True, clear=True)
            quiet = ["--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "20"]
            install = [str(python), "-m", "pip", "install", *quiet, *wanted]
            subprocess.run(install, check=True, capture_output=True, timeout=INSTALL_SECONDS_MAX)
            _share_torch(next(folder.glob("lib/python*/site-packages")))
            (folder / READY).touch()
    return python


def _share_torch(packages: Path) -> None:
    """Links what PyTorch needs, and nothing else: an old transformers would import what it finds."""
    for name in _needed("torch"):
        own = metadata.distribution(name)
        tops = {file.parts[0] for file in own.files or () if file.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            if not (packages / top).exists():
                (packages / top).symlink_to(own.locate_file(top))


def _needed(name: str, known: frozenset[str] = frozenset()) -> Iterator[str]:
    yield name
    for said in metadata.requires(name) or ():
        other = re.split(r"[^\w.-]", said)[0]
        if "extra ==" in said or other in known:
            continue
        try:
            metadata.version(other)
        except metadata.PackageNotFoundError:
            continue  # of another system
        yield from _needed(other, known | {name})
