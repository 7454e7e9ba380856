"""Hosts that files of deploy/ start, with the programs of this working tree. What would be a machine or a pod is an
address on loopback; all listen on the same port."""

import os
import subprocess
from pathlib import Path

from forks import programs

from seedflood.cluster.ports import reserve_ports

REPOSITORY = Path(__file__).parents[2]


class Loopback:
    """tools: a folder of programs, which are found before all others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tools = folder / "bin"
        self.tools.mkdir()
        for name in ("seedflood", "seedflood-node"):
            (self.tools / name).symlink_to(programs() / name)
        (self.port,) = reserve_ports(1)
        self.environment = os.environ | {"PATH": f"{self.tools}:{os.environ['PATH']}"}

    def put(self, **programs: str) -> None:
        """Stand-ins, by name."""
        for name, text in programs.items():
            (self.tools / name).write_text(text)
            (self.tools / name).chmod(0o755)

    def address(self, number: int) -> str:
        return f"127.0.0.{number + 1}"

    def run(self, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            words,
            env=self.environment | environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
