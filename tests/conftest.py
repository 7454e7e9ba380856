"""Fixtures for all tests."""

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from seedflood.host import garbage

garbage.defer()  # before tests import PyTorch, as a daemon does it
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before PyTorch: workers and daemons share the cores already
MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 << 30:  # journals are forced onto the disk, and tests wait
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

settings.register_profile("patient", deadline=None)  # how long an example takes tells how busy the machine is
settings.load_profile("patient")

REPOSITORY = Path(__file__).parent.parent

RARE = ("docker", "gpu", "long", "soak")
"""Marks of tests that few files have."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m long` does not import what has no such test: every worker would take ten seconds of a core for that."""
    wanted = config.option.markexpr
    if wanted not in RARE or collection_path.suffix != ".py":
        return None
    return f"mark.{wanted}" not in collection_path.read_text() or None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None:
        import torch  # those who need no GPU may need no PyTorch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")


def pytest_collection_finish() -> None:
    """As a daemon does it once everything is imported: else each full collection searches all objects of PyTorch."""
    garbage.settle()


@pytest.fixture(autouse=True)
def _no_log_of_an_earlier_test() -> Iterator[None]:
    """A command that is run in this process logs to the stderr of its test, which ends with that test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers, root.level = handlers, level


@pytest.fixture(scope="session")
def shared() -> Path:
    """The development data and models beside the repository; skips the test where they are not."""
    folder = Path(os.environ.get("SEEDFLOOD_SHARED", REPOSITORY.parent / "shared"))
    if not (folder / "models" / "tiny-opt").is_dir():
        pytest.skip(f"{folder} with the development data and models is not here")
    return folder
