"""Nodes that speak real gRPC on the loopback, with a scripted owner in the core's place."""

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from seedflood.errors import SeedfloodError
from seedflood.identity import Identity
from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import Bundle, Updates
from seedflood.protocol.swarm.messages import Goodbye, Hello, Member, Message
from seedflood.transport.answer import AnswerItem
from seedflood.transport.budget import Use
from seedflood.transport.credentials import Credentials
from seedflood.transport.links import Links
from seedflood.transport.owner import LinkSettings

RUN = json.dumps({"name": "test", "rank": 32, "seed": 1})


class Node:
    """A `Links` and everything it has called. `until` waits for events, never for time."""

    def __init__(
        self,
        name: str,
        *,
        run: str = RUN,
        incarnation: int = 1,
        identity: Identity | None = None,
        credentials: Credentials | None = None,
        **settings: Any,
    ) -> None:
        """identity: its own, where signatures are verified. credentials: plain ones if None."""
        key = hashlib.sha256(name.encode()).digest() if identity is None else identity.public_key
        self.member = Member(key, name, incarnation, signature=bytes(64))
        self.origin = self.member.origin
        self.run_id = hashlib.sha256(run.encode()).digest()
        self.base_digest = bytes(32)
        self.protocol_version = Hello.__dataclass_fields__["protocol_version"].default
        self.parts_heard = 0
        self.calls: list[tuple[Any, ...]] = []
        self.received_messages: list[Message] = []
        self.linked: dict[OriginId, Hello] = {}
        self.refusals: list[SeedfloodError] = []
        self.failures: list[Exception] = []
        self.pull_ends: list[tuple[OriginId, bool]] = []
        self.journal: Callable[[tuple[Held, ...]], Iterator[AnswerItem]] = lambda frontier: iter(())
        self.on_received: Callable[[OriginId, Message], None] = lambda peer, message: None
        self.on_welcome: Callable[[Hello], None] = lambda hello: None
        self.use: Callable[[Message], Use] = lambda message: Use(news=1)
        self.contents: deque[bytes] = deque()
        """What waits for any peer's second connection."""
        self.on_connected: Callable[[OriginId], None] = lambda peer: None
        self.port = 0
        self._changed = asyncio.Event()
        defaults: dict[str, Any] = {"listen": "127.0.0.1:0", "redial_seconds_min": 0.01, "redial_seconds_max": 0.1}
        self.links = Links(LinkSettings(**(defaults | settings)), self, credentials=credentials)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def bundles(self) -> list[Bundle]:
        return [one for message in self.received_messages if isinstance(message, Updates) for one in message.bundles]

    @property
    def goodbyes(self) -> int:
        return sum(isinstance(message, Goodbye) for message in self.received_messages)

    async def start(self, *dial: "Node | str") -> "Node":
        self.port = await self.links.start()
        self.dial(*dial)
        return self

    def dial(self, *nodes: "Node | str") -> None:
        self.links.dial([node.address if isinstance(node, Node) else node for node in nodes])

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        self._changed.set()

    def hello(self) -> Hello:
        return Hello(
            self.run_id, self.base_digest, self.member, frontier=(Held(7, 9),), protocol_version=self.protocol_version
        )

    def is_welcome(self, hello: Hello) -> None:
        self.on_welcome(hello)

    def connected(self, peer: OriginId, hello: Hello) -> None:
        assert peer not in self.linked
        self.linked[peer] = hello
        self.on_connected(peer)
        self._note("connected", peer)

    def received(self, peer: OriginId, message: Message) -> Use:
        assert peer in self.linked
        self.on_received(peer, message)
        self.received_messages.append(message)
        self._note("received", peer)
        return self.use(message)

    def disconnected(self, peer: OriginId, reason: str) -> None:
        del self.linked[peer]
        self._note("disconnected", peer, reason)

    def pulled(self, peer: OriginId, is_complete: bool) -> None:
        self.pull_ends.append((peer, is_complete))
        self._note("pulled", peer, is_complete)

    def progressed(self, peer: OriginId) -> None:
        self.parts_heard += 1

    def next_content(self, peer: OriginId) -> bytes | None:
        return self.contents.popleft() if self.contents else None

    def pull_answer(self, frontier: tuple[Held, ...]) -> Iterator[AnswerItem]:
        return self.journal(frontier)

    def refused(self, address: str, error: SeedfloodError) -> None:
        self.refusals.append(error)
        self._note("refused", address)

    def failed(self, error: Exception) -> None:
        self.failures.append(error)
        self._note("failed", error)


MakeNode = Callable[..., Node]


@pytest.fixture
async def make_node() -> AsyncIterator[MakeNode]:
    """Makes nodes, closes them all, and then no task may be left."""
    nodes: list[Node] = []

    def make(name: str, **settings: Any) -> Node:
        nodes.append(Node(name, **settings))
        return nodes[-1]

    before = asyncio.all_tasks()
    yield make
    for node in nodes:
        await node.links.close()
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    leaked = set()
    for task in left:
        if "cygrpc" in repr(task):
            task.cancel()  # gRPC's own, which sometimes wait a little longer for the status of a cancelled stream
        else:
            leaked.add(task)
    assert not leaked, leaked
    for node in nodes:
        assert not node.linked
