"""Real daemons as processes, on loopback or in network namespaces, with the embedded model."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from networks import Network
from processes import Hosts


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path)
    yield made
    made.close()


@pytest.fixture
def root() -> None:
    """Skips the test where file systems and networks cannot be made."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a file system or to make network namespaces")


@pytest.fixture
def small_disk(root: None, hosts: Hosts, tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 megabytes: the journal, with its log file of 4, has enough of it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m,mode=0700", "seedflood-test", folder], check=True, timeout=30
    )
    yield folder
    hosts.close()
    subprocess.run(["umount", folder], check=True, timeout=30)


@pytest.fixture
def network(root: None, hosts: Hosts) -> Iterator[Network]:
    """Removed when the test has ended, after the processes in it."""
    made = Network()
    yield made
    hosts.close()
    made.close()
