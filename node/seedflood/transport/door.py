"""Where streams of strangers begin: their first frame needs a place, and a refusal is counted, sent and logged.

gRPC itself reads the request of a unary method, before any code of ours runs, and lets thousands of them wait for bytes
that never come. So to our server all methods are streams, and the request is the first frame. A client sees no
difference.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc.aio

from seedflood.errors import PeerError
from seedflood.protocol.origin import OriginId
from seedflood.transport import refusal
from seedflood.transport.budget import Allowance, Bucket
from seedflood.transport.crowd import Crowd, host_of
from seedflood.transport.server import RPCS_MAX, AcceptedStream

HALF_OPEN_MAX = 32
"""The most streams whose first frame is not there yet. An honest client sends it within a round trip."""

STREAMS_MAX = RPCS_MAX // 4
"""The most streams of one host. One lasts as long as its client does not read how it has ended, and with too many of
them nobody else gets in."""

REFUSALS_REMEMBERED = 64
LINES = Allowance(0.1, 64)
"""Of refusals in the log. Strangers choose what they are refused for, and can choose another reason each time."""

UNLOGGED = ("hello", "busy")
"""Refusals that are counted, and not logged."""

EXPECTED = ("duplicate", "stopping")
"""Refusals that are nobody's fault."""

GONE = (grpc.aio.UsageError, grpc.aio.InternalError)
"""What gRPC raises of a stream that the other side, or gRPC itself, has ended: also when we want to refuse it."""

_log = logging.getLogger(__name__)


class Door:
    """name: our origin and run id, which a refusal names. note: counts a refusal by its reason. seconds: how long a
    stream may be without its first frame."""

    def __init__(
        self, name: Callable[[], tuple[OriginId, bytes]], note: Callable[[str], None], seconds: float = 10.0
    ) -> None:
        self._name = name
        self._note = note
        self._seconds = seconds
        self._half_open = Crowd(HALF_OPEN_MAX)
        self._streams: Counter[str] = Counter()
        self._logged: deque[str] = deque(maxlen=REFUSALS_REMEMBERED)
        self._lines = Bucket(LINES, LINES.burst, 0.0)

    @asynccontextmanager
    async def attend(self, context: grpc.aio.ServicerContext) -> AsyncIterator[None]:
        """Around everything that is done for a stream. A PeerError refuses it.

        A stranger can end a stream at any instant, also while it is refused: nothing of that may reach gRPC, which logs
        a traceback for it."""
        try:
            try:
                self._count(context)
                yield
            except PeerError as error:
                await self._refuse(error, context)
        except GONE:
            pass

    def _count(self, context: grpc.aio.ServicerContext) -> None:
        """A stream has begun. Raises PeerError if its host has too many."""
        host = host_of(context.peer())
        if self._streams[host] >= STREAMS_MAX:
            raise PeerError("too many streams of one host", reason="busy")
        self._streams[host] += 1
        context.add_done_callback(lambda _: self._discount(host))

    @asynccontextmanager
    async def enter(self, context: grpc.aio.ServicerContext) -> AsyncIterator[None]:
        """A place until the first frame is there. Raises PeerError when it takes too long, or others need the place."""
        try:
            async with self._half_open.enter(host_of(context.peer()), self._seconds):
                yield
        except TimeoutError:
            raise PeerError("no hello or request", reason="hello") from None

    async def first_frame(self, context: grpc.aio.ServicerContext) -> bytes:
        """Raises PeerError if none comes."""
        async with self.enter(context):
            frame = await AcceptedStream(context).read()
        if frame is None:
            raise PeerError("the stream was closed before a request", reason="hello")
        return frame

    async def _refuse(self, error: PeerError, context: grpc.aio.ServicerContext) -> None:
        if error.reason not in EXPECTED:
            self._note(error.reason)
            if error.reason not in UNLOGGED:
                self._log_refused(f"refused {host_of(context.peer())}: {error}")
        await context.abort(*refusal.status(error, *self._name()))

    def _discount(self, host: str) -> None:
        self._streams[host] -= 1
        if not self._streams[host]:
            del self._streams[host]

    def _log_refused(self, line: str) -> None:
        """Warns once of each host and sentence, and not too often of all: so no stranger can fill the log."""
        is_known = line in self._logged or self._is_too_much()
        _log.log(logging.DEBUG if is_known else logging.WARNING, "%s", line)
        self._logged.append(line)

    def _is_too_much(self) -> bool:
        if not self._lines.take(1, asyncio.get_running_loop().time()):
            return False
        self._lines.earn(1)
        return True
