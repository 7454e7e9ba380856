"""A simulated link: two ends, and a stream each way that carries messages until the codec has its say.

What is on its way is kept as the message it was and encoded when it arrives, so that batches can be joined meanwhile,
as the queue of the transport does; a liar may put raw bytes on the way. Encoding and decoding are pure, and a flood
hands the same batch to many links: both are remembered.
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
"""What is on its way: a message, or the bytes of a frame."""

ENCODED_MAX = 512
decode = lru_cache(maxsize=4096)(codec.decode)


class Encoder:
    """Remembers the frames of messages, by identity."""

    def __init__(self) -> None:
        self._frames: OrderedDict[int, tuple[LinkMessage, list[bytes]]] = OrderedDict()

    def encode(self, item: Item) -> list[bytes]:
        if isinstance(item, bytes):
            return [item]
        known = self._frames.get(id(item))
        if known is None:
            known = self._frames[id(item)] = (item, codec.encode(item))
            if len(self._frames) > ENCODED_MAX:
                self._frames.popitem(last=False)
        return known[1]


def join_statements(waiting: Item, item: Item) -> Item | None:
    """One message of two, where that is what the queue of the transport would make of them; else None."""
    if isinstance(waiting, Members) and isinstance(item, Members):
        return Members(waiting.members + item.members)
    return None


@dataclass(frozen=True, slots=True)
class Traffic:
    """What an algorithm says on links, as far as it matters to them.

    loose: messages of these types may be lost before they are on their way, come twice or overtake each other. join:
    one message of one that waits and the one behind it; None: they stay two.
    """

    loose: tuple[type, ...] = ()
    join: Callable[[Item, Item], Item | None] = join_statements


class Way:
    """One direction of a link while it lives: batches of messages in the order of their arrival."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self.batches: deque[list[Item]] = deque()
        self.arrival = 0.0
        """Of the last batch."""
        self.silent_until = 0.0

    def append(self, item: Item) -> None:
        """A stream that is busy joins what waits, as the queue of the transport does."""
        batch = self.batches[-1]
        joined = self._traffic.join(batch[-1], item)
        if joined is None:
            batch.append(item)
        else:
            batch[-1] = joined

    def places_of_loose(self) -> list[tuple[list[Item], int]]:
        """Where messages stand that are on their way and may be overtaken."""
        loose = self._traffic.loose
        return [(batch, k) for batch in self.batches for k, item in enumerate(batch) if isinstance(item, loose)]


class End:
    """One side of a link that lives. hello: what the other side said first; None: not linked yet."""

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
    """Two hosts that may be linked. life: counts how often it was made; what was sent in another life never arrives.

    diallers: the ends that dial, by index. failures: of each, in a row. awaited: when each dials next.
    """

    def __init__(self, edge: tuple[int, int], diallers: frozenset[int]) -> None:
        self.edge = edge
        self.diallers = diallers
        self.life = 0
        self.is_up = False
        self.is_blocked = False
        self.made_at = 0.0
        self.failures = dict.fromkeys(edge, 0)
        self.awaited: dict[int, float] = {}
        self.ends: dict[int, End] = {}
        self.ways: dict[int, Way] = {}
        """By the index of the sender."""

    def far_end(self, index: int) -> int:
        return self.edge[0] if self.edge[1] == index else self.edge[1]

    def is_greeted(self, index: int) -> bool:
        """Was this end told of the link?"""
        return index in self.ends and self.ends[index].hello is not None

    def open(self, now: float, traffic: Traffic) -> None:
        self.life += 1
        self.is_up, self.made_at = True, now
        self.ways = {index: Way(traffic) for index in self.edge}
        self.ends = {index: End() for index in self.edge}
