"""How peers are dialled: directly whatever the environment says, by a proxy if the settings name one, and by the
system's resolver."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from seedflood.identity import Identity
from seedflood.transport.credentials import Credentials

VARIABLES = "http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"
NOBODY = "127.0.0.1:9"


@contextlib.asynccontextmanager
async def connect_proxy(answer: str = "200 OK", to: str = "") -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy, and the addresses that it was asked for. to: where it connects in their place."""
    asked: list[str] = []
    tasks = set()

    async def copy(reader, writer):
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
        writer.close()

    async def meet(reader, writer):
        tasks.add(asyncio.current_task())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, address, _ = head.split(maxsplit=2)
        assert method == "CONNECT"
        asked.append(address)
        writer.write(f"HTTP/1.1 {answer}\r\n\r\n".encode())
        if answer[:3] != "200":
            writer.close()
            return
        host, _, port = (to or address).rpartition(":")
        there, here = await asyncio.open_connection(host, int(port))
        try:
            await asyncio.gather(copy(reader, here), copy(there, writer))
        finally:
            for end in (here, writer):
                end.close()

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def make_proxied(make_node):
    """Makes nodes that dial by a proxy."""

    def make(name, proxy="", *, is_secured=True):
        identity = Identity.generate()
        credentials = Credentials(identity, is_plain=not is_secured, proxy_of=lambda _: proxy)
        return make_node(name, identity=identity, credentials=credentials)

    return make


@pytest.mark.parametrize("is_secured", [True, False])
@pytest.mark.parametrize("name", VARIABLES)
async def test_no_variable_of_a_proxy_is_in_the_way_of_a_link(make_proxied, monkeypatch, name, is_secured):
    monkeypatch.setenv(name, f"http://{NOBODY}")
    b = await make_proxied("b", is_secured=is_secured).start()
    a = await make_proxied("a", is_secured=is_secured).start(b)
    await a.until(lambda: b.origin in a.linked)


@pytest.mark.parametrize("is_secured", [True, False])
async def test_a_proxy_that_is_set_connects_by_name_whatever_the_environment_says(
    make_proxied, monkeypatch, is_secured
):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("http_proxy", f"http://{NOBODY}")
    b = await make_proxied("b", is_secured=is_secured).start()
    async with connect_proxy(to=b.address) as (proxy, asked):
        a = await make_proxied("a", proxy, is_secured=is_secured).start("only-the-proxy-knows.example:7070")
        await a.until(lambda: b.origin in a.linked)
        assert set(asked) == {"only-the-proxy-knows.example:7070"}
        await a.links.close()


async def said_of(node, address, caplog) -> str:
    """What the log says first of dialling this address."""
    said = asyncio.Queue()
    caplog.handler.addFilter(lambda record: said.put_nowait(record.getMessage()) or True)
    await node.start(address)
    return await asyncio.wait_for(said.get(), 20)


async def test_a_proxy_that_does_not_answer_or_refuses_is_named(make_proxied, caplog):
    said = await said_of(make_proxied("a", NOBODY), "peer.example:7070", caplog)
    assert said.startswith(f"cannot reach peer.example:7070 through the proxy {NOBODY}: ")
    assert "Connection refused" in said
    async with connect_proxy("403 Forbidden") as (proxy, _):
        said = await said_of(make_proxied("b", proxy), "peer.example:7070", caplog)
        assert f"through the proxy {proxy}: HTTP proxy returned response code 403" in said


async def test_a_name_that_the_system_cannot_resolve_is_told_in_its_words(make_proxied, caplog):
    said = await said_of(make_proxied("a"), "nowhere.invalid:7070", caplog)
    assert said.startswith("cannot reach nowhere.invalid:7070: the system cannot resolve this name (")


def test_grpc_resolves_names_by_the_system_and_takes_no_other_settings_from_the_environment():
    script = "import os, seedflood.transport; print(sorted(n for n in os.environ if n.upper().startswith('GRPC_')))"
    told = {"GRPC_DNS_RESOLVER": "ares", "GRPC_SSL_CIPHER_SUITES": "NONE", "GRPC_TRACE": "http", "grpc_proxy": "x:1"}
    ran = subprocess.run(
        [sys.executable, "-c", f"{script}; print(os.environ['GRPC_DNS_RESOLVER'])"],
        env=os.environ | told,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines() == ["['GRPC_DNS_RESOLVER', 'GRPC_TRACE', 'GRPC_VERBOSITY']", "native"]
