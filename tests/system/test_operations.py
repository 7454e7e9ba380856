"""What an operator sees of real processes: probes, steps that take long, a supervisor, and files of dead nodes."""

import asyncio
import contextlib
import http.client
import json
import signal
import socket
import time

import grpc
import pytest
from forks import run_command
from grpc_health.v1 import health_pb2, health_pb2_grpc

from seedflood.errors import ExitCode
from seedflood.identity import Identity
from seedflood.operations.eventlog import BROKEN
from seedflood.operations.http_address import find_http_address
from seedflood.transport import certificates

pytestmark = pytest.mark.system

LONG_STEP = {"batch_size": 60_000, "train_examples": 64}
"""Rows of one step: more than a minute of work (90 s did not do on a core of 2026)."""


def get(host, path):
    """(status, text) of the host's HTTP server."""
    http_address = find_http_address(host.settings.node.state)
    name, _, port = http_address.address.rpartition(":")
    with contextlib.closing(http.client.HTTPConnection(name, int(port), timeout=60)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def is_serving(host):
    """What gRPC's health service says to anyone with a certificate."""
    own = certificates.issue(Identity.generate(), time.time())
    secrets = grpc.ssl_channel_credentials(certificates.authority(), own.key_pem, own.chain_pem)
    options = [("grpc.ssl_target_name_override", certificates.SERVER_NAME), ("grpc.enable_http_proxy", 0)]
    with grpc.secure_channel(host.settings.node.listen, secrets, options) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    return answer.status == health_pb2.HealthCheckResponse.SERVING


def test_readiness_follows_the_life_of_a_node_and_liveness_does_not(hosts):
    a, b = hosts.make(2, [(0, 1)], {"steps": 100_000})
    a.start().wait_for("started")
    assert get(a, "/livez") == (200, "alive\n")
    assert get(a, "/readyz")[0] == 503
    assert not is_serving(a)
    b.start()
    a.wait_for("ready")
    assert get(a, "/readyz") == (200, "ready\n")
    assert is_serving(a)
    state = a.settings.node.state
    a.signal(signal.SIGTERM)
    a.wait_for("not ready")
    assert a.end() == ExitCode.OK
    assert find_http_address(state) is None


def test_a_node_that_catches_up_is_alive_and_not_ready(hosts):
    """Its only neighbour hangs, so catching up lasts as long as the test wants."""
    a, b = hosts.make(2, [(0, 1)], {"steps": 100_000}, {"patience_seconds": 3600})
    for host in (a, b):
        host.start()
    a.wait_for("progress", step=20)
    b.kill()
    a.signal(signal.SIGSTOP)
    b.listen()
    b.start().wait_for("started")
    assert get(b, "/livez") == (200, "alive\n")
    status, reason = get(b, "/readyz")
    assert status == 503
    assert reason.startswith("no neighbour is linked; it dials 1\n")
    assert f"it has no link with {a.settings.node.name}" in reason
    a.signal(signal.SIGCONT)
    b.wait_for("ready")
    assert get(b, "/readyz")[0] == 200


def test_probes_answer_at_once_while_a_step_takes_minutes(hosts):
    (a,) = hosts.make(1, [], {"steps": 3} | LONG_STEP)
    a.start().wait_for("started")
    assert get(a, "/livez") == (200, "alive\n")
    assert get(a, "/readyz") == (200, "ready\n")
    said = json.loads(get(a, "/api/status")[1])
    assert (said["state"], said["progress"]["step"], said["updates"]["originated"]) == ("ready", 0, 0)
    a.signal(signal.SIGTERM)
    a.wait_for("not ready")
    assert get(a, "/livez") == (200, "alive\n")
    a.kill()


def test_a_supervisor_hears_ready_reload_and_stop_and_its_watchdog_is_fed(hosts, tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "notify"))
        supervisor.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "2000000")

        def hear(prefix):
            while not (said := supervisor.recv(1000).decode()).startswith(prefix):
                pass
            return said

        a, _ = hosts.make(2, [(0, 1)], {"steps": 10})
        a.start()
        hear("READY=1")
        assert "STATUS=joining, step 0 of 10" in hear("WATCHDOG=1")
        a.signal(signal.SIGHUP)
        assert "MONOTONIC_USEC=" in hear("RELOADING=1")
        hear("READY=1")
        a.signal(signal.SIGTERM)
        hear("STOPPING=1")
        assert a.end() == ExitCode.OK


def test_a_used_http_port_is_told_with_its_exit_code(hosts):
    (a,) = hosts.make(1, [], {"steps": 10})
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        a.start("--set", f"node.http=127.0.0.1:{other.getsockname()[1]}")
        assert a.end() == ExitCode.UNAVAILABLE
    assert "[node] http" in a.last_words


def test_who_sent_what_to_whom_is_answered_from_the_files_of_killed_nodes(hosts):
    a, b, c = hosts.make(3, [(0, 1), (1, 2)], {"steps": 100_000})
    for host in (a, b, c):
        host.start()
    c.wait_for("progress", step=12)
    for host in (a, b, c):
        host.kill()
    files = [argument for host in (c, b, a) for argument in ("--events", str(host.settings.node.state))]
    traced = run_command("trace", a.name, 10, *files, "--json")
    nodes = json.loads(traced.stdout)["nodes"]
    assert [(one["node"], one["had"].get("from")) for one in nodes] == [("h0", None), ("h1", "h0"), ("h2", "h1")]
    assert [fact["to"] for fact in nodes[1]["sent"]] == ["h2"]
    assert nodes[2]["applied"]["steps"] == [10, 10]


def test_the_node_goes_on_while_its_event_log_cannot_be_written(hosts):
    (a,) = hosts.make(1, [], {"steps": 10})
    (a.settings.node.state / "events.jsonl").mkdir(parents=True)
    a.start().wait_for(BROKEN)
    assert a.end() == ExitCode.OK
    assert a.result()["steps"] == 10


async def test_many_who_look_at_once_do_not_hold_the_node_up(hosts):
    (a,) = hosts.make(1, [], {"steps": 100_000})
    await asyncio.to_thread(a.start().wait_for, "progress", step=5)
    paths = ["/api/status", "/metrics", f"/api/trace?origin={a.name}&step=2", "/api/events"] * 20
    answers = await asyncio.gather(*(asyncio.to_thread(get, a, path) for path in paths))
    assert {status for status, _ in answers} == {200}
    step = a.step
    await asyncio.to_thread(a.wait_for, "progress", step=step + 5)


def test_what_a_running_node_has_learned_is_read_beside_it_and_equal_on_hosts_of_equal_steps(hosts):
    a, b = hosts.make(2, [(0, 1)], {"steps": 60, "estimate": "gradient", "window": "strict"}, {"then": "serve"})
    for host in (a, b):
        host.start()
    a.wait_for("progress", step=12)
    b.signal(signal.SIGSTOP)  # strict windows: a stands still, too, in the middle of its run
    assert 12 <= exported(a)["steps"] < 60
    b.signal(signal.SIGCONT)
    for host in (a, b):
        host.wait_for("finished")
    said = [exported(host) for host in (a, b)]
    assert said[0]["steps"] == said[1]["steps"] == 60
    assert said[0]["digest"] == said[1]["digest"]


def exported(host):
    words = ("--peers", host.folder / "peers.toml", "--adapter", host.folder / "learned", "--json")
    return json.loads(run_command("export", *words).stdout)
