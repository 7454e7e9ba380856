"""What a stranger meets at the port: a refusal that fills no log. (Few places: `test_links.py`.)"""

import asyncio
import contextlib
import logging
from dataclasses import replace

import bare_http2
import grpc
import grpc.aio
import pytest
from linked import channel_to

from seedflood.identity import Identity
from seedflood.transport import door
from seedflood.transport.codec import encode
from seedflood.transport.credentials import Credentials
from seedflood.transport.door import LINES
from seedflood.transport.links import LAST_TURNS
from seedflood.transport.server import CHANNEL_OPTIONS, CONTENTS_PATH, LINK_PATH

CHECK_PATH = "/grpc.health.v1.Health/Check"


@pytest.fixture
async def node(make_node):
    return await make_node("a").start()


async def refused(node, frame: bytes, path: str = LINK_PATH) -> tuple[grpc.StatusCode, str]:
    """How a stream that says this ends."""
    async with channel_to(node.address) as channel:
        call = channel.stream_stream(path)(iter([frame]))
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for _ in call:
                pass
        return await call.code(), await call.details()


async def answered(node) -> None:
    """The node has done with all that was asked before: it refuses one more."""
    await refused(node, b"\xff\xff")
    for _ in range(LAST_TURNS):
        await asyncio.sleep(0)


@pytest.mark.parametrize("path", [LINK_PATH, CHECK_PATH])
async def test_garbage_is_refused_and_counted_and_is_a_line_of_the_log_once(node, path, caplog) -> None:
    for _ in range(3):
        code, details = await refused(node, b"\xff\xff", path)
        assert (code, '"reason": "frame"' in details) == (grpc.StatusCode.PERMISSION_DENIED, True)
    assert node.links.totals.faults["frame"] == 3
    lines = [record for record in caplog.records if record.levelno >= logging.INFO]
    assert [record.getMessage().partition(": ")[0] for record in lines] == ["refused ipv4:127.0.0.1"]
    assert not any(record.exc_info for record in lines)


@pytest.mark.parametrize("path", [LINK_PATH, CONTENTS_PATH, CHECK_PATH])
@pytest.mark.parametrize("content", [bare_http2.GARBAGE, bare_http2.BOMB, b"", bytes(5 << 20)])
async def test_a_message_that_grpc_itself_refuses_is_no_traceback(node, path, content, caplog) -> None:
    """gRPC has ended the stream when we want to refuse it, and would log what the refusal raises."""
    for stays in (True, False):
        await bare_http2.say(node.address, path, content=content, stays=stays)
    await answered(node)
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("path", [LINK_PATH, CONTENTS_PATH, CHECK_PATH])
@pytest.mark.parametrize("name", ["seedflood-port", "user-agent", "x", "seedflood-contents-bin"])
async def test_metadata_that_is_no_text_is_no_traceback(node, path, name, caplog) -> None:
    await bare_http2.say(node.address, path, content=b"", more={name: b"\xff\xfe"})
    await answered(node)
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("path", [LINK_PATH, CONTENTS_PATH, CHECK_PATH])
async def test_a_stream_that_ends_while_it_is_refused_is_no_traceback(node, path, caplog) -> None:
    async with channel_to(
        node.address, ("grpc.max_send_message_length", -1), compression=grpc.Compression.Gzip
    ) as channel:
        call = channel.stream_stream(path)()
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await call.write(bytes(64 << 20))
            await call.read()
        assert await call.code() is not grpc.StatusCode.OK
    await answered(node)
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("error", [grpc.aio.InternalError, grpc.aio.UsageError])
@pytest.mark.parametrize("step", ["send_initial_metadata", "read", "write", "abort"])
@pytest.mark.parametrize("path", [LINK_PATH, CONTENTS_PATH, CHECK_PATH])
async def test_a_stream_that_ends_at_any_step_is_no_traceback(make_node, path, step, error, caplog, monkeypatch):
    """gRPC raises these if the other side leaves while a step of ours is on its way: a race of threads, which a
    stranger wins now and then."""
    make_handler = grpc.stream_stream_rpc_method_handler

    def make_lossy_handler(behaviour):
        async def serve(requests, context):
            await behaviour(requests, Lossy(context, step, error))

        return make_handler(serve)

    monkeypatch.setattr(grpc, "stream_stream_rpc_method_handler", make_lossy_handler)
    node = await make_node("a", identity=Identity.generate(), credentials=Credentials(Identity.generate())).start()
    for frame in (b"\xff\xff", b""):
        channel, _ = Credentials(Identity.generate()).open(node.address, CHANNEL_OPTIONS)
        async with channel:
            call = channel.stream_stream(path)(iter([frame]))
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for _ in call:
                    pass
    assert not [record for record in caplog.records if record.exc_info]


class Lossy:
    """The context of a stream that is lost at one step."""

    def __init__(self, context, step: str, error: type[Exception]) -> None:
        self._context, self._step, self._error = context, step, error

    def __getattr__(self, name: str):
        return self._lose if name == self._step else getattr(self._context, name)

    async def _lose(self, *_) -> None:
        raise self._error("the stream has ended")


async def test_no_host_takes_the_places_of_all(node, make_node, monkeypatch) -> None:
    monkeypatch.setattr(door, "STREAMS_MAX", 2)
    first, _ = [await make_node(name).start(node) for name in "bc"]
    await node.until(lambda: len(node.linked) == 2)
    assert (await refused(node, b"", CHECK_PATH))[1].count('"reason": "busy"') == 1
    await first.links.close()
    late = await make_node("d").start(node)
    await late.until(lambda: node.origin in late.linked)


async def test_a_stranger_with_another_reason_each_time_fills_no_log(node, caplog) -> None:
    many = 2 * int(LINES.burst)
    for k in range(many):
        hello = replace(node.hello(), run_id=k.to_bytes(4) + bytes(28))
        code, _ = await refused(node, encode(hello)[0])
        assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert node.links.totals.faults["run"] == many
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert LINES.burst <= len(lines) <= 1.5 * LINES.burst
