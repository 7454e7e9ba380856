"""What a relay takes of a small server: seconds until it listens, those of its processor, and memory.

The process is `seedflood relay` without the packages of the extra `train`, whose import fails in it. It has learned its
run before, so nothing is waited for. SEEDFLOOD_PYTHON: of an environment that does not have them at all.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import Metric, make_metric
from seedflood.host.places import FORM_FILE
from seedflood.protocol.seedflood.form import Form
from seedflood.protocol.seedflood.payload import PAIRS

STARTS = 5
BLOCKED = {"torch", "transformers", "tokenizers", "datasets", "safetensors", "numpy", "networkx"}


def without(packages: Collection[str]) -> str:
    """A Python program: `seedflood` where these packages cannot be imported, as if they were not installed."""
    return f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {set(packages)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from seedflood.cli import main
main()
"""


def run() -> dict[str, Metric]:
    with TemporaryDirectory(prefix="seedflood-server-") as home:
        folder = Path(home)
        (folder / "peers.toml").write_text('[run]\nclients = 2\n[node]\nlisten = "127.0.0.1:0"\n')
        (folder / "seedflood-state").mkdir()
        (folder / "seedflood-state" / FORM_FILE).write_bytes(bytes(32) + Form(8, 0, PAIRS, None).pack())
        seconds, cpu, resident = zip(*(_start(folder) for _ in range(STARTS)), strict=True)
    return {
        "server.listens_seconds": make_metric(list(seconds), 2.0),
        "server.cpu_seconds": make_metric(list(cpu)),
        "server.resident_mb": make_metric(list(resident), 150.0),
    }


def _start(folder: Path) -> tuple[float, float, float]:
    began = time.monotonic()
    python = os.environ.get("SEEDFLOOD_PYTHON", sys.executable)
    process = subprocess.Popen(
        [python, "-c", without(BLOCKED), "relay", "--peers", "peers.toml"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if json.loads(line)["event"] == "started":
            break
    seconds, about = time.monotonic() - began, Path(f"/proc/{process.pid}")
    used = (about / "stat").read_text().rpartition(")")[2].split()
    resident = re.search(r"VmHWM:\s*(\d+) kB", (about / "status").read_text())
    assert resident is not None
    process.send_signal(signal.SIGTERM)
    process.communicate()
    return seconds, (int(used[11]) + int(used[12])) / os.sysconf("SC_CLK_TCK"), int(resident[1]) / 1024
