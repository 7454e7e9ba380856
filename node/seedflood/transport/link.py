"""One link: a stream to a neighbour, its send queue, and the pulls that share it with live frames.

The donor of a pull sends the next part of its answer only if no live frame waits and few parts are in flight
(`answer`), and the asker acknowledges each part once it is processed. So live frames pass on both sides. Large contents
have a second stream on a connection of its own, where nothing queues. Both streams have one fate.

Why HTTP/2's flow control is not enough: docs/explanation/links.md.
"""

import asyncio
import hmac
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from seedflood.errors import PeerError
from seedflood.protocol.frontier import Held
from seedflood.protocol.seedflood.bundles import Updates, count_updates
from seedflood.protocol.seedflood.messages import FrontierDigest, Standing
from seedflood.protocol.swarm.messages import Goodbye, Hello, Message, Opaque
from seedflood.transport import refusal
from seedflood.transport.answer import EPOCH_BYTES_MAX, Answering, Assembly
from seedflood.transport.budget import Budgets, Use, costs_of
from seedflood.transport.codec import EpochPart, LinkMessage, Pull, PullEnd, PullMore, PullPart, Seen, decode
from seedflood.transport.counters import LinkCounters
from seedflood.transport.owner import Owner
from seedflood.transport.queue import SendQueue
from seedflood.transport.server import Stream
from seedflood.transport.texts import plain

BROKEN = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError)
"""What grpc.aio raises when a stream ends under a read or a write."""

CUT = "the connection broke"
"""Of a stream that the other side has opened gRPC reports only that it has ended, also if a frame was above 4 MiB."""

NO_REASON = "Internal error from Core"
"""What gRPC says of a connection that broke, as after a suspension, if it does not know why."""

CONTENTS_BYTES_MAX = 1 << 20
"""The most bytes that travel at once on the second stream."""

RECEIVED_BUNDLES = 256
"""How many bundles the core gets at once. It verifies their signatures in 15 ms, then other tasks of the loop run."""

AS_BEFORE = FrontierDigest(b"", before=0)
"""Stands for the last digest of a frontier on this link."""

EXPEL_SECONDS = 1.0
"""How long a peer that is silent has to take what was queued for it."""

FAREWELL_SECONDS = 5.0
"""How long the dialling side waits after its goodbye for the other side to close."""


