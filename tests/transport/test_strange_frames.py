"""Frames that no honest peer sends: each ends its own link with a reason, and nothing else."""

import asyncio

import grpc
import grpc.aio
import pytest
from linked import bundle, channel_to, pair, rogue

from seedflood.protocol.seedflood.bundles import Updates
from seedflood.protocol.seedflood.messages import Standing
from seedflood.protocol.swarm.messages import Opaque, Ping
from seedflood.transport import codec
from seedflood.transport.codec import EpochPart, PullEnd, PullPart
from seedflood.transport.credentials import plain_text
from seedflood.transport.link import CUT
from seedflood.transport.server import bind, make_server


async def test_garbage_instead_of_a_hello_is_refused(make_node) -> None:
    b = await make_node("b").start()
    assert (await rogue(b, b"\xff\xff"))[0] is grpc.StatusCode.PERMISSION_DENIED
    assert "no hello" in (await rogue(b, codec.encode(Ping(1.0))[0]))[1]


async def test_a_first_frame_larger_than_any_hello_is_refused_unread(make_node, monkeypatch) -> None:
    b = await make_node("b").start()
    parsed = []
    monkeypatch.setattr(codec, "_from_wire", parsed.append)
    _, details = await rogue(b, codec.encode(EpochPart(0, None, bytes(codec.HELLO_BYTES_MAX), is_last=True))[0])
    assert "bytes is no hello" in details
    assert not parsed


async def test_an_oversized_frame_ends_the_link_and_nothing_else(make_node) -> None:
    a, b = await pair(make_node)
    big = make_node("big")
    code, _ = await rogue(b, codec.encode(big.hello())[0], bytes(5 << 20))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    await b.until(lambda: big.origin not in b.linked)
    assert ("disconnected", big.origin, CUT) in b.calls
    assert {name: one.links_lost for name, one in b.links.totals.stats().items()} == {"a": 0, "big": 1}
    a.links.send(b.origin, [Ping(1.0)])
    await b.until(lambda: b.received_messages)


async def test_a_second_hello_and_an_unknown_frame(make_node) -> None:
    b = await make_node("b").start()
    other = make_node("other")
    hello = codec.encode(other.hello())[0]
    unknown = b"\xa2\x06\x03abc"
    _, details = await rogue(b, hello, unknown, codec.encode(Ping(3.0))[0], hello)
    assert "second hello" in details
    assert b.received_messages == [Ping(3.0)]


@pytest.mark.parametrize(
    "message",
    [
        Standing((), bytes(32)),
        EpochPart(1, (), b"data", is_last=True),
        PullPart(1, Standing((), bytes(32))),
        PullPart(1, Updates((bundle(1),))),
        PullPart(1, Opaque(b"some")),
    ],
)
async def test_an_answer_without_a_question_is_refused(make_node, message: codec.LinkMessage) -> None:
    b = await make_node("b").start()
    _, details = await rogue(b, codec.encode(make_node("other").hello())[0], codec.encode(message)[0])
    assert '"reason": "order"' in details
    assert not b.received_messages


@pytest.mark.parametrize(
    "answer",
    [
        [PullPart(2, Updates((bundle(1),)))],
        [PullPart(1, EpochPart(1, (), b"data", is_last=False)), PullPart(1, Updates((bundle(1),)))],
        [PullPart(1, EpochPart(1, (), b"data", is_last=False)), PullEnd(1, is_complete=True)],
    ],
)
async def test_an_answer_that_is_wrong_ends_the_link(make_node, answer: list[codec.LinkMessage]) -> None:
    b, rogue_donor = await make_node("b").start(), make_node("rogue")
    b.on_connected = lambda peer: b.links.pull(peer, ())
    frames = [codec.encode(message)[0] for message in (rogue_donor.hello(), *answer)]
    assert '"reason": "order"' in (await rogue(b, *frames))[1]
    assert b.pull_ends == [(rogue_donor.origin, False)]
    assert not b.received_messages


async def test_a_stream_without_a_hello_is_ended(make_node) -> None:
    b = await make_node("b", hello_seconds=0.05).start()
    async with channel_to(b.address) as channel:
        call = channel.stream_stream("/seedflood.wire.Flood/Link")()
        with pytest.raises(grpc.aio.AioRpcError):
            await call.read()


async def test_a_server_without_a_hello_is_given_up_and_dialled_again(make_node) -> None:
    dialled = 0
    twice = asyncio.Event()

    async def mute(_, context) -> None:
        nonlocal dialled
        dialled += 1
        if dialled == 2:
            twice.set()
        await context.read()
        await context.read()

    server = make_server(mute, mute)
    port = bind(server, "127.0.0.1:0", plain_text())
    await server.start()
    a = await make_node("a", hello_seconds=0.05).start(f"127.0.0.1:{port}")
    await asyncio.wait_for(twice.wait(), 20)
    await a.links.close()
    await server.stop(None)
    assert not a.calls
