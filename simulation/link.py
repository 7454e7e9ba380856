"""A simulated link: two ends, and a stream of messages each way.

A message in flight is encoded and decoded only when it arrives. Until then batches can be joined, as the transport's
queue joins them. A liar may send raw bytes. Encoding and decoding are pure, and a flood gives the same batch to many
links, so the results of both are cached.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import Hello, Members
from seedflood.transport import codec
from seedflood.transport.answer import Assembly
from seedflood.transport.codec import LinkMessage

Item = LinkMessage | bytes
"""What is in flight: a message, or the bytes of a frame."""

CACHED_MAX, CACHED_BYTES_MAX = 8192, 4096
"""How many frames are cached: as many as are under way at once between a thousand hosts. Longer ones are mostly all of
the statements that somebody knows, and like no others."""


shared = lru_cache(maxsize=1 << 16)(lambda value: value)
"""The first value that is equal to this one: of a thousand hosts each keeps what all others say."""


class FrameEncoder:
    """Caches the frames of messages, by identity."""

    def __init__(self) -> None:
        self._frames: OrderedDict[int, tuple[LinkMessage, list[bytes]]] = OrderedDict()

    def encode(self, item: Item) -> list[bytes]:
        if isinstance(item, bytes):
            return [item]
        known = self._frames.get(id(item))
        if known is not None:
            return known[1]
        frames = codec.encode(item)
        if sum(map(len, frames)) <= CACHED_BYTES_MAX:
            self._frames[id(item)] = item, frames
            if len(self._frames) > CACHED_MAX:
                self._frames.popitem(last=False)
        return frames


def join_statements(waiting: Item, item: Item) -> Item | None:
    """The message into which the transport's queue would join these two; None if it would not."""
    if isinstance(waiting, Members) and isinstance(item, Members):
        return Members(waiting.members + item.members)
    return None


@dataclass(frozen=True, slots=True)
class Traffic:
    """What links must know about the messages of an algorithm.

    loose: messages of these types may be lost before they are sent, come twice, or overtake each other. join: joins a
    queued message with the one behind it; None if they stay two. share: makes equal parts of messages one object.
    """

    loose: tuple[type, ...] = ()
    join: Callable[[Item, Item], Item | None] = join_statements
    share: Callable[[LinkMessage], LinkMessage] = lambda message: message

    def decoder(self) -> Callable[[bytes], LinkMessage | None]:
        """Decodes a frame; None if its kind is unknown. It raises PeerError."""

        def decode(frame: bytes) -> LinkMessage | None:
            message = codec.decode(frame)
            return None if message is None else self.share(message)

        cached = lru_cache(maxsize=CACHED_MAX)(decode)
        return lambda frame: (decode if len(frame) > CACHED_BYTES_MAX else cached)(frame)


class Way:
    """One direction of an open link: batches of messages in the order of their arrival."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self.batches: deque[list[Item]] = deque()
        self.arrival = 0.0
        """When the last batch arrives."""
        self.silent_until = 0.0
        self._free_at = 0.0

    def queue(self, seconds: float, now: float) -> float:
        """Sends something that takes `seconds` on the link. Returns after how many seconds it is through, because it
        waits behind what was sent before."""
        self._free_at = max(self._free_at, now) + seconds
        return self._free_at - now

    def append(self, item: Item) -> None:
        """Adds an item to the last batch, or joins it with the last item, as the transport's queue does."""
        batch = self.batches[-1]
        joined = self._traffic.join(batch[-1], item)
        if joined is None:
            batch.append(item)
        else:
            batch[-1] = joined

    def places_of_loose(self) -> list[tuple[list[Item], int]]:
        """The places (batch, index) of messages in flight that may be overtaken."""
        loose = self._traffic.loose
        return [(batch, k) for batch in self.batches for k, item in enumerate(batch) if isinstance(item, loose)]


class End:
    """One side of an open link. hello: the other side's hello; None before it has come."""

    def __init__(self) -> None:
        self.hello: Hello | None = None
        self.is_pulling = False
        self.pulls = 0
        self.assembly = Assembly()

    @property
    def peer(self) -> OriginId:
        assert self.hello is not None
        return self.hello.member.origin


class Link:
    """Two hosts that may be linked. life: counts how often the link was opened; messages of an earlier life never
    arrive.

    diallers: indices of the hosts that dial. rate: bytes per second, each way; None: unlimited. failures: how often
    each host has failed in a row. awaited: when each dials next.
    """

    def __init__(self, edge: tuple[int, int], diallers: frozenset[int], rate: float | None = None) -> None:
        self.edge = edge
        self.rate = rate
        self.diallers = diallers
        self.life = 0
        self.is_up = False
        self.is_blocked = False
        self.made_at = 0.0
        self.failures = dict.fromkeys(edge, 0)
        self.awaited: dict[int, float] = {}
        self.ends: dict[int, End] = {}
        self.ways: dict[int, Way] = {}
        """The two directions, by the index of the sender."""
        self.carrying: set[int] = set()
        """Who has a frame under way on the connection for contents."""

    def far_end(self, index: int) -> int:
        return self.edge[0] if self.edge[1] == index else self.edge[1]

    def is_greeted(self, index: int) -> bool:
        """Has this end had the other's hello, so that its host knows of the link?"""
        return index in self.ends and self.ends[index].hello is not None

    def open(self, now: float, traffic: Traffic) -> None:
        self.life += 1
        self.is_up, self.made_at = True, now
        self.ways = {index: Way(traffic) for index in self.edge}
        self.ends = {index: End() for index in self.edge}
        self.carrying.clear()
