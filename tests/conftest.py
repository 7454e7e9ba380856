"""Fixtures for all tests."""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The development data and models beside the repository; skips the test where they are not."""
    folder = Path(os.environ.get("SEEDFLOOD_SHARED", REPOSITORY.parent / "shared"))
    if not (folder / "models" / "tiny-opt").is_dir():
        pytest.skip(f"{folder} with the development data and models is not here")
    return folder
