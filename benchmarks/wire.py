"""Bytes per update and link on the socket, as the kernel counts them: sixteen real nodes on a ring, embedded model.

The kernel keeps counters for every TCP connection (`tcp_info`); `ss` prints them. On loopback both ends of a connection
are here, so what all sockets of the cluster have received is what went over all links in both directions: TCP payload,
gRPC's and HTTP/2's framing, pings and window updates included. On a ring every update has to cross fifteen of the
sixteen links, so payload / (updates x links) is nearly what one crossing costs. With headers means 52 bytes more for
every segment (IPv4, TCP with timestamps), pure acknowledgements too.

Two readings of the counters while the nodes train, so that hellos and joining are not in the difference; `all_in` is
the second reading alone (of the links that live: on a calm machine all that ever were).
"""

import re
import subprocess
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import Metric, make_metric
from benchmarks.processes import Cluster, NodeProcess, ring

NODES = 16
FIRST_STEP = 20
STEPS = {1: 150, 5: 400}
"""By local_steps: between the two readings. They are taken within a round, so one in a hundred is their error."""
TRIES = 3
"""On a machine so busy that a link breaks the counters of old sockets are gone: then it begins anew."""
STEPS_MAX = 1_000_000
WAIT_SECONDS_MAX = 900.0
HEADER_BYTES = 20 + 20 + 12
TARGETS = {1: 110.0, 5: 40.0}
"""Set before all links were secured: TLS adds 24 bytes to each bundle."""
NAMES = {1: "wire.bytes_per_update", 5: "wire.bytes_per_update_bundled"}

_SOCKET = re.compile(r"(\S+):(\d+)\s+(\S+):(\d+)\s")
_RECEIVED = re.compile(r"\bbytes_received:(\d+)")
_SEGMENTS = re.compile(r"\bsegs_in:(\d+)")


@dataclass(frozen=True, slots=True)
class Reading:
    """What all sockets have received since they were opened. sockets: (own port, port of the peer)."""

    payload_bytes: int
    segments: int
    sockets: frozenset[tuple[int, int]]

    @property
    def bytes_with_headers(self) -> int:
        return self.payload_bytes + HEADER_BYTES * self.segments


def run() -> dict[str, Metric]:
    metrics: dict[str, Metric] = {}
    for local_steps, name in NAMES.items():
        metrics |= measure(local_steps, name)
    return metrics


def measure(local_steps: int, name: str) -> dict[str, Metric]:
    with TemporaryDirectory(prefix="seedflood-wire-") as home:
        return _measure(Path(home), local_steps, name)


def _measure(home: Path, local_steps: int, name: str) -> dict[str, Metric]:
    run = {"clients": NODES, "steps": STEPS_MAX, "local_steps": local_steps, "batch_size": 1}
    with Cluster(home, NODES, ring(NODES), run=run, node={"progress_seconds": 0}) as cluster:
        ports = {_port(node) for node in cluster.nodes}
        for node in cluster.nodes:
            node.start()
        last_step, after = _read_at(cluster.nodes[0], FIRST_STEP, ports)
        for _ in range(TRIES):
            first_step, before = last_step, after
            last_step, after = _read_at(cluster.nodes[0], first_step + STEPS[local_steps], ports)
            if before.sockets == after.sockets:
                break
        else:
            changed = len(before.sockets ^ after.sockets)
            raise RuntimeError(
                f"{changed} sockets came or went while they were read, {TRIES} times; is the machine busy?"
            )
    crossings = (last_step - first_step) * NODES * NODES
    with_headers = after.bytes_with_headers - before.bytes_with_headers
    return {
        name: make_metric([(after.payload_bytes - before.payload_bytes) / crossings], TARGETS[local_steps]),
        f"{name}_with_headers": make_metric([with_headers / crossings]),
        f"{name}_all_in": make_metric([after.payload_bytes / (last_step * NODES * NODES)]),
    }


def _read_at(node: NodeProcess, step: int, ports: Collection[int]) -> tuple[int, Reading]:
    """Reads the counters as soon as a node has closed this step, and says which one it had closed."""
    line = node.wait_for("progress", WAIT_SECONDS_MAX, step=step)[-1]
    return line["step"], read_counters(ports)


def read_counters(ports: Collection[int]) -> Reading:
    """Of all connections whose one end has one of these ports."""
    lines = subprocess.run(
        ["ss", "-H", "-t", "-i", "-n", "-O", "state", "established"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    payload = segments = 0
    sockets = set()
    for line in lines:
        found, received, seen = _SOCKET.search(line), _RECEIVED.search(line), _SEGMENTS.search(line)
        if found is None or not {int(found[2]), int(found[4])} & set(ports):
            continue
        sockets.add((int(found[2]), int(found[4])))
        payload += int(received[1]) if received else 0
        segments += int(seen[1]) if seen else 0
    return Reading(payload, segments, frozenset(sockets))


def _port(node: NodeProcess) -> int:
    settings = tomllib.loads((node.folder / "peers.toml").read_text())
    return int(settings["node"]["listen"].rpartition(":")[2])
