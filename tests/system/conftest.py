"""Real daemons as processes, on loopback, with the embedded model."""

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

WAIT_SECONDS_MAX = 120.0


class Host:
    """One `seedflood-node` process and what it said on stderr so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[dict[str, Any]] = []
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> "Host":
        command = [sys.executable, "-m", "seedflood", "--peers", str(self.folder / "peers.toml"), *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        self._rest = b""
        assert self.process.stderr is not None
        os.set_blocking(self.process.stderr.fileno(), False)
        return self

    def wait_for(self, event: str, **facts: Any) -> dict[str, Any]:
        """Reads the log until a line with this event (and facts at least as great) comes."""
        seen = len(self.events)
        while True:
            for line in self.events[seen:]:
                if line.get("event") == event and all(line.get(k, -1) >= v for k, v in facts.items()):
                    return line
            seen = len(self.events)
            self._read()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self) -> int:
        """Waits for the process to end by itself; its exit code."""
        assert self.process is not None
        while self.process.poll() is None:
            self._read()
        self._read()
        return self.process.returncode

    def result(self) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.read().splitlines()[-1])

    @property
    def last_words(self) -> str:
        return next(line["event"] for line in reversed(self.events) if line.get("level") == "critical")

    def _read(self) -> None:
        """Takes what is on stderr, waiting for it; fails the test when nothing comes for too long."""
        assert self.process is not None
        assert self.process.stderr is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stderr, selectors.EVENT_READ)
            if not selector.select(WAIT_SECONDS_MAX):
                pytest.fail(f"{self.folder.name} said nothing for {WAIT_SECONDS_MAX} s; last: {self.events[-3:]}")
        data = self.process.stderr.read()
        if not data and self.process.poll() is None:
            self.process.wait(WAIT_SECONDS_MAX)
        *lines, self._rest = (self._rest + (data or b"")).split(b"\n")
        for line in lines:
            try:
                self.events.append(json.loads(line))
            except ValueError:
                self.events.append({"event": line.decode(errors="replace"), "level": "noise"})


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

    def end_all(self) -> None:
        for host in self.hosts:
            if host.process is not None and host.process.poll() is None:
                host.kill()
            if host.process is not None:
                for stream in (host.process.stdout, host.process.stderr):
                    if stream is not None:
                        stream.close()


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
    made.end_all()


def seconds_since(moment: float) -> float:
    return time.monotonic() - moment
