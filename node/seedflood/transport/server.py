"""Streams, channels and the server: the gRPC side of a link."""

import asyncio
import contextlib
import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from seedflood.errors import BindError
from seedflood.listening import PORT_MAX, listen_at, room
from seedflood.transport.codec import FRAME_BYTES_MAX
from seedflood.transport.credentials import Credentials, check_pin
from seedflood.transport.crowd import host_of

SERVICE = "seedflood.wire.Flood"
LINK_PATH, CONTENTS_PATH = f"/{SERVICE}/Link", f"/{SERVICE}/Contents"

TOKEN_KEY = "seedflood-contents-bin"
"""Metadata of both streams of a link: a random word by which the second one is known."""

PORT_KEY = "seedflood-port"
"""Metadata of a link: where its dialler listens; 0: nowhere."""

LOOK = "look"
"""In its place: the dialler only wants to know who answers (`reach`)."""

TOKEN_BYTES = 16

RPCS_MAX = 2048
"""The most concurrent streams of all peers. Links, streams without a hello, and those of one host have limits of their
own, because a refusal needs a free stream, too."""

HANDSHAKE_MILLISECONDS = 12_000
IDLE_MILLISECONDS = 60_000
"""When a connection is closed that does not finish its handshake, or that has no stream. A dialler gives up a little
earlier (`hello_seconds`), so it knows that time was up, and not that we closed."""

CLOSE_SECONDS = 1.0

KEEPALIVE_MILLISECONDS = 15_000
KEEPALIVE_TIMEOUT_MILLISECONDS = 10_000
"""gRPC notices a dead connection after 25 s at most. The core's pings notice it earlier."""

WINDOW_BYTES = 8 << 20
"""HTTP/2's flow control window: the most bytes of a connection that wait here unread. It is set here because gRPC's own
estimate (bdp_probe) costs pings, 3 % of the bytes of a live link. It fills 100 Mbit/s for 0.6 s there and back, so that
TCP alone decides how fast contents are. A link has less in flight: an answer to a pull 512 KiB. What a stranger sends
is bounded by the frame that its hello may be (`FRAME_BYTES_MAX`), and half-open streams have few places (`door`)."""

_TUNING = [
    ("grpc.keepalive_time_ms", KEEPALIVE_MILLISECONDS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MILLISECONDS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
    ("grpc.max_receive_message_length", FRAME_BYTES_MAX),
    ("grpc.max_send_message_length", FRAME_BYTES_MAX),
]
CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    *_TUNING,
    ("grpc.use_local_subchannel_pool", 1),  # every dial resolves and connects again, without gRPC's own back-off
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),  # links are no web traffic: http_proxy and the like do not count
]
SERVER_OPTIONS: list[tuple[str, Any]] = [
    *_TUNING,
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MILLISECONDS // 3),
    ("grpc.so_reuseport", 0),  # else two daemons share one port and each gets half of the peers
    ("grpc.max_concurrent_streams", 16),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MILLISECONDS),
    ("grpc.max_connection_idle_ms", IDLE_MILLISECONDS),
]


logging.getLogger("grpc._cython.cygrpc").addFilter(
    lambda record: not (record.exc_info and isinstance(record.exc_info[1], UnicodeDecodeError))
)
"""Metadata that is no text is the sender's fault. gRPC goes on, and would log a traceback for each value."""

Accept = Callable[[Any, grpc.aio.ServicerContext], Awaitable[None]]


class Stream:
    """Our side of a stream. is_dialled: we opened it. source: the address of the other side: the one that we dialled,
    or its host without a port. token: a word of the dialler's; the second stream of a link has that of the first.
    handshake: frames sent, bytes sent and bytes received in the handshake, before the link was counted."""

    is_dialled: bool
    source: str
    token: bytes
    handshake = (0, 0, 0)

    def __init__(self, call: Any) -> None:
        self._call = call

    async def read(self) -> bytes | None:
        """The next frame; None if the other side has closed the stream."""
        frame = await self._call.read()
        return None if frame is grpc.aio.EOF else frame

    async def write(self, frame: bytes) -> None:
        await self._call.write(frame)

    async def finish(self) -> None:
        """Says that we write nothing more. A stream that we have accepted ends when the rpc returns."""


class DialledStream(Stream):
    """The side of a link that opened it, on a channel of its own; `aclose` ends both. is_secure: then nothing is
    sent before the other side has proven who it is."""

    is_dialled = True

    def __init__(
        self,
        credentials: Credentials,
        address: str,
        path: str = LINK_PATH,
        token: bytes = b"",
        *,
        listen_port: int | str = 0,
    ) -> None:
        self.source = address
        self.token = token or secrets.token_bytes(TOKEN_BYTES)
        self.proven: bytes | None = None
        """The key that the other side has proven to have."""
        self._channel, self._acceptor = credentials.open(address, CHANNEL_OPTIONS)
        self.is_secure = self._acceptor is not None
        metadata = ((TOKEN_KEY, self.token), (PORT_KEY, str(listen_port)))
        super().__init__(self._channel.stream_stream(path)(metadata=metadata))

    async def aclose(self) -> None:
        """Cancels the rpc and waits until gRPC has let go of it, so that none of its tasks outlives the loop."""
        self._call.cancel()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._call.code()
        finally:
            await self._channel.close()

    async def connect(self, pin: bytes | None = None) -> None:
        """Waits until the connection is up, and learns who is there. pin: the key that is expected. Raises PeerError
        and what gRPC raises."""
        await self._call.wait_for_connection()
        if self._acceptor is not None:
            proven = self._acceptor(await self._metadata())
            check_pin(proven, pin)
            self.proven = proven

    async def _metadata(self) -> list[tuple[str, Any]]:
        """What the other side says before its first frame. Raises AioRpcError if it has ended the stream."""
        metadata = list(await self._call.initial_metadata() or ())
        if not metadata:  # it may have ended the stream, and gRPC reports that a moment later
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._call.code()
                    await self._call.read()
        return metadata

    async def finish(self) -> None:
        await self._call.done_writing()


class AcceptedStream(Stream):
    """The side of a link that was dialled."""

    is_dialled = False

    def __init__(self, context: grpc.aio.ServicerContext) -> None:
        super().__init__(context)
        self.source = host_of(context.peer())
        self.token = next((bytes(value) for key, value in context.invocation_metadata() or () if key == TOKEN_KEY), b"")
        port = next((str(value) for key, value in context.invocation_metadata() or () if key == PORT_KEY), "")
        self.is_look = port == LOOK
        self.listen_port = int(port) if re.fullmatch(r"\d{1,5}", port) and int(port) <= PORT_MAX else 0


def make_server(accept: Accept, accept_contents: Accept) -> grpc.aio.Server:
    """A server whose streams Flood.Link and Flood.Contents are served by these two, as raw bytes."""
    options = [*SERVER_OPTIONS, ("grpc.max_allowed_incoming_connections", room().links)]
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=RPCS_MAX)
    served = {"Link": accept, "Contents": accept_contents}
    handlers = {name: grpc.stream_stream_rpc_method_handler(one) for name, one in served.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    return server


def bind(server: grpc.aio.Server, address: str, credentials: Credentials) -> int:
    """Listens at `host:port` and returns the port, which the system chooses if it is 0. Raises BindError."""
    listen_at(address, "[node] listen").close()  # gRPC does not say why it cannot
    try:
        return credentials.add_port(server, address)
    except RuntimeError as error:
        raise BindError(f"cannot listen at {address}: {error}") from None
