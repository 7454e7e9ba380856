"""Daemons as processes: started, listened to by their JSON logs, killed.

Nothing here sleeps: a test waits for what a daemon says. Who says nothing at all for `SILENCE_SECONDS_MAX` has failed.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from forks import ForkedNode
from networks import inside

from seedflood.cluster.ports import reserve_ports
from seedflood.config import RunSettings, Settings, load_settings, spell
from seedflood.host.places import JOURNAL_FILE

SILENCE_SECONDS_MAX = 120.0

Line = dict[str, Any]


RUN: dict[str, Any] = {"model": "embedded", "task": "embedded", "rank": 8, "batch_size": 2}


class Host:
    """One `seedflood-node` process after the other, in the same folder.

    events: all that they said on stderr. It stands in log.jsonl, too, for whoever looks into a failed test.
    """

    def __init__(self, folder: Path, space: str = "", command: Sequence[str] = ()) -> None:
        """space: a network namespace. command: default: a node of this Python, forked (`forks`)."""
        self.folder = folder
        self.command = tuple(command)
        self.events: list[Line] = []
        self.process: subprocess.Popen[bytes] | ForkedNode | None = None
        self.space = space
        self._news = threading.Condition()
        self._read_to = 0
        self._is_silent = True
        self._reader: threading.Thread | None = None

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def settings(self) -> Settings:
        return load_settings(self.folder / "peers.toml")

    @property
    def journal(self) -> Path:
        return self.settings.node.state / JOURNAL_FILE

    @property
    def step(self) -> int:
        """The last step that it told of."""
        return next((line["step"] for line in reversed(self.events) if line.get("event") == "progress"), 0)

    def wait_until_cut_off(self) -> None:
        """In a strict run: until it has given up the links to hosts that it waits for."""
        self.wait_for("waiting")
        self.wait_for("waiting")  # twenty seconds later
        assert self.has_said("member silent")
        assert self.has_said("link down")

    def move_state(self, folder: Path) -> None:
        settings = self.folder / "peers.toml"
        settings.write_text(settings.read_text().replace(str(self.folder / "state"), str(folder)))

    def start(self, *arguments: str) -> "Host":
        self.close()
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._read_to, self._is_silent = len(self.events), False
        if self.command:
            self.process = subprocess.Popen(
                [*(inside(self.space) if self.space else ()), *self.command, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self.folder,
                env=environment,
            )
        else:
            words = ["--peers", str(self.folder / "peers.toml"), *arguments]
            self.process = ForkedNode(words, self.folder, environment, self.space)
        self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reader.start()
        return self

    def wait_for(self, event: str, **facts: Any) -> Line:
        """The next line with this event, and facts at least as great."""

        def is_wanted(line: Line) -> bool:
            return line.get("event") == event and all(line.get(key, -1) >= least for key, least in facts.items())

        found = self.wait(is_wanted)
        if found is None:
            pytest.fail(f"{self.name} ended before it said {event!r}; last: {self.events[-3:]}")
        return found

    def wait(self, is_wanted: Callable[[Line], bool]) -> Line | None:
        """The next line that is wanted; None if the process ended without it."""
        while (line := self._next()) is not None:
            if is_wanted(line):
                return line
        return None

    def has_said(self, event: str) -> bool:
        return any(line.get("event") == event for line in self.events)

    def told_by_peers(self, *patterns: str, program: str = "from seedflood.cli import main; main()") -> str:
        """What `seedflood peers` says, as soon as it says all of this: whether a host can be dialled is tried for
        seconds, and who is linked with whom is told every few. program: the command line, as Python."""
        words = [sys.executable, "-c", program, "peers", "--peers", str(self.folder / "peers.toml")]
        words = [*(inside(self.space) if self.space else ()), *words]
        while True:
            told = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
            if all(re.search(one, told, re.MULTILINE) for one in patterns):
                return told

    def listen(self) -> None:
        """From here on: what was said before is not waited for."""
        self._read_to = len(self.events)

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
        self.wait(lambda _: False)
        return self.process.wait(SILENCE_SECONDS_MAX)

    def result(self) -> Line:
        assert self.process is not None
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.read().splitlines()[-1])

    def close(self) -> None:
        if self.process is None or self._reader is None:
            return
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    @property
    def last_words(self) -> str:
        return next(line["event"] for line in reversed(self.events) if line.get("level") == "critical")

    def _next(self) -> Line | None:
        """The next line of the log, waited for; None when the process has closed it."""
        with self._news:
            is_there = self._news.wait_for(
                lambda: self._read_to < len(self.events) or self._is_silent, timeout=SILENCE_SECONDS_MAX
            )
            if not is_there:
                pytest.fail(f"{self.name} said nothing for {SILENCE_SECONDS_MAX} s; last: {self.events[-3:]}")
            if self._read_to == len(self.events):
                return None
            self._read_to += 1
            return self.events[self._read_to - 1]

    def _read(self, process: "subprocess.Popen[bytes] | ForkedNode") -> None:
        assert process.stderr is not None
        with (self.folder / "log.jsonl").open("ab", buffering=0) as log:
            for line in process.stderr:
                log.write(line)
                try:
                    facts = json.loads(line)
                except ValueError:
                    facts = {"event": line.decode(errors="replace"), "level": "noise"}
                with self._news:
                    self.events.append(facts)
                    self._news.notify_all()
        with self._news:
            self._is_silent = True
            self._news.notify_all()


class Hosts:
    """Hosts by number, linked as `edges` say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hosts: list[Host] = []

    def make(
        self,
        count: int,
        edges: list[tuple[int, int]],
        run: dict[str, Any],
        node: dict[str, Any] | None = None,
        *,
        addresses: Sequence[str] = (),
        spaces: Sequence[str] = (),
    ) -> list[Host]:
        """addresses, spaces: where they listen, in which network namespaces; default: ports of this machine."""
        addresses = addresses or [f"127.0.0.1:{port}" for port in reserve_ports(count)]
        for k in range(count):
            folder = self.folder / f"h{k}"
            folder.mkdir()
            usual = RUN if run.get("mode", "seedflood") == "seedflood" else {"model": "embedded", "batch_size": 2}
            sections = {
                "run": RunSettings.place(usual | {"clients": count} | run),
                "node": {
                    "name": f"h{k}",
                    "listen": addresses[k],
                    "state": str(folder / "state"),
                    "evaluate_examples": 0,
                    "threads": 1,
                    "progress_seconds": 0,
                }
                | (node or {}),
            }
            text = spell(sections)
            for j in sorted({a + b - k for a, b in edges if k in (a, b)}):
                text += f'[[peers]]\naddress = "{addresses[j]}"\n'
            (folder / "peers.toml").write_text(text)
            self.hosts.append(Host(folder, spaces[k] if spaces else ""))
        return self.hosts

    def close(self) -> None:
        for host in self.hosts:
            host.close()


def ring(count: int) -> list[tuple[int, int]]:
    return [(k, (k + 1) % count) for k in range(count)]
