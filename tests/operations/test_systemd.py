"""What a supervisor hears, on a real datagram socket."""

import asyncio
import os
import socket

import pytest

from seedflood.operations.systemd import Notifier


@pytest.fixture
def supervisor(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(str(tmp_path / "notify"))
        one.setblocking(False)
        yield one


@pytest.fixture
def environment(supervisor):
    return {"NOTIFY_SOCKET": supervisor.getsockname()}


def test_it_hears_ready_status_and_stopping(supervisor, environment):
    notifier = Notifier.from_environment(environment)
    notifier.ready()
    notifier.status("step 3 of 9")
    notifier.stopping()
    assert [supervisor.recv(100) for _ in range(3)] == [b"READY=1", b"STATUS=step 3 of 9", b"STOPPING=1"]


def test_reloading_carries_the_monotonic_clock(supervisor, environment):
    Notifier.from_environment(environment).reloading()
    state, clock = supervisor.recv(100).split(b"\n")
    assert state == b"RELOADING=1"
    assert int(clock.removeprefix(b"MONOTONIC_USEC=")) > 0


def test_an_abstract_socket_is_found():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        name = f"seedflood-test-{os.getpid()}"
        supervisor.bind(f"\0{name}")
        supervisor.setblocking(False)
        Notifier.from_environment({"NOTIFY_SOCKET": f"@{name}"}).ready()
        assert supervisor.recv(100) == b"READY=1"


async def test_the_watchdog_is_fed_by_the_loop_until_it_is_stopped(supervisor, environment):
    loop = asyncio.get_running_loop()
    notifier = Notifier.from_environment(environment | {"WATCHDOG_USEC": "2000", "WATCHDOG_PID": str(os.getpid())})
    assert notifier.watchdog_seconds == 0.002
    notifier.start_watchdog(loop, lambda: "ready, step 3 of 9")
    beats = [await loop.sock_recv(supervisor, 100) for _ in range(3)]
    assert beats == [b"WATCHDOG=1\nSTATUS=ready, step 3 of 9"] * 3
    notifier.stop_watchdog()


@pytest.mark.parametrize(
    "watchdog", [{}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "2000", "WATCHDOG_PID": str(os.getpid() + 1)}]
)
def test_a_watchdog_that_is_not_ours_is_not_fed(environment, watchdog):
    assert Notifier.from_environment(environment | watchdog).watchdog_seconds is None


def test_without_a_supervisor_nothing_is_said_and_nothing_fails(tmp_path):
    Notifier.from_environment({}).ready()
    Notifier.from_environment({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()
