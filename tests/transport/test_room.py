"""A server takes no more connections than its process has room for."""

import asyncio

from seedflood.listening import Room
from seedflood.transport import server as serving
from seedflood.transport.credentials import plain_text
from seedflood.transport.server import bind, make_server


async def is_taken(reader: asyncio.StreamReader) -> bool:
    """A server of HTTP/2 speaks first."""
    try:
        return await reader.read(1) != b""
    except ConnectionError:
        return False


async def test_connections_beyond_its_room_are_ended_at_once(monkeypatch) -> None:
    monkeypatch.setattr(serving, "room", lambda: Room(links=5, http=1))

    async def nobody(_, __) -> None:
        raise AssertionError("no stream was opened")

    server = make_server(nobody, nobody)
    port = bind(server, "127.0.0.1:0", plain_text())
    await server.start()
    crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
    async with asyncio.timeout(60):
        taken = await asyncio.gather(*(is_taken(reader) for reader, _ in crowd))
    assert sum(taken) == 5
    for _, writer in crowd:
        writer.close()
    await server.stop(None)
