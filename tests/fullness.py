"""A file system without space."""

from pathlib import Path


def fill(folder: Path) -> Path:
    """A file that leaves no space."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler
