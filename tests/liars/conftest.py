"""Node.js, and what members written for it are made of."""

import fcntl
import shutil
import subprocess

import pytest
from members import HERE


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the liar is made of, from the lock file."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("Node.js with npm is not installed: the liars are written for it")
    with (tmp_path_factory.getbasetemp().parent / "npm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker of pytest may be at it, too
        if (HERE / "node_modules" / ".package-lock.json").is_file():  # npm writes it last
            return
        command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        made = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip(f"the packages of the liars cannot be installed: {made.stderr[-300:]}")
