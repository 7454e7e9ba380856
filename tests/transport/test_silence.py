"""What is said of a peer that does not answer in time: how far the connection came, and what to look at."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import pytest

from seedflood.identity import Identity
from seedflood.transport.credentials import Credentials
from seedflood.transport.server import bind, make_server

HELLO_SECONDS = 0.3


@pytest.fixture
def make_dialler(make_node):
    def make(**settings):
        identity = Identity.generate()
        credentials = Credentials(identity, **settings)
        return make_node("a", identity=identity, credentials=credentials, hello_seconds=HELLO_SECONDS)

    return make


async def said_of(node, address, caplog) -> str:
    """What the log says first of dialling this address."""
    said = asyncio.Queue()
    caplog.handler.addFilter(lambda record: said.put_nowait(record.getMessage()) or True)
    await node.start(address)
    return await asyncio.wait_for(said.get(), 20)


@contextlib.contextmanager
def nobody_accepts() -> Iterator[socket.socket]:
    """The kernel opens connections, and nobody reads them: as of a process that is suspended."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@contextlib.contextmanager
def no_packet_is_answered() -> Iterator[str]:
    """The queue of the port is full, so the kernel drops whoever comes."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as stack:
        for _ in range(4):
            filling = stack.enter_context(socket.socket())
            filling.setblocking(False)
            filling.connect_ex(listener.getsockname())
        yield f"127.0.0.1:{listener.getsockname()[1]}"


async def test_a_connection_that_opens_and_whose_handshake_never_ends_is_told_as_that(make_dialler, caplog):
    with nobody_accepts() as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        said = await said_of(make_dialler(), address, caplog)
    assert said.startswith(f"cannot reach {address}: the connection opens, but the TLS handshake does not end; ")
    assert "MTU" in said


async def test_an_address_where_no_connection_opens_is_told_as_that(make_dialler, caplog):
    with no_packet_is_answered() as address:
        said = await said_of(make_dialler(), address, caplog)
    assert said.startswith(f"cannot reach {address}: no connection opens in time; ")
    assert "firewall" in said


async def test_a_handshake_that_ends_and_a_hello_that_never_comes_are_told_as_that(make_dialler, caplog):
    async def say_nothing(_, context):
        await credentials.introduce(context)
        await ended.wait()

    ended, credentials = asyncio.Event(), Credentials(Identity.generate())
    server = make_server(say_nothing, say_nothing)
    port = bind(server, "127.0.0.1:0", credentials)
    await server.start()
    try:
        node = make_dialler()
        said = await said_of(node, f"127.0.0.1:{port}", caplog)
        assert "the TLS handshake ends, but no hello comes; " in said
        assert "MTU" in said
        await node.links.close()
    finally:
        ended.set()
        await server.stop(0)


async def test_a_proxy_that_is_silent_is_named(make_dialler, caplog):
    with nobody_accepts() as listener:
        proxy = f"127.0.0.1:{listener.getsockname()[1]}"
        said = await said_of(make_dialler(proxy_of=lambda _: proxy), "peer.example:7070", caplog)
    assert said.startswith(f"cannot reach peer.example:7070 through the proxy {proxy}: no answer in time")
