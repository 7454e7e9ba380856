"""What a stranger meets at the port, whatever method it calls: few places, and a refusal that fills no log."""

import asyncio
import contextlib
import itertools
import logging
from dataclasses import replace

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2

from seedflood.transport.codec import encode
from seedflood.transport.door import HALF_OPEN_MAX, LINES
from seedflood.transport.health import Health
from seedflood.transport.server import CHANNEL_OPTIONS
from seedflood.wire import flood_pb2

PULL, LINK = "/seedflood.wire.Flood/Pull", "/seedflood.wire.Flood/Link"
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"


@pytest.fixture
async def node(make_node):
    return await make_node("a", add_services=Health().add_to).start()


async def refused(node, method: str, frame: bytes) -> tuple[grpc.StatusCode, str]:
    """How a stream that says this ends."""
    async with grpc.aio.insecure_channel(node.address) as channel:
        call = channel.stream_stream(method)(iter([frame]))
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for _ in call:
                pass
        return await call.code(), await call.details()


@pytest.mark.parametrize("method", [PULL, CHECK, WATCH])
async def test_requests_that_never_come_take_each_others_places_and_keep_nobody_out(node, method: str) -> None:
    """The method is unary, so gRPC would wait for all of them, with megabytes of each, and ask nobody."""
    request = {PULL: flood_pb2.PullRequest(run_id=node.run_id)}.get(method, health_pb2.HealthCheckRequest())
    async with contextlib.AsyncExitStack() as stack:

        async def channel() -> grpc.aio.Channel:
            return await stack.enter_async_context(grpc.aio.insecure_channel(node.address, options=CHANNEL_OPTIONS))

        channels = [await channel() for _ in range(HALF_OPEN_MAX)]
        ended = [asyncio.create_task(one.stream_stream(method)().code()) for one in 2 * channels]
        async with asyncio.timeout(9):  # before anybody's time is up: the others have places
            for one in itertools.islice(asyncio.as_completed(ended), HALF_OPEN_MAX):
                assert await one is grpc.StatusCode.PERMISSION_DENIED
        assert node.links._door.half_open <= HALF_OPEN_MAX
        call = (await channel()).unary_stream(method)(request.SerializeToString())
        frame = await call.read()
        if method == PULL:
            assert frame is grpc.aio.EOF  # it has nothing
        else:
            assert health_pb2.HealthCheckResponse.FromString(frame)
    assert node.links.ledger.faults["hello"] >= HALF_OPEN_MAX


@pytest.mark.parametrize("method", [PULL, LINK, CHECK, WATCH])
async def test_garbage_is_refused_and_counted_and_is_a_line_of_the_log_once(node, method: str, caplog) -> None:
    for _ in range(3):
        code, details = await refused(node, method, b"\xff\xff")
        assert (code, '"reason": "frame"' in details) == (grpc.StatusCode.PERMISSION_DENIED, True)
    assert node.links.ledger.faults["frame"] == 3
    lines = [record for record in caplog.records if record.levelno >= logging.INFO]
    assert [record.getMessage().partition(": ")[0] for record in lines] == ["refused ipv4:127.0.0.1"]
    assert not any(record.exc_info for record in lines)


async def test_a_stranger_with_another_reason_each_time_fills_no_log(node, caplog) -> None:
    many = 2 * int(LINES.burst)
    for k in range(many):
        hello = replace(node.hello(), run_id=k.to_bytes(4) + bytes(28))
        code, _ = await refused(node, LINK, encode(hello)[0])
        assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert node.links.ledger.faults["run"] == many
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert LINES.burst <= len(lines) <= 1.5 * LINES.burst
