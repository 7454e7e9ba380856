"""All links of a node: dials peers, accepts others, and keeps one link per neighbour.

If there are two streams between two nodes, one stays (`precedence`). When a link is replaced, the core sees
"disconnected", then "connected". On one connection messages arrive in order, or the connection ends.

A peer is dialled until the node stops (`redial`), with full jitter. Every dial makes a new channel, so names are
resolved again.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import grpc
import grpc.aio

from seedflood.errors import PeerError, SeedfloodError
from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import OriginId, fingerprint
from seedflood.protocol.swarm.messages import NEIGHBOURS_MAX, Goodbye, Hello, Message
from seedflood.transport import refusal, silence
from seedflood.transport.budget import Budgets
from seedflood.transport.codec import HELLO_BYTES_MAX, FrameEncoder, decode, encode
from seedflood.transport.counters import LinkTotals
from seedflood.transport.credentials import Credentials, advice, check_key, plain_text
from seedflood.transport.door import Door
from seedflood.transport.health import Health
from seedflood.transport.link import BROKEN, Link
from seedflood.transport.owner import LinkSettings, Owner
from seedflood.transport.precedence import is_outlived, is_preferred
from seedflood.transport.queue import SendQueue
from seedflood.transport.reach import LookBack
from seedflood.transport.redial import Dialled, Redial
from seedflood.transport.server import CONTENTS_PATH, AcceptedStream, DialledStream, Stream, bind, make_server
from seedflood.transport.texts import plain

STOP_SECONDS = 2.0
"""How long a closing server waits for streams that it ends."""

LAST_TURNS = 10
"""How many turns of the event loop gRPC's own tasks get to end after their streams."""

_log = logging.getLogger(__name__)


