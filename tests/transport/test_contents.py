"""The second connection of a link, for large contents."""

import asyncio
import contextlib

import grpc
import grpc.aio
import pytest
from linked import channel_to, pair

from seedflood.identity import Identity
from seedflood.protocol.swarm.messages import Opaque, Ping
from seedflood.transport.budget import Use
from seedflood.transport.credentials import Credentials
from seedflood.transport.link import CONTENTS_BYTES_MAX
from seedflood.transport.server import CHANNEL_OPTIONS, CONTENTS_PATH, TOKEN_KEY


async def linked(make_node, **settings):
    return await pair(make_node, has_contents=True, **settings)


def frames(node):
    return [message.data for message in node.received_messages if isinstance(message, Opaque)]


async def end_of(address, *, token=b"sixteen bytes ..", path=CONTENTS_PATH):
    """What a stranger hears that opens a second connection with this token.

    It says nothing: grpc.aio loses the status of a stream that is refused while the client writes (INTERNAL).
    """
    async with channel_to(address) as channel:
        call = channel.stream_stream(path)(metadata=((TOKEN_KEY, token),))
        with contextlib.suppress(grpc.aio.AioRpcError):
            while await call.read() is not grpc.aio.EOF:
                pass
        return await call.code(), await call.details()


async def test_contents_go_both_ways_in_order(make_node):
    a, b = await linked(make_node)
    sent = [bytes([k]) * size for k, size in enumerate((1, 1000, 256 << 10, CONTENTS_BYTES_MAX))]
    for node, other in ((a, b), (b, a)):
        node.contents.extend(sent)
        node.links.carry(other.origin)
    for node in (a, b):
        await node.until(lambda node=node: len(frames(node)) == len(sent))
        assert frames(node) == sent


async def test_what_waits_before_the_connection_is_there_is_sent_once_it_is(make_node):
    a, b = make_node("a", has_contents=True), make_node("b", has_contents=True)
    a.contents.append(b"early")
    await b.start()
    await a.start(b)
    await b.until(lambda: frames(b) == [b"early"])


async def test_other_frames_pass_contents_that_nobody_reads(make_node):
    """A peer that waits for its disk, or is muted, takes nothing from the second connection; the first goes on."""
    a, b = await linked(make_node)
    b.use = lambda message: Use(in_vain=0)
    stop = asyncio.Event()
    (link,) = b.links.open.values()
    link._charge, charge = (
        lambda message, size, use: stop.wait() if isinstance(message, Opaque) else charge(message, size, use),
        link._charge,
    )
    a.contents.extend(bytes(256 << 10) for _ in range(400))
    a.links.carry(b.origin)
    await b.until(lambda: frames(b))
    a.links.send(b.origin, [Ping(1.0)])
    await b.until(lambda: Ping(1.0) in b.received_messages)
    assert len(frames(b)) == 1
    assert len(a.contents) > 200, "the rest waits where it comes from"
    stop.set()
    await b.until(lambda: len(frames(b)) == 400)


@pytest.mark.parametrize("is_dialler", [True, False])
async def test_both_connections_of_a_link_have_one_fate(make_node, is_dialler):
    a, b = await linked(make_node)
    node, other = (a, b) if is_dialler else (b, a)
    node.contents.append(b"x")
    node.links.carry(other.origin)
    await other.until(lambda: frames(other))
    node.contents.append(bytes(CONTENTS_BYTES_MAX + 1))
    node.links.carry(other.origin)
    await other.until(lambda: any(call[0] == "disconnected" for call in other.calls))
    assert any("at once of a content" in call[-1] for call in other.calls if call[0] == "disconnected")
    await node.until(lambda: any(call[0] == "disconnected" for call in node.calls))
    assert other.links.totals.faults["limit"] == 1


async def test_a_stranger_has_no_second_connection(make_node):
    a, b = await linked(make_node)
    for token in (b"", b"sixteen bytes .."):
        code, details = await end_of(b.address, token=token)
        assert code is grpc.StatusCode.PERMISSION_DENIED
        assert "contents without a link" in details
    assert frames(b) == []
    assert a.origin in b.linked


async def test_a_link_has_one_second_connection(make_node):
    a, b = await linked(make_node)
    a.contents.append(b"x")
    a.links.carry(b.origin)
    await b.until(lambda: frames(b))
    (link,) = a.links.open.values()
    code, _ = await end_of(b.address, token=link.token)
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert frames(b) == [b"x"]


async def test_where_no_contents_travel_there_is_no_second_connection(make_node):
    a, b = await pair(make_node)
    (link,) = a.links.open.values()
    code, _ = await end_of(b.address, token=link.token)
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert frames(b) == []


async def test_who_knows_a_token_and_not_the_key_has_no_second_connection(make_node):
    """On a secured port the certificate counts, too."""
    identities = [Identity.generate() for _ in range(3)]
    one, two, other = (Credentials(identity) for identity in identities)
    b = await make_node("b", identity=identities[1], credentials=two, has_contents=True).start()
    a = await make_node("a", identity=identities[0], credentials=one).start(b)
    await a.until(lambda: a.linked)
    await b.until(lambda: b.linked)
    (link,) = a.links.open.values()
    way = other.open(b.address, CHANNEL_OPTIONS)
    async with way.channel:
        call = way.channel.stream_stream(CONTENTS_PATH)(metadata=((TOKEN_KEY, link.token),))
        with pytest.raises(grpc.aio.AioRpcError, match="another origin"):
            await call.read()
    assert b.links.totals.faults["identity"] == 1
