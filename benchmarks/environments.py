"""Environments of other packages: made on demand under a cache folder, so that none of them meets ours.

Versions are pinned as tried. Hivemind imports PyTorch: its CPU wheel must be where pip looks for wheels. It is
installed without what its metadata asks for, which would be gigabytes of CUDA.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

INSTALL_SECONDS_MAX = 900.0


@dataclass(frozen=True, slots=True)
class Environment:
    """packages: with everything they need. bare: without, first."""

    name: str
    packages: tuple[str, ...]
    bare: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cache / "seedflood-benchmarks" / self.name

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def make(self) -> Path:
        """The environment's Python; made unless it is complete. Raises CalledProcessError or TimeoutExpired."""
        ready = self.folder / "ready"
        wanted = "\n".join((*self.bare, *self.packages))
        if not ready.exists() or ready.read_text() != wanted:
            _run([sys.executable, "-m", "venv", "--clear", str(self.folder)])
            if self.bare:
                self._install("--no-deps", *self.bare)
            self._install(*self.packages)
            ready.write_text(wanted)
        return self.python

    def _install(self, *words: str) -> None:
        _run([str(self.python), "-m", "pip", "--disable-pip-version-check", "-q", "install", *words])


LIBP2P = Environment("libp2p", ("libp2p==0.8.1",))
HIVEMIND = Environment(
    "hivemind",
    (
        "base58==2.1.1",
        "configargparse==1.9.0",
        "cryptography==50.0.2",
        "grpcio-tools==1.85.1",
        "msgpack==1.2.4",
        "netaddr==1.3.0",
        "numpy==2.4.6",
        "packaging==26.3",
        "prefetch_generator==1.0.3",
        "protobuf==7.36.2",
        "py-cid==0.5.0",
        "py-multihash==3.0.0",
        "pydantic==2.14.3",
        "PyYAML==6.0.3",
        "scipy==1.17.1",
        "sortedcontainers==2.4.0",
        "uvloop==0.23.0",
        "varint==1.0.2",
        # what PyTorch needs on a CPU
        "filelock==4.2.11",
        "fsspec==2026.9.0",
        "jinja2==3.1.6",
        "networkx==3.6.1",
        "sympy==1.14.0",
        "typing_extensions==4.16.0",
    ),
    bare=("torch==2.13.0+cpu", "hivemind==1.1.12"),
)


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, timeout=INSTALL_SECONDS_MAX, capture_output=True, text=True)
