"""The send queue of one link.

Its memory is bounded, and messages leave in the order in which they came. When the peer reads too slowly, the oldest
updates are dropped, and repair brings them later. Digests keep their place behind updates: one that overtook them would
look like a difference. Only pings and the transport's own frames overtake, one at a time.

What is dropped, replaced or joined: docs/explanation/links.md.
"""

from collections import deque
from itertools import chain, islice

from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import BATCH_BYTES, Updates, count_updates, cut_bundles, payload_bytes
from seedflood.protocol.seedflood.messages import ClosedEpoch, FrontierDigest, ReplicaDigest, Standing
from seedflood.protocol.swarm.messages import Hello, Member, Members, Message, Opaque, Ping, Pong
from seedflood.transport.codec import (
    FRAME_BUNDLES_MAX,
    FRAME_MEMBERS_MAX,
    EpochPart,
    LinkMessage,
    Pull,
    PullEnd,
    PullMore,
    PullPart,
    Seen,
)

QUEUE_BUNDLES_MAX = 65_536
"""Half a megabyte of references (bundles and batches are shared between links), or 6 MB on the wire."""

QUEUE_BYTES_MAX = 16 << 20
"""The most bytes of bundles with payloads and `Opaque` messages in a queue: 64 bundles of the largest size, or 8,000 of
2 kB."""

OPAQUE_OBJECT_BYTES = 128
"""Memory that an `Opaque` message counts for, beside its bytes. It bounds the number of small ones: 131,072 of one
byte."""

BATCH_BUNDLES = 256
"""A batch with this many bundles, or with 64 KiB of payloads, is not joined with the next one."""

CONTROL_MAX = 4096
"""A peer for which more than this many messages wait that can neither be dropped nor replaced does not read at all. Its
link ends."""

Kind = type[LinkMessage]


class SendQueue:
    """Messages in, batches out. dropped: how many updates and `Opaque` messages were dropped."""

    def __init__(self, bundles_max: int = QUEUE_BUNDLES_MAX, bytes_max: int = QUEUE_BYTES_MAX) -> None:
        self._bundles_max = bundles_max
        self._bytes_max = bytes_max
        self._urgent: deque[LinkMessage | Kind] = deque()
        self._waiting: deque[Message | Kind] = deque()
        self._newest: dict[Kind, LinkMessage] = {}
        """The newest message of each kind that replaces itself."""
        self._statements: dict[OriginId, Member] = {}
        """Queued statements. `_waiting` holds the class `Members` in their place."""
        self._batches = 0
        """How many queued messages may be dropped; the next two: how many bundles and how many bytes they hold."""
        self._bundles = 0
        self._bytes = 0
        self._is_turn_of_waiting = False
        """A fast pull asks for more after every frame, and would keep everything else waiting."""
        self.dropped = 0

    @property
    def is_stuck(self) -> bool:
        return len(self._urgent) + len(self._waiting) - self._batches > CONTROL_MAX

    def put(self, message: LinkMessage) -> None:
        match message:
            case Updates(bundles):
                size = payload_bytes(bundles)
                is_small = 0 < len(bundles) <= FRAME_BUNDLES_MAX and (size <= BATCH_BYTES or len(bundles) == 1)
                parts = [message] if is_small else list(map(Updates, cut_bundles(bundles, FRAME_BUNDLES_MAX)))
                self._waiting += parts
                self._batches += len(parts)
                self._bundles += len(bundles)
                self._bytes += size
            case Opaque():
                self._waiting.append(message)
                self._batches += 1
                self._bytes += _size(message)
            case Members(members):
                self._put_statements(members)
            case FrontierDigest() | ReplicaDigest():
                self._put_digest(message)
            case Ping() | Pong() | Pull():
                if type(message) not in self._newest:
                    self._urgent.append(type(message))
                self._newest[type(message)] = message
            case Hello() | PullMore() | Seen():
                self._urgent.append(message)
            case PullPart() | PullEnd() | ClosedEpoch() | EpochPart() | Standing():
                raise AssertionError("answers do not wait here: the link makes them when there is room")
            case _:
                self._waiting.append(message)
        while self._bundles > self._bundles_max or self._bytes > self._bytes_max:
            self._drop()

    def take(self) -> LinkMessage | None:
        """The next message to send, None if the queue is empty. Small batches of updates in a row come as one."""
        if self._urgent and not (self._is_turn_of_waiting and self._waiting):
            self._is_turn_of_waiting = True
            urgent = self._urgent.popleft()
            return self._newest.pop(urgent) if isinstance(urgent, type) else urgent
        self._is_turn_of_waiting = False
        if not self._waiting:
            return None
        if isinstance(self._waiting[0], Updates):
            return self._take_updates()
        message = self._waiting.popleft()
        if isinstance(message, type):
            return self._take_statements()
        if isinstance(message, Opaque):
            self._batches -= 1
            self._bytes -= _size(message)
        self._newest.pop(type(message), None)
        return message

    def _put_statements(self, members: tuple[Member, ...]) -> None:
        if members and not self._statements:
            self._waiting.append(Members)
        for member in members:
            known = self._statements.get(member.origin)
            if known is None or member.age >= known.age:
                self._statements[member.origin] = member

    def _take_statements(self) -> Members:
        chosen = list(islice(self._statements, FRAME_MEMBERS_MAX))
        members = Members(tuple(map(self._statements.pop, chosen)))
        if self._statements:
            self._waiting.appendleft(Members)
        return members

    def _put_digest(self, digest: FrontierDigest | ReplicaDigest) -> None:
        """Appends the digest, and takes an older one out. It covers the updates that are queued before it, so it must
        not move forward into the place of the older one."""
        if (older := self._newest.get(type(digest))) is not None:
            place = next(k for k, one in enumerate(reversed(self._waiting), start=1) if one is older)
            del self._waiting[-place]
        self._newest[type(digest)] = digest
        self._waiting.append(digest)

    def _take_updates(self) -> Updates:
        batches: list[Updates] = []
        count = size = 0
        while count < BATCH_BUNDLES and self._waiting and isinstance(head := self._waiting[0], Updates):
            more = payload_bytes(head.bundles)
            if batches and size + more > BATCH_BYTES:
                break
            self._waiting.popleft()
            batches.append(head)
            count += len(head.bundles)
            size += more
        self._batches -= len(batches)
        self._bundles -= count
        self._bytes -= size
        return batches[0] if len(batches) == 1 else Updates(tuple(chain.from_iterable(one.bundles for one in batches)))

    def _drop(self) -> None:
        """Drops from the oldest batch: as many bundles as there are too many, or all of it if the queue has too many
        bytes. If an `Opaque` message is older, drops that one instead."""
        at, oldest = next((k, one) for k, one in enumerate(self._waiting) if isinstance(one, Updates | Opaque))
        if isinstance(oldest, Opaque):
            del self._waiting[at]
            self._batches -= 1
            self._bytes -= _size(oldest)
            self.dropped += 1
            return
        end = self._bundles - self._bundles_max if self._bytes <= self._bytes_max else len(oldest.bundles)
        passed, rest = oldest.bundles[:end], oldest.bundles[end:]
        if rest:
            self._waiting[at] = Updates(rest)
        else:
            del self._waiting[at]
            self._batches -= 1
        self._bundles -= len(passed)
        self._bytes -= payload_bytes(passed)
        self.dropped += count_updates(passed)


def _size(message: Opaque) -> int:
    return len(message.data) + OPAQUE_OBJECT_BYTES