@dataclass(eq=False, repr=False)
class Link:
    """An open link. `run` reads and writes until it ends; all other methods return at once.

    seen: how the peer, whom we have dialled, sees us; looked_back: could we dial the peer, who has dialled us? None: it
    is not known. has_outlived_dial: we had dialled the peer, it then dialled us, and learned that there is a link
    already.
    """

    hello: Hello
    _stream: Stream
    _owner: Owner
    _counters: LinkCounters
    _queue: SendQueue
    _encode: Callable[[LinkMessage], list[bytes]]
    _budgets: Budgets
    _epoch_bytes_max: int = EPOCH_BYTES_MAX
    opened_at: float = field(default_factory=time.time)
    has_outlived_dial: bool = False
    seen: Seen | None = None
    looked_back: bool | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    error: PeerError | None = None
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _contents_wake: asyncio.Event = field(default_factory=asyncio.Event)
    _has_contents: bool = False
    """Has it had its second stream?"""
    _is_expelled: bool = False
    _is_leaving: bool = False
    _closing: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    _writer: asyncio.Task[str] | None = None
    _last_digest: FrontierDigest | None = None
    _received_digest: FrontierDigest | None = None
    """The last digests of frontiers, of both sides."""
    _pulls: int = 0
    _is_pulling: bool = False

    def __post_init__(self) -> None:
        self.peer = self.hello.member.origin
        self.is_dialled = self._stream.is_dialled
        self.source, self.token = self._stream.source, self._stream.token
        frames, sent, received = self._stream.handshake
        self._counters.links_opened += 1
        self._counters.frames_sent += frames
        self._counters.bytes_sent += sent
        self._counters.frames_received += 1
        self._counters.bytes_received += received
        self.conduct = self._budgets.of(self.source, self.peer, asyncio.get_running_loop().time())
        self._answering = Answering(self._owner.pull_answer, self._owner.failed)
        self._assembly = Assembly(self._epoch_bytes_max)

    def send(self, message: LinkMessage) -> None:
        if self._closing.done():
            return
        dropped = self._queue.dropped
        self._queue.put(message)
        self._counters.updates_dropped += self._queue.dropped - dropped
        self._wake.set()
        if self._queue.is_stuck:
            self.close("the peer does not read")

    def carry(self) -> None:
        """Something waits for the second stream."""
        self._contents_wake.set()

    def may_carry(self, token: bytes) -> bool:
        """Does a stream with this token belong to it, as its second one?"""
        is_open = not (self.is_dialled or self._has_contents or self._closing.done())
        return is_open and token != b"" and hmac.compare_digest(token, self.token)

    def pull(self, frontier: tuple[Held, ...]) -> bool:
        """Asks the peer for everything that the frontier lacks. False, and nothing is sent, if a pull is under way."""
        if self._is_pulling or self._closing.done():
            return False
        self._is_pulling = True
        self._pulls += 1
        self.send(Pull(self._pulls, frontier))
        return True

    def close(self, reason: str) -> None:
        """Ends the link now. Queued messages are not sent."""
        if not self._closing.done():
            self._closing.set_result(reason)

    def expel(self, reason: str) -> None:
        """Nothing more is accepted from the peer. What is queued is sent, so that it learns why, and the link ends."""
        if not self._closing.done() and not self._is_expelled:
            self._is_expelled = True
            self._answering.end()
            self.send(Goodbye(reason))
            asyncio.get_running_loop().call_later(EXPEL_SECONDS, self.close, reason)

    def end_pull(self, is_complete: bool) -> None:
        if self._is_pulling:
            self._is_pulling = False
            self._assembly = Assembly(self._epoch_bytes_max)
            self._owner.pulled(self.peer, is_complete)

    @property
    def reason(self) -> str:
        """Why the link has ended."""
        return self._closing.result()

    async def run(self) -> None:
        """Reads and writes until the link ends. `error` is set if that was the peer's fault."""
        reader = asyncio.create_task(self._reason_of(self._read_frames()))
        writer = asyncio.create_task(self._reason_of(self._write_frames()))
        try:
            await asyncio.wait({reader, writer, self._closing}, return_when=asyncio.FIRST_COMPLETED)
            if writer.done() and self.is_dialled:
                await asyncio.wait(
                    {reader, self._closing}, timeout=FAREWELL_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
            for end in (self._closing, reader, writer):
                if end.done():
                    self.close(end.result())
                    break
        except asyncio.CancelledError:
            writer.cancel()  # gRPC has ended the stream already
            if not self.is_dialled:
                self._lose(CUT)
            raise
        finally:
            self.close("cancelled")
            self._wake.set()
            reader.cancel()
            if self.is_dialled:
                writer.cancel()
            self._writer = writer
            await asyncio.wait({reader, writer} if writer.cancelling() else {reader})
            self._answering.end()

    async def finish_writing(self) -> None:
        """After `run`, on the dialled side: waits for a write that is under way.

        gRPC cannot send a status while a message is pending, and without a status the other side would never learn that
        the link has ended. If the peer never reads, the wait ends when it closes the stream, or when our server stops.
        """
        if self._writer is not None:
            try:
                await asyncio.wait({self._writer})
            finally:
                self._writer.cancel()

    async def serve_contents(self, stream: Stream) -> None:
        """Reads and writes the second stream until it or the link ends; then both have."""
        self._has_contents = True
        reader = asyncio.create_task(self._reason_of(self._read_contents(stream)))
        writer = asyncio.create_task(self._reason_of(self._write_contents(stream)))
        try:
            await asyncio.wait({reader, writer, self._closing}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            writer.cancel()  # gRPC has ended the stream already
            raise
        finally:
            self.close("the connection for contents has ended")
            self._contents_wake.set()
            reader.cancel()
            if stream.is_dialled:
                writer.cancel()  # else as in `finish_writing`
            try:
                await asyncio.wait({reader, writer})
            finally:
                writer.cancel()

    async def _reason_of(self, work: Coroutine[Any, Any, str]) -> str:
        """Does it, and returns why it ended. If that was the peer's fault, or ours, that is noted."""
        try:
            return await work
        except PeerError as error:
            self.error = error
            why = f"refused ({error.reason}): {error}"
        except BROKEN as error:
            return self._lose(_why(error))
        except Exception as error:
            self._owner.failed(error)
            why = f"internal error: {error}"
        self.close(why)
        return why

    async def _read_frames(self) -> str:
        while (frame := await self._stream.read()) is not None:
            self._count_received(frame)
            message = self._in_full(decode(frame))
            if isinstance(message, PullPart | PullEnd):
                self._counters.pull_bytes_received += len(frame)
            use = Use()
            if isinstance(message, PullPart):
                use = await self._receive_part(message)
            elif isinstance(message, Updates):
                use = await self._receive_updates(message)
            elif isinstance(message, PullMore | PullEnd):
                message = message if self._steer(message) else None  # then it costs as much as any frame
            elif isinstance(message, Seen):
                self.seen = message if self.is_dialled else None
            elif message is not None:
                use = self._receive(message)
            await self._charge(message, len(frame), use)
            if isinstance(message, Goodbye):
                return f"goodbye: {message.reason}"
        return self._lose("closed by the peer" if self.is_dialled else CUT)

    async def _read_contents(self, stream: Stream) -> str:
        while (frame := await stream.read()) is not None:
            self._count_received(frame)
            if not 0 < len(frame) <= CONTENTS_BYTES_MAX:
                raise PeerError(f"{len(frame)} bytes at once of a content", reason="limit")
            message = Opaque(frame)
            await self._charge(message, len(frame), self._receive(message))
        return self._lose("the connection for contents was closed")

    async def _write_contents(self, stream: Stream) -> str:
        while not self._closing.done():
            frame = self._owner.next_content(self.peer)
            if frame is None:
                self._contents_wake.clear()
                await self._contents_wake.wait()
            else:
                self._count_sent(frame)
                await stream.write(frame)
        return "closed"

    def _count_received(self, frame: bytes) -> None:
        self._counters.frames_received += 1
        self._counters.bytes_received += len(frame)

    def _count_sent(self, frame: bytes) -> None:
        self._counters.frames_sent += 1
        self._counters.bytes_sent += len(frame)

    def _shortened(self, message: LinkMessage) -> LinkMessage:
        """The same digest as last on this link takes two bytes: while a long step is measured, most are."""
        if not isinstance(message, FrontierDigest):
            return message
        before, self._last_digest = self._last_digest, message
        return AS_BEFORE if message == before else message

    def _in_full(self, message: LinkMessage | None) -> LinkMessage | None:
        """Undoes `_shortened` of the other side. Raises PeerError."""
        if not isinstance(message, FrontierDigest):
            return message
        if message.frontier_digest:
            self._received_digest = message
        elif self._received_digest is None:
            raise PeerError("a digest as before, and there was none before", reason="order")
        return self._received_digest

    def _lose(self, why: str) -> str:
        """The stream has ended. If nobody has ended the link before, it is lost. Returns why the link ended."""
        if not self._closing.done():
            self._counters.links_lost += not self._is_leaving
            self.close(why)
        return self.reason

    async def _charge(self, message: LinkMessage | None, size: int, use: Use) -> None:
        """Charges the peer for a frame and, if its budget is used up, waits. Nothing is read from it meanwhile. Raises
        PeerError if it was muted for too long."""
        now = asyncio.get_running_loop().time()
        self._budgets.news += use.news
        seconds = self.conduct.take(costs_of(message, size, use), self._budgets.news, now)
        if self.conduct.is_unbearable(now):
            raise PeerError("it sent too much that brings nothing new", reason="budget")
        if seconds:
            self._counters.muted_seconds += seconds
            await asyncio.wait({self._closing}, timeout=seconds)

    async def _receive_part(self, part: PullPart) -> Use:
        use = Use()
        if self._is_deaf:
            return use
        if not self._is_pulling or part.id != self._pulls:
            raise PeerError("an answer to a pull that we did not send", reason="order")
        item = self._assembly.join(part.message)
        if isinstance(item, Updates):
            use = await self._receive_updates(item)
        elif item is not None:
            use = self._owner.received(self.peer, item)
        else:
            self._owner.progressed(self.peer)
        self.send(PullMore(part.id))
        return use

    async def _receive_updates(self, batch: Updates) -> Use:
        bundles = batch.bundles
        uses = [Use()]
        self._counters.updates_received += count_updates(bundles)
        for k in range(0, len(bundles), RECEIVED_BUNDLES):
            if k:
                await asyncio.sleep(0)
            if not self._is_deaf:
                uses.append(self._owner.received(self.peer, Updates(bundles[k : k + RECEIVED_BUNDLES])))
        return Use(*map(sum, zip(*uses, strict=True)))

    @property
    def _is_deaf(self) -> bool:
        return self._closing.done() or self._is_expelled

    def _steer(self, message: PullMore | PullEnd) -> bool:
        """The peer has taken a part of our answer, or ended its own. Returns whether there was one."""
        if self._is_deaf:
            return True
        if isinstance(message, PullMore):
            self._wake.set()
            return self._answering.go_on(message)
        is_due = self._is_pulling and message.id == self._pulls
        if is_due:
            if message.is_complete:
                self._assembly.end()
            self.end_pull(message.is_complete)
        return is_due

    def _receive(self, message: Message | EpochPart | Pull) -> Use:
        if self._is_deaf:
            return Use()
        match message:
            case Pull():
                self._answering.begin(message)
                self._wake.set()
            case Hello():
                raise PeerError("a second hello on one link", reason="hello")
            case EpochPart() | Standing():
                raise PeerError("a part of an answer outside of a pull", reason="order")
            case _:
                return self._owner.received(self.peer, message)
        return Use()

    async def _write_frames(self) -> str:
        while not self._closing.done():
            message = self._queue.take() or self._answering.take()
            if message is None and self._answering.is_due:
                await asyncio.sleep(0)  # the search of the journal has found nothing yet
                continue
            if message is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            for frame in self._encode(self._shortened(message)):
                self._count_sent(frame)
                await self._stream.write(frame)
            if isinstance(message, Goodbye):
                self._is_leaving = True
                await self._stream.finish()
                return f"goodbye: {message.reason}"
        return "closed"


def _why(error: BaseException) -> str:
    if isinstance(error, grpc.aio.InternalError):  # its text shows objects
        return CUT
    if isinstance(error, grpc.aio.AioRpcError) and error.details() == NO_REASON:
        return CUT
    if isinstance(error, grpc.aio.AioRpcError):
        facts = refusal.parse(error.details()) or {"message": error.details()}
        text = plain(str(facts.get("message")), refusal.TEXT_CHARACTERS_MAX)
        return f"{error.code().name.lower().replace('_', ' ')}: {text}"
    return f"broken: {error}" if str(error) else "broken"
