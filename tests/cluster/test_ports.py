"""Ports for processes that are about to start: nobody's, different, and out of the kernel's hands."""

import socket
import subprocess
import sys

import pytest

from seedflood.cluster import ports
from seedflood.cluster.ports import reserve_ports


@pytest.fixture
def only(monkeypatch):
    """Few ports to choose from."""

    def narrow(first: int) -> None:
        monkeypatch.setattr(ports, "LOWEST", first)
        monkeypatch.setattr(ports, "EPHEMERAL", first + 20)

    return narrow


def listen(port: int) -> socket.socket:
    """As a daemon does."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen()
    return listening


def test_they_are_different_and_lie_below_those_that_the_kernel_hands_out() -> None:
    found = reserve_ports(50)
    assert len(set(found)) == 50
    assert min(found) >= ports.LOWEST
    assert max(found) < ports.EPHEMERAL


def test_a_port_that_is_listened_on_is_not_given(only) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        used = other.getsockname()[1]
        only(used)
        assert used not in reserve_ports(20)


def test_a_port_is_not_given_again_to_this_process_or_another_one_though_nobody_listens_there_yet(only) -> None:
    (mine,) = reserve_ports(1)
    only(mine)
    assert mine not in reserve_ports(20)
    program = (
        "from seedflood.cluster import ports\n"
        f"ports.LOWEST, ports.EPHEMERAL = {mine}, {mine} + 20\n"
        "print(*ports.reserve_ports(20))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert str(mine) not in told.split()


def test_whoever_is_given_one_can_listen_there_and_listen_again() -> None:
    (mine,) = reserve_ports(1)
    for _ in range(2):
        with listen(mine), socket.create_connection(("127.0.0.1", mine)):
            pass
