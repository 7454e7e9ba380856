"""Ports for processes that are about to start: free, different, and out of the kernel's hands."""

import socket

from seedflood.cluster import ports
from seedflood.cluster.ports import free_ports


def test_they_are_different_and_lie_below_those_that_the_kernel_hands_out() -> None:
    found = free_ports(50)
    assert len(set(found)) == 50
    assert min(found) >= ports.LOWEST
    assert max(found) < ports._first_ephemeral()


def test_one_that_is_listened_on_is_not_given(monkeypatch) -> None:
    (used,) = free_ports(1)
    with socket.socket() as other:
        other.bind(("127.0.0.1", used))
        other.listen()
        monkeypatch.setattr(ports, "LOWEST", used)
        monkeypatch.setattr(ports, "_first_ephemeral", lambda: used + 20)
        assert used not in free_ports(10)
