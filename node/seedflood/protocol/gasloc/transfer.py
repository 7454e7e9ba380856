"""How a content travels: piece by piece over a connection of its own, beside the link with the same peer.

That connection is ordered and loses nothing before it breaks, and then the link breaks, too. TCP decides how fast it
is, with a fixed, generous window of HTTP/2 (`transport.server`), so there is nothing to steer here. The receiver asks
once, for everything from the byte before which it holds all; after a break, or when its disk was full, it asks again
from there. It says the same when it wants no more: from the end on.

Pieces are made when the connection has room for them (`Carrier.next_frame`), so a sender holds one at a time.
"""

from typing import Protocol

from seedflood.errors import DiskFullError, PeerError
from seedflood.protocol.gasloc.messages import KEY_BYTES, Chunk
from seedflood.protocol.origin import OriginId

RETRY_SECONDS = 3.0
"""How long a receiver whose disk is full waits before it asks again."""

SENT_FACTOR, SENT_BYTES_SPARE = 4, 16 << 20
"""A content is sent no more often than this factor (plus this many bytes), however often a peer asks again."""


class Content(Protocol):
    """Bytes to be sent, which do not change. digest: 32 bytes over all of them. The compute side computes it
    beforehand, because nothing here may take long."""

    @property
    def digest(self) -> bytes: ...

    @property
    def size(self) -> int: ...

    def read(self, offset: int, count: int) -> memoryview | bytes:
        """Exactly `count` bytes from `offset` on. It must not block for long."""


class Sink(Protocol):
    """Where received bytes go. held: how many are there, from the first on; an earlier transfer may have brought
    some."""

    @property
    def held(self) -> int: ...

    def write(self, data: memoryview | bytes) -> None:
        """Appends all of it, or nothing and raises DiskFullError. It must not block for long."""


class Sinks(Protocol):
    def open(self, peer: OriginId, digest: bytes, size: int) -> Sink:
        """A sink for bytes that, by the word of this peer, have this digest. It holds only what the peer itself has
        sent, in this life of ours. Raises PeerError for a size that they cannot have."""


def key_of(digest: bytes) -> bytes:
    return digest[:KEY_BYTES]


class Sending:
    """A content that is sent to one receiver. position: of the next byte to send; at the end while nothing is asked
    for. taken: how many different bytes its connection has taken. is_done: the receiver wants no more."""

    def __init__(self, content: Content) -> None:
        self.content = content
        self.position = content.size
        self.taken = 0
        self.is_done = False
        self._total = self._furthest = 0

    @property
    def is_unasked(self) -> bool:
        """Was it never asked for?"""
        return not self.is_done and not self._total and self.position == self.content.size

    def accept(self, start: int) -> None:
        """The receiver has everything before `start`, and wants the rest. Raises PeerError if there are not that many
        bytes."""
        if start > self.content.size:
            raise PeerError(f"asked to go on at byte {start:,} of {self.content.size:,}", reason="limit")
        self.is_done = start == self.content.size
        if self.is_done or self._total <= SENT_FACTOR * self.content.size + SENT_BYTES_SPARE:
            self.position = start

    def pause(self) -> None:
        """Sends nothing until the content is accepted again."""
        self.position = self.content.size

    def next_chunk(self, count: int) -> Chunk | None:
        """The next piece, of so many bytes at most; None if all was sent."""
        begin, end = self.position, min(self.position + count, self.content.size)
        if begin == end:
            return None
        self.position = end
        self._total += end - begin
        self.taken += max(0, end - max(begin, self._furthest))
        self._furthest = max(self._furthest, end)
        return Chunk(key_of(self.content.digest), begin, self.content.read(begin, end - begin))


class Receiving:
    """A content that is received. ask_at: when to ask for it again."""

    def __init__(self, digest: bytes, size: int, sink: Sink, now: float) -> None:
        self.digest = digest
        self.size = size
        self.sink = sink
        self.held = min(sink.held, size)
        self.ask(now)

    @property
    def is_whole(self) -> bool:
        return self.held == self.size

    def ask(self, now: float) -> None:
        """Notes that the rest of the content is asked for now."""
        self._began_at, self._began_with = now, self.held
        self.ask_at = float("inf")

    def take(self, chunk: Chunk, now: float) -> bool:
        """Takes the chunk if it is the next one, and returns whether it was. Any other chunk is ignored, and so is one
        for which the disk has no space; it is asked for again. Raises PeerError if it ends beyond the content."""
        end = chunk.offset + len(chunk.data)
        if end > self.size:
            raise PeerError("a chunk beyond what was offered", reason="limit")
        if chunk.offset != self.held:
            return False
        try:
            self.sink.write(chunk.data)
        except DiskFullError:
            self.ask_at = now + RETRY_SECONDS
            return False
        self.held = end
        return True

    def throughput(self, now: float) -> float | None:
        """Bytes per second since it was asked for; None if that took no time that can be measured."""
        seconds = now - self._began_at
        return (self.held - self._began_with) / seconds if seconds > 0 else None
