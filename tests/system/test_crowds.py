"""A stranger opens more plain connections than a daemon may have files: the run goes on, to its end and its export."""

import http.client
import json
import resource
import signal
import socket
from contextlib import ExitStack, closing, suppress

import pytest
from forks import programs

from seedflood.embedded import grammar
from seedflood.errors import ExitCode
from seedflood.host.places import read_result
from seedflood.operations.crowding import CROWDED
from seedflood.operations.http_address import HTTP_FILE

FILES, FILES_USUAL = 320, 1024
"""The limit of a daemon, soft and hard. The usual one needs 3,000 connections, and a long test."""

CASES = [
    ("seedflood", FILES),
    pytest.param("seedflood", FILES_USUAL, marks=pytest.mark.long),
    pytest.param("gasloc", FILES, marks=pytest.mark.long),
    pytest.param("gasloc", FILES_USUAL, marks=pytest.mark.long),
]


def narrow(host, files):
    program = (
        "import resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))\n"
        "from seedflood import cli\n"
        "cli.node_main()\n"
    )
    host.command = (str(programs() / "python"), "-c", program, "--peers", str(host.folder / "peers.toml"))
    return host


@pytest.fixture(autouse=True)
def many_files():
    """The crowd is in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4 * FILES_USUAL:
        pytest.skip("this process may not have as many files as the crowd needs")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def crowd(undo, address, count):
    """Silent connections, as many as can be had."""
    host, port = address.rsplit(":", 1)
    for _ in range(count):
        with suppress(OSError):
            undo.enter_context(socket.create_connection((host, int(port)), timeout=5))


def http_address(host):
    return json.loads((host.settings.node.state / HTTP_FILE).read_text())["address"]


def is_alive(address):
    with closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        connection.request("GET", "/livez")
        return connection.getresponse().status == 200


def has_ended(host):
    return bool(read_result(host.settings.node.state))


@pytest.mark.parametrize(("mode", "files"), CASES)
def test_a_crowd_at_both_ports_ends_no_run(hosts, tmp_path, mode, files):
    for split, some in zip(("train", "validation"), grammar.rows(7, (40, 10)), strict=True):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    run = {"task": "lm", "template": "{sentence}", "mode": mode, "steps": 200}
    run |= {"initial": "random", "local_steps": 4} if mode == "gasloc" else {}
    node = {"data": str(tmp_path), "http": "127.0.0.1:0", "then": "serve", "export": str(tmp_path / "export")}
    attacked, other = hosts.make(2, [(0, 1)], run, node | {"evaluate_examples": 4})
    settings = other.folder / "peers.toml"
    settings.write_text(settings.read_text().replace(str(tmp_path / "export"), str(tmp_path / "other")))
    narrow(attacked, files).start()
    other.start()
    attacked.wait_for("ready")
    with ExitStack() as undo:
        crowd(undo, http_address(attacked), files)
        assert is_alive(http_address(attacked))
        crowd(undo, attacked.settings.node.listen, 2 * files)
        assert is_alive(http_address(attacked))
        attacked.wait(lambda _: has_ended(attacked) and attacked.has_said(CROWDED))
        other.wait(lambda _: has_ended(other))
        assert is_alive(http_address(attacked))
        for host in (attacked, other):
            host.signal(signal.SIGTERM)
        assert attacked.end() == other.end() == ExitCode.OK
    assert (tmp_path / "export" / "config.json").exists()
    assert (
        read_result(attacked.settings.node.state)["digest"] == attacked.result()["digest"] == other.result()["digest"]
    )
    assert not any(line.get("level") in ("error", "critical") for line in attacked.events)
