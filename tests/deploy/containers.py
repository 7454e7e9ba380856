"""Containers of a real Docker engine, listened to by the log lines of the node in them.

Nothing here sleeps: a test waits for what a node says, or for what the engine tells of a container.
"""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

SECONDS_MAX = 240.0
"""For one thing to happen; the longest is four nodes that import PyTorch at once."""

RUN_SECONDS_MAX = 1200.0
"""For a whole run to end, on two cores that other tests load as well."""


class Container:
    """One container by its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._heard = 0

    def wait_for(self, event: str, **facts: Any) -> dict[str, Any]:
        """The next line of the node's log with this event, the same names and numbers at least as great; over restarts,
        too.

        Lines before the last one that was waited for are not looked at again.
        """
        while True:
            command = ["docker", "logs", "--follow", self.name]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as following:
                assert following.stderr is not None
                try:
                    for number, line in enumerate(following.stderr):
                        if number < self._heard:
                            continue
                        self._heard = number + 1
                        said = _parse(line)
                        if said.get("event") == event and all(_has(said, key, fact) for key, fact in facts.items()):
                            return said
                finally:
                    following.kill()
            if self.state["Status"] == "exited":  # not "restarting": then there will be more
                pytest.fail(f"{self.name} ended before it said {event!r}; last: {self.log()[-3:]}")

    def wait_until_healthy(self) -> None:
        """By the health check of the image. Also if it is so already."""
        command = ["docker", "events", "--since", "0", "--format", "{{.Status}}"]
        filters = ("--filter", f"container={self.name}", "--filter", "event=health_status")
        with subprocess.Popen([*command, *filters], stdout=subprocess.PIPE, text=True) as events:
            assert events.stdout is not None
            try:
                for status in events.stdout:
                    if status.strip() == "health_status: healthy":
                        return
            finally:
                events.kill()

    def kill_inside(self) -> None:
        """SIGKILL to all but the init, as when the kernel runs out of memory: to the engine that is a failure."""
        docker("exec", self.name, "sh", "-c", "kill -KILL -1")

    def run(self, *command: str) -> str:
        return docker("exec", self.name, *command)

    def wait(self) -> int:
        """The exit code, once it has ended."""
        return int(run_command(["docker", "wait", self.name], seconds=RUN_SECONDS_MAX))

    def result(self) -> dict[str, Any]:
        return json.loads(self._stdout().splitlines()[-1])

    def log(self) -> list[dict[str, Any]]:
        ran = subprocess.run(["docker", "logs", self.name], capture_output=True, timeout=SECONDS_MAX, check=True)
        return [_parse(line) for line in ran.stderr.splitlines()]

    @property
    def state(self) -> dict[str, Any]:
        return self.inspect()["State"]

    def inspect(self) -> dict[str, Any]:
        return json.loads(docker("inspect", self.name))[0]

    def _stdout(self) -> str:
        return docker("logs", self.name)


def docker(*words: str, directory: str | None = None) -> str:
    """stdout of `docker WORDS`; fails the test with its last words."""
    return run_command(["docker", *words], directory)


def run_command(
    command: Sequence[str],
    directory: str | None = None,
    environment: dict[str, str] | None = None,
    seconds: float = SECONDS_MAX,
) -> str:
    ran = subprocess.run(
        command, capture_output=True, text=True, cwd=directory, env=environment, timeout=seconds, check=False
    )
    if ran.returncode != 0:
        pytest.fail(f"{' '.join(command)}: {ran.stderr.strip()[-2000:]}")
    return ran.stdout


def said_in(path: Path) -> list[str]:
    """The commands in the comments of a file, one by one; continued lines are joined."""
    return "".join(re.findall(r"(?m)^#   +(.*\n)", path.read_text())).replace("\\\n", "").splitlines()


def run_seedflood(command: str, folder: Path) -> None:
    """Runs `seedflood ...` of this working tree in a folder."""
    run_command((sys.executable, "-c", "from seedflood.cli import main; main()", *command.split()[1:]), str(folder))


def _has(said: dict[str, Any], key: str, fact: Any) -> bool:
    return said.get(key) == fact if isinstance(fact, str) else said.get(key, -1) >= fact


def _parse(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except ValueError:
        return {"event": line.decode(errors="replace")}
    return said if isinstance(said, dict) else {}