class Links:
    """`start`, then `send` and `pull`. `drain` says goodbye, `close` ends everything that was started."""

    def __init__(self, settings: LinkSettings, owner: Owner, *, credentials: Credentials | None = None) -> None:
        self._settings = settings
        self._owner = owner
        self.credentials = credentials or plain_text()
        self._sleep, self._uniform = asyncio.sleep, random.uniform
        self._encode = FrameEncoder().encode
        self._server: grpc.aio.Server | None = None
        self._links: dict[OriginId, Link] = {}
        self._running: set[Link] = set()
        self._dials: dict[str, asyncio.Task[None]] = {}
        self._pins: dict[str, bytes] = {}
        self._found: dict[str, OriginId] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self.totals = LinkTotals()
        self._budgets = Budgets()
        self._door = Door(lambda: self._name, self.totals.note, settings.hello_seconds)
        self.health = Health(self._door)
        self._is_stopping = False
        self._port = 0
        """Where we listen; 0: nowhere."""
        self.look_back = LookBack(self.credentials, lambda: asyncio.get_running_loop().time())

    @cached_property
    def _name(self) -> tuple[OriginId, bytes]:
        """Our origin and run id. A whole hello takes long to make."""
        hello = self._owner.hello()
        return hello.member.origin, hello.run_id

    @property
    def open(self) -> Mapping[OriginId, Link]:
        return self._links

    @property
    def dialled(self) -> dict[str, OriginId | None]:
        """The addresses that are dialled, each with the peer that was found there last."""
        return {address: self._found.get(address) for address in self._dials}

    async def start(self) -> int:
        """Starts to listen and returns the port. Raises BindError."""
        server = make_server(self._accept, self._accept_contents)
        self.health.add_to(server)
        port = bind(server, self._settings.listen, self.credentials)
        await server.start()
        self._server, self._port = server, port
        return port

    def dial(self, addresses: Iterable[str], pins: Mapping[str, bytes] = MappingProxyType({})) -> None:
        """Sets the addresses that are dialled from now on. Links by addresses that are no longer among them end.

        pins: the public keys that are expected at some of them. A link by an address with another pin than before
        ends, too, and is dialled anew."""
        wanted, before = set(addresses), self._pins
        self._pins = dict(pins)
        stay = {address for address in wanted if before.get(address) == self._pins.get(address)}
        for address in self._dials.keys() - stay:
            task = self._dials.pop(address)
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        for address in sorted(wanted - self._dials.keys()):
            self._dials[address] = asyncio.create_task(self._dial_for_ever(address), name=f"dial {address}")

    def send(self, peer: OriginId, messages: Iterable[Message]) -> None:
        """Queues messages and never waits. Messages to a peer without a link are lost (repair brings them)."""
        link = self._links.get(peer)
        if link is not None:
            for message in messages:
                link.send(message)

    def carry(self, peer: OriginId) -> None:
        """Something waits for the connection for contents (`Owner.next_content`)."""
        link = self._links.get(peer)
        if link is not None:
            link.carry()

    def pull(self, peer: OriginId, frontier: tuple[Held, ...]) -> bool:
        """Asks the peer for everything that the frontier lacks. The owner gets it by `received`; then `pulled` is
        called exactly once.

        False, and nothing will come, if there is no link or a pull from this peer is under way.
        """
        link = self._links.get(peer)
        return link is not None and link.pull(frontier)

    def drop(self, peer: OriginId, reason: str) -> None:
        """Ends the link with a peer. Nothing more of it is received; the owner gets `disconnected` soon."""
        link = self._links.get(peer)
        if link is not None:
            link.expel(reason)

    async def drain(self, seconds: float) -> None:
        """Stops dialling and accepting, sends what is queued and a goodbye, and waits up to `seconds` for the links to
        end."""
        self._is_stopping = True
        linked = list(self._links.values())
        for link in linked:
            link.send(Goodbye("stopping"))
        if linked:
            waits = [asyncio.create_task(link.ended.wait()) for link in linked]
            _, late = await asyncio.wait(waits, timeout=seconds)
            for wait in late:
                wait.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def close(self) -> None:
        """Ends every link, task and channel, and the server. Returns when all have ended."""
        self._is_stopping = True
        self.dial(())
        await self.look_back.close()
        for link in list(self._running):
            link.close("stopping")
        await asyncio.gather(*self._ending, return_exceptions=True)
        if self._server is not None:
            await self._server.stop(STOP_SECONDS)
            self._server = None
        for _ in range(LAST_TURNS):
            await asyncio.sleep(0)

    # The dialling side

    async def _dial_for_ever(self, address: str) -> None:
        loop, redial = asyncio.get_running_loop(), Redial(self._settings)
        while not self._is_stopping:
            began = loop.time()
            dialled = await self._dial(address)
            if redial.is_news(dialled.why):
                level = logging.INFO if dialled.outcome == "stopping" else logging.WARNING
                _log.log(level, "%s; it is dialled again", dialled.why)
            pause = redial.pause_seconds_max(dialled, loop.time() - began)
            if not self._is_stopping:
                await self._sleep(self._uniform(0.0, pause))
            if dialled.outcome == "duplicate" and dialled.peer is not None:
                while (link := self._links.get(dialled.peer)) is not None:
                    await link.ended.wait()

    async def _dial(self, address: str) -> Dialled:
        """Dials once and serves the link until it ends."""
        try:
            dialled = await self._link(address)
        except SeedfloodError as error:
            self._owner.refused(address, error)
            return Dialled("refused", f"no link: {error}")
        except BROKEN as error:
            return self._unreached(address, _details(error))
        except Exception as error:
            self._owner.failed(error)
            return Dialled("failed")
        if dialled.peer is not None:
            self._found[address] = dialled.peer
        return dialled

    def _unreached(self, address: str, why: str) -> Dialled:
        proxy = self.credentials.proxy_of(address)
        way = f" through the proxy {proxy}" if proxy else ""
        return Dialled("failed", f"cannot reach {address}{way}: {why}")

    async def _link(self, address: str) -> Dialled:
        """Raises SeedfloodError if the peer does not fit, one of BROKEN if it cannot be reached."""
        self._check_room(NEIGHBOURS_MAX)  # before the other side opens a link
        _, run_id = self._name
        async with contextlib.aclosing(DialledStream(self.credentials, address, listen_port=self._port)) as stream:
            try:
                async with asyncio.timeout(self._settings.hello_seconds):
                    hello, ours = await self._greet(stream)
            except TimeoutError:
                return self._unreached(address, await self._silence(stream))
            except grpc.aio.AioRpcError as error:
                facts = refusal.parse(error.details())
                if facts is None or (stream.is_secure and stream.proven is None):
                    raise
                if facts["reason"] == "duplicate":
                    return Dialled("duplicate", peer=refusal.origin_in(facts))
                if facts["reason"] == "stopping":
                    return Dialled("stopping", f"{address} says: {_details(error)}")
                if facts["reason"] == "busy":
                    raise
                raise refusal.as_error(facts, address, run_id, stream.proven) from None
            except PeerError as error:
                self.totals.note(error.reason)
                facts = {"reason": error.reason, "message": str(error)}
                raise refusal.as_error(facts, address, run_id, stream.proven, is_ours=True) from None
            try:
                link = self._admit(hello, ours, stream)
            except PeerError as error:
                if error.reason == "busy":
                    raise
                return Dialled("duplicate", peer=hello.member.origin)
            contents = asyncio.create_task(self._dial_contents(link))
            try:
                await self._serve(link)
            finally:
                contents.cancel()
                await asyncio.wait({contents})
            return Dialled("linked", peer=link.peer)

    async def _silence(self, stream: DialledStream) -> str:
        """Why a peer does not answer in time."""
        if self.credentials.proxy_of(stream.source):
            return "no answer in time"
        return await silence.cause(stream.source, self._settings.hello_seconds, is_secured=stream.proven is not None)

    async def _dial_contents(self, link: Link) -> None:
        """Opens the connection for the contents of a link, and serves it until either ends. Then both have."""
        if not self._settings.has_contents:
            return
        async with contextlib.aclosing(
            DialledStream(self.credentials, link.source, CONTENTS_PATH, link.token)
        ) as stream:
            try:
                async with asyncio.timeout(self._settings.hello_seconds):
                    await stream.connect(self._pins.get(link.source))
                check_key(link.hello, stream.proven)
                await link.serve_contents(stream)
            except (*BROKEN, TimeoutError, PeerError) as error:
                link.close(f"no connection for contents: {error!r}")

    async def _greet(self, stream: DialledStream) -> tuple[Hello, Hello]:
        """Learns whom we have reached, exchanges hellos, and returns theirs and ours. Raises PeerError and what gRPC
        raises."""
        pin = self._pins.get(stream.source)
        await stream.connect(pin)
        ours = self._owner.hello()
        frames = encode(ours)
        for frame in frames:
            await stream.write(frame)
        answer = await stream.read()
        hello = _as_hello(answer, ours.run_id)
        stream.handshake = (len(frames), sum(map(len, frames)), len(answer or b""))
        check_key(hello, stream.proven, pin)
        refusal.check_hello(hello, ours)
        self._owner.is_welcome(hello)
        self._found[stream.source] = hello.member.origin
        return hello, ours

    # The dialled side

    async def _accept(self, _: Any, context: grpc.aio.ServicerContext) -> None:
        async with self._door.attend(context):
            await self._take_link(context)

    async def _take_link(self, context: grpc.aio.ServicerContext) -> None:
        """Raises PeerError if the dialler does not fit."""
        stream = AcceptedStream(context)
        async with self._door.enter(context):
            await self.credentials.introduce(context)
            frame = None if stream.is_look else await stream.read()
        if stream.is_look:
            return
        hello = _as_hello(frame, self._name[1])
        stream.handshake = (0, 0, len(frame or b""))
        check_key(hello, self.credentials.caller(context))  # not earlier: who still writes cannot receive a refusal
        ours = self._owner.hello()
        await self._welcome(hello, ours, stream, context)
        link = self._admit(hello, ours, stream)
        look = self.look_back.begin(link, stream.listen_port)
        try:
            await self._serve(link)
        finally:
            look.cancel()
        await link.finish_writing()
        if link.error is not None:
            raise link.error

    async def _accept_contents(self, _: Any, context: grpc.aio.ServicerContext) -> None:
        """The second connection of a link. Who knows its token has dialled the link."""
        async with self._door.attend(context):
            stream = AcceptedStream(context)
            async with self._door.enter(context):
                await self.credentials.introduce(context)
            link = next((one for one in self._links.values() if one.may_carry(stream.token)), None)
            if link is None or not self._settings.has_contents:
                raise PeerError("contents without a link", reason="order")
            check_key(link.hello, self.credentials.caller(context))
            await link.serve_contents(stream)

    async def _welcome(
        self, hello: Hello, ours: Hello, stream: AcceptedStream, context: grpc.aio.ServicerContext
    ) -> None:
        """Raises PeerError if the dialler does not fit. Who has something to learn from our hello gets it before."""
        refusal.check_hello(hello, ours)
        self._check_conduct(hello.member.origin, stream.source)
        try:
            self._owner.is_welcome(hello)
        except PeerError as error:
            if error.reason == "removed":
                await self._introduce(replace(ours, members=(), frontier=()), stream, context)
            raise
        if not hello.base_digest:
            await self._introduce(ours, stream, context)
            raise PeerError("a relay that has learned the run by our hello; dial again", reason="stopping")
        if is_outlived(hello, self._links.get(hello.member.origin)):
            await self._introduce(ours, stream, context)

    async def _introduce(self, ours: Hello, stream: AcceptedStream, context: grpc.aio.ServicerContext) -> None:
        """Sends our hello before a refusal. The peer need not read it, so the stream takes a half-open place."""
        with contextlib.suppress(PeerError):
            async with self._door.enter(context):
                for frame in encode(ours):
                    await stream.write(frame)

    def _check_conduct(self, peer: OriginId, source: str) -> None:
        """Raises PeerError while a peer is refused for its conduct. Peers that we dial are never refused for it."""
        now = asyncio.get_running_loop().time()
        if self._budgets.of(source, peer, now).is_refused(now) and peer not in self._found.values():
            raise PeerError("a link of yours was ended for a fault just now; later", reason="budget")

    # Both sides

    def _admit(self, hello: Hello, ours: Hello, stream: Stream) -> Link:
        """Opens the link and ends the one that it replaces. Raises PeerError: "duplicate" if the existing link stays,
        "stopping" if this node stops, "busy" if it has too many links.

        If we were dialled, our hello is queued first, before anything from the core.
        """
        if self._is_stopping:
            raise PeerError("this node is stopping", reason="stopping")
        peer, name = hello.member.origin, hello.member.name
        old = self._links.get(peer)
        if old is None:
            self._check_room(NEIGHBOURS_MAX if stream.is_dialled else self._settings.links_max)
        else:
            if not is_preferred(hello, ours, stream, old):
                old.has_outlived_dial = True
                raise PeerError(f"there is a link with {name} already", reason="duplicate")
            self._forget(old, "replaced by a newer link")
        queue = SendQueue(self._settings.queue_bundles_max)
        if not stream.is_dialled:
            queue.put(ours)
        counters = self.totals.open(name, [one.hello.member.name for one in self._links.values()])
        link = Link(
            hello,
            stream,
            self._owner,
            counters,
            queue,
            self._encode,
            self._budgets,
            self._settings.epoch_bytes_max,
        )
        self._links[peer] = link
        self._owner.connected(peer, hello)
        return link

    def _check_room(self, links_max: int) -> None:
        if len(self._links) >= min(links_max, NEIGHBOURS_MAX):
            raise PeerError(f"this node has {len(self._links)} links already", reason="busy")

    async def _serve(self, link: Link) -> None:
        self._running.add(link)
        try:
            await link.run()
            if link.error is not None:
                link.conduct.offend(asyncio.get_running_loop().time())
                if link.is_dialled:
                    self.totals.note(link.error.reason)
        finally:
            self._running.discard(link)
            self._forget(link, link.reason)

    def _forget(self, link: Link, reason: str) -> None:
        """Removes a link and reports to the core once that it has ended."""
        link.close(reason)
        if self._links.get(link.peer) is link:
            del self._links[link.peer]
            _log.debug("link with %s (%s) ended: %s", link.hello.member.name, fingerprint(link.peer), reason)
            link.end_pull(is_complete=False)
            self._owner.disconnected(link.peer, reason)
            link.ended.set()


def _details(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        facts, details = refusal.parse(error.details()), str(error.details())
        last = details.rpartition(": ")[2].rstrip("]")  # gRPC puts causes in brackets
        text = str(facts.get("message")) if facts else advice(details) or last
        return plain(text, refusal.TEXT_CHARACTERS_MAX)
    return repr(error)


def _as_hello(frame: bytes | None, run_id: bytes) -> Hello:
    """A hello of another run has no statements, frontier, roster or form."""
    if frame is None:
        raise PeerError("the stream was closed before a hello", reason="hello")
    if len(frame) > HELLO_BYTES_MAX:
        raise PeerError(f"a first frame of {len(frame)} bytes is no hello", reason="oversize")
    message = decode(frame, run_id)
    if not isinstance(message, Hello):
        raise PeerError("the first frame is no hello", reason="hello")
    return message
