"""How many connections a process has room for, and who holds them."""

import contextlib
import errno
import os
import resource
import socket

import pytest

from seedflood import listening
from seedflood.errors import BindError
from seedflood.listening import HTTP_CONNECTIONS_MAX, LINK_CONNECTIONS_MAX, connections, listen_at, room


@pytest.mark.parametrize("limit", [64, 256, 400, 1024, 4096, 20_000])
def test_ports_leave_descriptors_for_everything_else(monkeypatch, limit):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    left = limit - sum(room())
    assert min(room()) > 0
    assert left >= min(listening.RESERVE, limit * 3 // 4)


@pytest.mark.parametrize("limit", [65_536, resource.RLIM_INFINITY])
def test_no_port_takes_more_than_it_needs(monkeypatch, limit):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert room() == (LINK_CONNECTIONS_MAX, HTTP_CONNECTIONS_MAX)


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1"), ("[::]", "127.0.0.1")])
def test_connections_are_counted_by_port_and_by_who_holds_them(host, shown):
    with contextlib.ExitStack() as undo:
        try:
            port_of = undo.enter_context(listen_at(f"{host}:0", "here"))
        except BindError:
            pytest.skip("this machine has no IPv6")
        port = port_of.getsockname()[1]
        for _ in range(3):
            undo.enter_context(socket.create_connection((shown, port)))
            undo.enter_context(port_of.accept()[0])
        assert connections()[port] == {shown: 3}
    assert port not in connections()


def test_a_port_that_the_system_cannot_choose_is_not_said_to_be_in_use(monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))

    monkeypatch.setattr(socket, "create_server", refuse)
    with pytest.raises(BindError, match="no port is free"):
        listen_at("127.0.0.1:0", "here")
    with pytest.raises(BindError, match="the port is in use"):
        listen_at("127.0.0.1:80", "here")
