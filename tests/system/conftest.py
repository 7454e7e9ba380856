"""Real daemons as processes, on loopback, with the embedded model."""

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

WAIT_SECONDS_MAX = 120.0


class Host:
    """One `seedflood-node` process, and what it said on stderr, read by a thread so that it never blocks on us."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[dict[str, Any]] = []
        self.process: subprocess.Popen[bytes] | None = None
        self._lines: queue.Queue[bytes | None] = queue.Queue()

    def start(self, *arguments: str) -> "Host":
        self.close()
        command = [sys.executable, "-m", "seedflood", "--peers", str(self.folder / "peers.toml"), *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()
        return self

    def wait_for(self, event: str, **facts: Any) -> dict[str, Any]:
        """The next line with this event, and facts at least as great."""
        while (line := self._next()) is not None:
            if line.get("event") == event and all(line.get(key, -1) >= least for key, least in facts.items()):
                return line
        pytest.fail(f"{self.folder.name} ended before it said {event!r}; last: {self.events[-3:]}")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.end()

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self) -> int:
        """Waits for the process to end; its exit code."""
        assert self.process is not None
        while self._next() is not None:
            pass
        return self.process.wait(WAIT_SECONDS_MAX)

    def result(self) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.read().splitlines()[-1])

    def close(self) -> None:
        if self.process is not None:
            if self.process.poll() is None:
                self.kill()
            for stream in (self.process.stdout, self.process.stderr):
                if stream is not None:
                    stream.close()

    @property
    def last_words(self) -> str:
        return next(line["event"] for line in reversed(self.events) if line.get("level") == "critical")

    def _next(self) -> dict[str, Any] | None:
        """The next line of the log, waited for; None when the process has closed it."""
        try:
            line = self._lines.get(timeout=WAIT_SECONDS_MAX)
        except queue.Empty:
            pytest.fail(f"{self.folder.name} said nothing for {WAIT_SECONDS_MAX} s; last: {self.events[-3:]}")
        if line is None:
            return None
        try:
            facts = json.loads(line)
        except ValueError:
            facts = {"event": line.decode(errors="replace"), "level": "noise"}
        self.events.append(facts)
        return facts

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self._lines.put(line)
        self._lines.put(None)


class Hosts:
    """Hosts by number, linked as `edges` say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hosts: list[Host] = []

    def make(
        self, count: int, edges: list[tuple[int, int]], run: dict[str, Any], node: dict[str, Any] | None = None
    ) -> list[Host]:
        ports = free_ports(count)
        for k in range(count):
            folder = self.folder / f"h{k}"
            folder.mkdir()
            sections = {
                "run": {"model": "embedded", "task": "embedded", "clients": count, "rank": 8, "batch_size": 2} | run,
                "node": {
                    "name": f"h{k}",
                    "listen": f"127.0.0.1:{ports[k]}",
                    "state": str(folder / "state"),
                    "evaluate": False,
                    "threads": 1,
                    "progress_seconds": 0,
                }
                | (node or {}),
            }
            text = "".join(
                f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
                for name, values in sections.items()
            )
            for j in sorted({a + b - k for a, b in edges if k in (a, b)}):
                text += f'[[peers]]\nname = "h{j}"\naddress = "127.0.0.1:{ports[j]}"\n'
            (folder / "peers.toml").write_text(text)
            self.hosts.append(Host(folder))
        return self.hosts

    def close(self) -> None:
        for host in self.hosts:
            host.close()


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path)
    yield made
    made.close()
