"""Deadlines off: how long an example takes tells how busy the machine is, and nothing of the code."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("training", deadline=None, max_examples=50)
settings.load_profile("training")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of development data and models, beside the repository."""
    folder = Path(os.environ.get("SEEDFLOOD_SHARED", Path(__file__).parents[3] / "shared"))
    if not (folder / "models/tiny-opt/config.json").is_file():
        pytest.skip(f"{folder} is absent: it holds development data that is no part of the repository")
    return folder
