"""Real `seedflood-node` processes on loopback, watched through the logs that operators read and through /proc."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from seedflood.cluster.plan import secret_of
from seedflood.cluster.ports import reserve_ports
from seedflood.config import RunSettings, spell
from seedflood.host.places import KEY_FILE
from seedflood.identity import write_key

SECTIONS: Mapping[str, Mapping[str, Any]] = {
    "run": {"model": "embedded", "task": "embedded"},
    "node": {"evaluate_examples": 0, "threads": 1},
}
"""What all benchmarks say in peers.toml, unless set otherwise."""

POLL_SECONDS = 0.02
STOP_SECONDS = 60.0

Facts = dict[str, Any]
"""A line of a log."""


class NodeProcess:
    """One node: its folder outlives it, so it can be started again. niceness: as for nice(1)."""

    def __init__(self, folder: Path, niceness: int = 0) -> None:
        self.folder = folder
        self.name = folder.name
        self.state = folder / "state"
        self.process: subprocess.Popen[bytes] | None = None
        self._niceness = niceness
        self._log = folder / "log.jsonl"
        self._read_bytes = 0

    def start(self) -> None:
        command = ["nice", "-n", str(self._niceness), sys.executable, "-m", "seedflood"]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--peers", str(self.folder / "peers.toml")],
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
            )

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def cpu_seconds(self) -> float:
        """Processor time of all its threads so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def new_lines(self) -> list[Facts]:
        """What the log says since the last call."""
        with self._log.open("rb") as log:
            log.seek(self._read_bytes)
            text = log.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        return [json.loads(line) for line in whole.splitlines() if line.startswith(b"{")]

    def wait_for(self, event: str, seconds_max: float, **least: float) -> list[Facts]:
        """All new lines up to the first with this event and facts at least as great. RuntimeError: it never came."""
        return self.wait_for_any((event,), seconds_max, **least)

    def wait_for_any(self, events: Collection[str], seconds_max: float, **least: float) -> list[Facts]:
        """The same for the first of several events."""
        seen: list[Facts] = []
        end = time.monotonic() + seconds_max
        while time.monotonic() < end:
            was_alive = self.is_alive
            for line in self.new_lines():
                seen.append(line)
                if line["event"] in events and all(line.get(key, -1) >= value for key, value in least.items()):
                    return seen
            if not was_alive:
                break
            time.sleep(POLL_SECONDS)
        raise RuntimeError(f"{self.name} never said {' or '.join(events)}; its last words: {seen[-3:]}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends the process, at once if it does not follow. Does nothing if it has ended."""
        if self.process is None or not self.is_alive:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Cluster:
    """Nodes that dial each other; all have ended when the context is left."""

    def __init__(
        self,
        home: Path,
        nodes: int,
        edges: Collection[tuple[int, int]],
        *,
        run: Mapping[str, Any],
        node: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        niceness: int = 0,
        through: Mapping[tuple[int, int], int] | None = None,
    ) -> None:
        """edges: (who dials, whom). run: keys of [run] and its tables, by bare names; node: of [node]; a
        sequence has those of each node.

        No node is started before that is asked for.
        through: the ports that are dialled in place of the listening ones, by edge: those of a proxy.
        """
        self.ports = ports = reserve_ports(nodes)
        each = node if isinstance(node, Sequence) else [node or {}] * nodes
        self.nodes: list[NodeProcess] = []
        for k in range(nodes):
            folder = home / f"node-{k + 1}"
            folder.mkdir(parents=True)
            write_key(folder / "state" / KEY_FILE, secret_of(run.get("seed", 1), k))
            own = {"name": folder.name, "listen": f"127.0.0.1:{ports[k]}", "state": str(folder / "state")}
            sections = {
                "run": RunSettings.place({**SECTIONS["run"], **run}),
                "node": {**SECTIONS["node"], **own, "shard": f"{k + 1}/{nodes}", **each[k]},
            }
            dialled = [(through or {}).get((a, b), ports[b]) for a, b in edges if a == k]
            (folder / "peers.toml").write_text(_peers_toml(sections, dialled))
            self.nodes.append(NodeProcess(folder, niceness))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes:
            if node.process is not None and node.is_alive:
                node.process.terminate()
        for node in self.nodes:
            node.stop(signal.SIGKILL if error is not None else signal.SIGTERM)


def resident_bytes(pid: int | None = None) -> int:
    """Resident memory of a process (default: this one), what it shares with others included."""
    pages = int(Path(f"/proc/{pid or 'self'}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def moment(line: Facts) -> float:
    """When a line was logged: seconds since 1970, comparable with `time.time()`."""
    return datetime.fromisoformat(line["timestamp"]).timestamp()


def find(lines: Sequence[Facts], event: str) -> Facts:
    """The first line with this event."""
    return next(line for line in lines if line["event"] == event)


def ring(nodes: int) -> list[tuple[int, int]]:
    return [(k, (k + 1) % nodes) for k in range(nodes)]


def _peers_toml(sections: Mapping[str, Mapping[str, Any]], ports: Sequence[int]) -> str:
    return spell(sections) + "".join(f'[[peers]]\naddress = "127.0.0.1:{port}"\n\n' for port in ports)
