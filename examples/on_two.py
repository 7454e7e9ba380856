"""Runs a script on two hosts of this machine, as processes: `.venv/bin/python examples/on_two.py SCRIPT [STEPS]`."""

import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from seedflood.embedded import MODEL_FOLDER

SETTINGS = """
[run]
clients = 2
steps = {steps}
model = "embedded"
[run.objective]
task = "own"
[node]
name = "{name}"
listen = "127.0.0.1:{port}"
shard = "{shard}/2"
threads = 1
[[peers]]
address = "127.0.0.1:{other}"
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


script, steps = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "60"
ports = free_port(), free_port()
with tempfile.TemporaryDirectory(prefix="seedflood-") as home:
    hosts = []
    for shard, (name, port, other) in enumerate(zip(("alpha", "beta"), ports, ports[::-1], strict=True), 1):
        peers = Path(home) / name / "peers.toml"
        peers.parent.mkdir()
        peers.write_text(SETTINGS.format(steps=steps, name=name, port=port, shard=shard, other=other))
        hosts.append(subprocess.Popen([sys.executable, script, str(peers), str(MODEL_FOLDER)]))
    codes = [host.wait() for host in hosts]
sys.exit(any(codes))
