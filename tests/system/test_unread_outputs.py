"""Nobody reads what a process writes: a terminal after Ctrl-S, a pipe whose reader hangs. All else goes on."""

import http.client
import json
import os
import pty
import signal
import subprocess
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from forks import programs

from seedflood.embedded import grammar
from seedflood.errors import ExitCode
from seedflood.host.places import RESULT_FILE, read_result
from seedflood.operations.http_address import HTTP_FILE

XOFF = b"\x13"
WAIT_SECONDS = 120

TERMINAL_LONG = pytest.param("terminal", marks=pytest.mark.long)
PIPE_LONG = pytest.param("pipe", marks=pytest.mark.long)


class Unread:
    """A command whose stdout and stderr nobody reads."""

    def __init__(self, undo: ExitStack, kind: str, *words: object) -> None:
        self.reader, output = pty.openpty() if kind == "terminal" else os.pipe()
        undo.callback(os.close, self.reader)
        if kind == "terminal":
            os.write(self.reader, XOFF)
        else:
            fill(output)
        program = programs() / ("seedflood" if words[0] == "local" else "seedflood-node")
        self.process = subprocess.Popen(
            [program, *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        os.close(output)
        undo.callback(self.process.wait)
        undo.callback(self.process.kill)

    def end(self) -> int:
        return self.process.wait(WAIT_SECONDS)


def fill(pipe):
    os.set_blocking(pipe, False)
    with suppress(BlockingIOError):
        while True:
            os.write(pipe, bytes(4096))
    os.set_blocking(pipe, True)


@pytest.fixture
def undo():
    with ExitStack() as stack:
        yield stack


def is_alive(state: Path) -> bool:
    """Does /livez answer? Waits until the node has an address."""
    address = json.loads((state / HTTP_FILE).read_text())["address"]
    with closing(http.client.HTTPConnection(address, timeout=WAIT_SECONDS)) as connection:
        connection.request("GET", "/livez")
        return connection.getresponse().status == 200


def wait_for(process: subprocess.Popen, path: Path) -> None:
    while not path.exists():
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
            pytest.fail(f"it ended with {process.returncode} before there was {path}")


@pytest.mark.parametrize("kind", ["terminal", PIPE_LONG])
def test_a_node_whose_log_nobody_reads_is_alive_ends_its_run_and_hears_sigterm(hosts, undo, kind):
    (host,) = hosts.make(1, [], {"steps": 100}, {"then": "serve", "http": "127.0.0.1:0"})
    node = Unread(undo, kind, "--peers", host.folder / "peers.toml")
    state = host.settings.node.state
    wait_for(node.process, state / HTTP_FILE)
    assert is_alive(state)
    wait_for(node.process, state / RESULT_FILE)
    while not read_result(state):
        assert is_alive(state)
    node.process.send_signal(signal.SIGTERM)
    assert node.end() == ExitCode.OK


@pytest.mark.parametrize("kind", [TERMINAL_LONG, "pipe"])
def test_a_strict_run_goes_on_though_nobody_reads_one_of_its_hosts(hosts, undo, kind):
    run = {"steps": 60, "window": "strict"}
    read, unread = hosts.make(2, [(0, 1)], run)
    node = Unread(undo, kind, "--peers", unread.folder / "peers.toml")
    read.start()
    assert read.end() == ExitCode.OK
    assert node.end() == ExitCode.OK
    assert read_result(unread.settings.node.state)["digest"] == read.result()["digest"]


@pytest.mark.parametrize("kind", [TERMINAL_LONG, PIPE_LONG])
def test_gasloc_goes_on_though_nobody_reads_one_of_its_hosts(hosts, undo, kind, tmp_path):
    for split, some in zip(("train", "validation"), grammar.rows(7, (40, 10)), strict=True):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    run = {"mode": "gasloc", "task": "lm", "template": "{sentence}", "initial": "random", "steps": 40, "local_steps": 4}
    read, unread = hosts.make(2, [(0, 1)], run, {"data": str(tmp_path)})
    node = Unread(undo, kind, "--peers", unread.folder / "peers.toml")
    read.start()
    assert read.end() == ExitCode.OK
    assert node.end() == ExitCode.OK
    assert read_result(unread.settings.node.state)["digest"] == read.result()["digest"]


@pytest.mark.parametrize("kind", ["terminal", PIPE_LONG])
def test_a_local_cluster_runs_on_behind_a_screen_that_is_stopped_and_hears_sigterm(tmp_path, undo, kind):
    home = tmp_path / "home"
    local = Unread(undo, kind, "local", "--nodes", 2, "--steps", 100_000, "--folder", home)
    log = home / "node-2" / "log.jsonl"
    wait_for(local.process, log)
    while "progress" not in log.read_text():
        assert local.process.poll() is None
    local.process.send_signal(signal.SIGTERM)
    assert local.end() == ExitCode.TRY_AGAIN
