"""A Docker engine, and the image of this working tree; tests of containers are skipped where no engine answers."""

import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
IMAGE = "seedflood:cpu"
BUILD_SECONDS_MAX = 1800.0


@pytest.fixture(scope="session")
def engine() -> None:
    """Skips the test where there is none."""
    if shutil.which("docker") is None:
        pytest.skip("needs Docker, which is not installed")
    answer = subprocess.run(["docker", "info"], capture_output=True, text=True, timeout=60, check=False)
    if answer.returncode != 0:
        pytest.skip(f"needs a Docker engine, and none answers: {answer.stderr.strip().splitlines()[-1]}")


@pytest.fixture(scope="session")
def image(engine: None) -> str:
    """The name of the image, built from this working tree; layers that are there already are used."""
    _fetch_wheel()
    # Host networking: some machines give containers that are being built no other way to a package index.
    command = ["docker", "build", "--network", "host", "--file", "docker/Dockerfile", "--target", "cpu", "--tag", IMAGE]
    built = subprocess.run([*command, "."], cwd=REPOSITORY, text=True, timeout=BUILD_SECONDS_MAX, check=False)
    assert built.returncode == 0, "the image could not be built; its log is above"
    return IMAGE


def _fetch_wheel() -> None:
    """The CPU build of PyTorch that these tests run with, where pip can have the file without an index of its own.

    If not, the build takes it from PyTorch's index.
    """
    version = importlib.metadata.version("torch")
    folder = REPOSITORY / "docker" / "wheels"
    if "+cpu" not in version or any(folder.glob(f"torch-{version}-*.whl")):
        return
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    subprocess.run([*command, f"torch=={version}"], timeout=BUILD_SECONDS_MAX, check=False)
