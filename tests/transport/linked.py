"""Two endpoints that are linked, and a peer that says whatever a test likes."""

import asyncio
import contextlib

import grpc
import grpc.aio

from seedflood.protocol.seedflood.bundles import Bundle, make_bundle
from seedflood.transport import codec
from seedflood.wire import flood_pb2


def bundle(step: int, updates: int = 1) -> Bundle:
    return make_bundle(42, step, tuple((step + k, -step) for k in range(updates)), 0, bytes(64))


async def pair(make_node, **settings):
    """a dials b; both are linked."""
    b = await make_node("b", **settings).start()
    a = await make_node("a", **settings).start(b)
    await a.until(lambda: b.origin in a.linked)
    await b.until(lambda: a.origin in b.linked)
    return a, b


def channel_to(address: str, *options: tuple[str, int], **facts) -> grpc.aio.Channel:
    """A peer's connection in plain text: direct, whatever proxy the environment names."""
    return grpc.aio.insecure_channel(address, options=[("grpc.enable_http_proxy", 0), *options], **facts)


def frame_of(message: codec.LinkMessage):
    return flood_pb2.Frame.FromString(codec.encode(message)[0])


async def rogue(b, *frames: bytes) -> tuple[grpc.StatusCode, str]:
    """Sends raw frames and returns the status with which the node ends the stream."""
    return await end_of(channel_to(b.address, ("grpc.max_send_message_length", -1)), *frames)


async def end_of(channel: grpc.aio.Channel, *frames: bytes) -> tuple[grpc.StatusCode, str]:
    """Opens a link by hand, says these frames, and returns the status that it ends with."""
    async with channel:
        call = channel.stream_stream("/seedflood.wire.Flood/Link")()
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            for frame in frames:
                await call.write(frame)
            while await call.read() is not grpc.aio.EOF:
                pass
        return await call.code(), await call.details()
