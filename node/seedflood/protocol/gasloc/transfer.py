"""How large contents travel over a link, piece by piece, without being in the way of anything else.

The sender keeps so little under way that little of it waits in queues; other frames of the link wait behind that
little. It learns from the time between a chunk and its credit. While that is hardly longer than the shortest seen, the
link carries all that is sent, and the window grows. When it becomes longer, the window shrinks (a delay-based window,
as in LEDBAT, RFC 6817). The size of a chunk follows the throughput, so that no chunk holds a link for long.

The throughput of the link is known once a first queue was seen: while something waits, chunks arrive as fast as the
link can carry them. From then on a window is sent evenly over a round trip (pacing): on a link with a long delay it is
much more than may wait at once.

A host that stands still for a moment, because others have its processor, delays chunks as a queue does. But a queue
delays all chunks, for as long as more is sent than the link can carry, and they leave it evenly. So single chunks prove
nothing (`_Run`). If the throughput was taken for too little all the same, that shows: there is no queue with a window
that is much larger. Then it counts as unknown again. And if everything has waited for a second and for eight round
trips, however small the window became, the way has become longer (`_note_late`).

A simulated link of 100 Mbit/s and 2 ms is used to 99 %, with at most 20 ms in its queue. With 200 ms one way it is full
after 3 s (`tests/protocol/gasloc/test_transfer.py`).

The receiver takes chunks in order and says how far it is. If one is missing, it asks again from there, first at once
and then now and then: a transfer can go on at any byte, over any link with the same peer.
"""

from collections import deque
from collections.abc import Iterator
from typing import Protocol

from seedflood.errors import DiskFullError, PeerError
from seedflood.protocol.gasloc.messages import CHUNK_BYTES_MAX, KEY_BYTES, Chunk
from seedflood.protocol.origin import OriginId

CHUNK_BYTES_MIN, CHUNK_BYTES_FIRST = 2 << 10, 8 << 10
CHUNK_SECONDS, CHUNKS = 0.005, 4
"""How long a chunk may take on the link, and how many fill a window: of a single one the link would have to wait for
credit."""

WINDOW_BYTES_MIN, WINDOW_BYTES_FIRST, WINDOW_BYTES_MAX = 4 << 10, 16 << 10, 6 << 20
QUEUE_SECONDS = 0.008
"""How long bytes in flight may wait in queues."""

GROWTH, GROWTH_MAX = 0.1, 0.2
"""How much the window grows in a round trip once it is known what the link carries. It grows more slowly if that much
would wait, and twice as fast after each round trip without a queue, up to the maximum."""

START_GROWTH, START_GROWTH_SLOWER = 2.0, 1.0
"""The same before that is known; the second one if chunks have already waited, if only for a short time."""

SHRINK, PATIENCE = 0.8, 2
"""When something waits, the window becomes what the link carries. If that has not helped this many times, other traffic
fills the queue, and the window shrinks by this factor."""

EMPTY_SECONDS = 0.002
"""A chunk that has waited no longer than this has met no queue. Chunks for as much time may be sent at once."""

TRAIN_SECONDS, EVEN_FACTOR = 0.015, 2.0
"""How long a queue must last to tell what the link carries, and how much longer one half of what was in it may have
taken than the other."""

JAM_SECONDS = 0.05
"""How long all chunks must wait too long before the window shrinks."""

RUN_CHUNKS = 512
"""How many chunks one after the other are remembered."""

PAUSE_SECONDS = 0.01
"""How much of a pause between two chunks counts as queue at most. In a longer one a host stood still."""

SURPRISE_FACTOR = 1.5
"""With a window so much larger than was found right there is still no queue: it was wrong."""

LONGER_SECONDS, LONGER_TRIPS = 1.0, 8
"""If all chunks have waited too long for so many seconds and round trips, the round trip has become longer."""

RATES = 4
"""The rate of a link is the best of this many last measurements."""

RETRY_SECONDS = 3.0
"""How long a receiver waits for the next chunk before it asks again."""

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
    """Where sinks come from."""

    def open(self, peer: OriginId, digest: bytes, size: int) -> Sink:
        """A sink for bytes that, by the word of this peer, have this digest. It holds only what the peer itself has
        sent, in this life of ours. Raises PeerError for a size that they cannot have."""


def key_of(digest: bytes) -> bytes:
    return digest[:KEY_BYTES]


class _Run:
    """The last chunks, as long as each has waited longer than so many seconds and arrived right after the one before:
    all the while something was in the queue."""

    def __init__(self, least_waiting: float) -> None:
        self._least_waiting = least_waiting
        self._arrivals: deque[tuple[float, int, float]] = deque(maxlen=RUN_CHUNKS)
        """When each of them arrived, its end, and the seconds since the run began, long pauses left out."""

    @property
    def seconds(self) -> float:
        return self._arrivals[-1][2] - self._arrivals[0][2] if self._arrivals else 0.0

    @property
    def rate(self) -> float:
        """Bytes per second in which they have arrived."""
        (began, first, _), (ended, last, _) = self._arrivals[0], self._arrivals[-1]
        return (last - first) / (ended - began)

    @property
    def is_even(self) -> bool:
        """Has one half of the bytes taken about as long as the other? Else a host stood still meanwhile."""
        (began, first, _), (ended, last, _) = self._arrivals[0], self._arrivals[-1]
        middle = next(at for at, end, _ in self._arrivals if 2 * end >= first + last)
        shorter, longer = sorted((middle - began, ended - middle))
        return longer <= EVEN_FACTOR * shorter

    def note(self, waiting: float, end: int, now: float) -> None:
        before, _, seconds = self._arrivals[-1] if self._arrivals else (now, 0, 0.0)
        if waiting <= self._least_waiting or now - waiting > before:  # the link was idle in between
            self._arrivals.clear()
        if waiting > self._least_waiting:
            self._arrivals.append((now, end, seconds + min(now - before, PAUSE_SECONDS)))

    def clear(self) -> None:
        self._arrivals.clear()


class Window:
    """How much may be in flight. limit: in bytes. send_at: nothing more is sent before that time. known: an earlier
    window to the same receiver, to start from."""

    def __init__(self, known: "Window | None" = None) -> None:
        self.limit = WINDOW_BYTES_FIRST
        self.send_at = 0.0
        self._shortest = float("inf")
        self._rates: deque[float] = deque(maxlen=RATES)
        self._sent: deque[tuple[int, int, float]] = deque()
        """Size and end of each chunk in flight, and when it was sent."""
        self._arrived = 0
        self._counted = 0
        self._counted_at = 0.0
        self._train = _Run(EMPTY_SECONDS)
        """What has met a queue, if only a short one: it arrives as fast as the link can carry it."""
        self._jam = _Run(QUEUE_SECONDS)
        """What has waited too long."""
        self._late_since, self._least_late = 0.0, float("inf")
        """Since when every chunk has waited too long, and the shortest round trip of the later half of them."""
        self._turned_at = self._shrunk_at = 0
        """The byte at which a round trip has passed since the growth changed last, or since the window shrank last."""
        self._settled = WINDOW_BYTES_FIRST
        """The window that was found to be right last."""
        self._growth = GROWTH
        self._shrunk = 0
        """How often the window shrank since the last round trip without a queue."""
        self._is_new = True
        """It grows fast until it is known what the link carries (slow start), then slowly."""
        if known is not None and known.rate:
            self._rates, self._is_new = deque(known._rates, maxlen=RATES), False
            self.limit, self._growth = known._fitting(), known._least_growth()
            self._settled = self.limit

    @property
    def rate(self) -> float:
        """Bytes per second that arrive; 0 before any."""
        return max(self._rates, default=0.0)

    @property
    def chunk_bytes(self) -> int:
        if not self._rates:
            return CHUNK_BYTES_FIRST
        return max(CHUNK_BYTES_MIN, min(int(self.rate * CHUNK_SECONDS), self.limit // CHUNKS, CHUNK_BYTES_MAX))

    def restart(self, at: int, now: float) -> None:
        """Nothing is in flight any more. Sending resumes at byte `at`."""
        self._sent.clear()
        self._train.clear()
        self._jam.clear()
        self._arrived = self._counted = at
        self._counted_at = self._late_since = now
        self._least_late = float("inf")
        self._turned_at = self._shrunk_at = 0
        self.send_at = 0.0

    def sent(self, count: int, end: int, now: float) -> None:
        if not self._sent:
            self._counted_at = now  # before, nothing could arrive
        self._sent.append((count, end, now))
        pace = self._pace()
        if pace and not self._is_new:
            self.send_at = max(self.send_at, now - EMPTY_SECONDS) + count / pace

    def arrived(self, held: int, now: float) -> None:
        """Everything before byte `held` is there."""
        before, self._arrived, last = self._arrived, held, None
        while self._sent and self._sent[0][1] <= held:
            last = self._sent.popleft()
        if last is None:
            return
        count, _, left_at = last
        seconds = now - left_at
        self._shortest = min(self._shortest, seconds)
        self._measure(held, now)
        own = min(count / self.rate, CHUNK_SECONDS) if self.rate else 0.0
        waiting = seconds - self._shortest - own
        self._train.note(waiting, held, now)
        self._jam.note(waiting, held, now)
        self._note_late(waiting, seconds, now)
        if waiting <= QUEUE_SECONDS / 2:
            self._grow(held - before, held, START_GROWTH if waiting <= EMPTY_SECONDS else START_GROWTH_SLOWER)
        elif self._is_new and self._train.seconds >= TRAIN_SECONDS and self._train.is_even:
            self._settle(self._train.rate, held)
        elif self._jam.seconds >= JAM_SECONDS and held >= self._shrunk_at:
            self._shrink(held)

    def _note_late(self, waiting: float, seconds: float, now: float) -> None:
        """Nothing that we queue lasts that long, for the window shrinks. So the way has become longer, or somebody else
        keeps its queues full: what is seen now is the round trip from here on."""
        if waiting <= QUEUE_SECONDS:
            self._late_since, self._least_late = now, float("inf")
            return
        late, enough = now - self._late_since, max(LONGER_SECONDS, LONGER_TRIPS * self._shortest)
        if late > enough / 2:  # before, some may have gone the old way
            self._least_late = min(self._least_late, seconds)
        if late > enough:
            self._shortest, self._is_new = self._least_late, True
            self._late_since, self._least_late = now, float("inf")
            self._train.clear()
            self._jam.clear()

    def _grow(self, more: int, held: int, at_start: float) -> None:
        """at_start: the growth as long as it is not known what the link carries."""
        if held >= self._turned_at:  # a round trip is over
            self._turned_at = self._under_way_to(held)
            self._growth = min(2 * self._growth, GROWTH_MAX)
            self._shrunk = 0
            self._is_new = self._is_new or self.limit > SURPRISE_FACTOR * (self._settled + self.rate * QUEUE_SECONDS)
        growth = at_start if self._is_new else self._growth
        self.limit = min(self.limit + int(growth * more), WINDOW_BYTES_MAX)

    def _settle(self, rate: float, held: int) -> None:
        """The link carries that much: no more is sent, and the window grows slowly from now on."""
        self._rates.clear()
        self._rates.append(rate)
        self.limit = self._settled = self._fitting()
        self._is_new, self._growth = False, self._least_growth()
        self._turned_at = self._shrunk_at = self._under_way_to(held)
        self._jam.clear()

    def _shrink(self, held: int) -> None:
        """Shrinks the window, once for everything that is in flight."""
        before, is_new, shrunk = self.limit, self._is_new, self._shrunk
        self._settle(max(self._jam.rate, self._last_rate), held)
        smaller = max(int(before * SHRINK), WINDOW_BYTES_MIN)
        if is_new:
            self.limit = max(self.limit, smaller)
        else:
            self.limit = min(self.limit, smaller if shrunk >= PATIENCE else before)
            self._shrunk = shrunk + 1
        self._settled = self.limit

    @property
    def _last_rate(self) -> float:
        """What has arrived in the last round trip, if that is long enough to say something."""
        return self._rates[-1] if self._rates and self._shortest > JAM_SECONDS else 0.0

    def _least_growth(self) -> float:
        """A growth that adds hardly any wait in a round trip."""
        if self._shortest == float("inf"):
            return self._growth  # nothing was learned since
        return min(GROWTH, EMPTY_SECONDS / self._shortest) if self._shortest else GROWTH

    def _under_way_to(self, held: int) -> int:
        return self._sent[-1][1] if self._sent else held

    def _measure(self, held: int, now: float) -> None:
        """Measures the rate, over at least the round trip of a chunk."""
        seconds = now - self._counted_at
        if seconds >= max(CHUNK_SECONDS, self._shortest):
            self._rates.append((held - self._counted) / seconds)
            self._counted, self._counted_at = held, now

    def _pace(self) -> float:
        """The rate at which to send, in bytes per second; 0 if nothing is known."""
        is_known = 0 < self._shortest < float("inf")
        return self.limit / self._shortest if is_known else self.rate

    def _fitting(self) -> int:
        """The window with which the link is full, but its queues are not."""
        if not self.rate or self._shortest == float("inf"):
            return self.limit  # nothing was learned since
        return max(WINDOW_BYTES_MIN, min(int(self.rate * (self._shortest + QUEUE_SECONDS / 2)), WINDOW_BYTES_MAX))


class Sending:
    """A content that is sent to one receiver. position: of the next byte to send. held: before this byte the receiver
    has everything, by its word. taken: how many bytes it took of those that were sent. send_at: when more may be sent
    even if no credit comes. window: of the link to it."""

    def __init__(self, content: Content, window: Window | None = None) -> None:
        self.content = content
        self.key = key_of(content.digest)
        self.position = content.size
        """Nothing is sent before it is accepted."""
        self.held = self.taken = 0
        self.send_at = float("inf")
        self._total = 0
        self._furthest = 0
        """The end of everything that was ever sent. Bytes that were in flight when they were asked for again may still
        arrive."""
        self.window = Window(window)

    @property
    def is_done(self) -> bool:
        return self.held == self.content.size

    @property
    def is_unasked(self) -> bool:
        """Was it never asked for?"""
        return not self.held and not self._furthest and self.position == self.content.size

    def accept(self, start: int, now: float) -> None:
        """The receiver has everything before `start`, and wants the rest. Raises PeerError if there are not that many
        bytes."""
        if start > self.content.size:
            raise PeerError(f"asked to go on at byte {start:,} of {self.content.size:,}", reason="limit")
        if self._total > SENT_FACTOR * self.content.size + SENT_BYTES_SPARE:
            return
        self.position = self.held = start
        self._furthest = max(self._furthest, start)
        self.window.restart(start, now)

    def pause(self) -> None:
        """Sends nothing until the content is accepted again."""
        self.position, self.send_at = self.content.size, float("inf")

    def credit(self, held: int, now: float) -> bool:
        """The receiver has everything before `held`. Returns whether that is new. Credit for bytes that were not sent
        is ignored: it may belong to an earlier offer of the same content."""
        if not self.held < held <= self._furthest:
            return False
        self.taken += held - self.held
        self.held = held
        self.position = max(self.position, held)
        self.window.arrived(held, now)
        return True

    def chunks(self, now: float) -> Iterator[Chunk]:
        """What may be sent now."""
        self.send_at = float("inf")
        size = self.content.size
        while self.position < size:
            count = min(self.window.chunk_bytes, size - self.position)
            under_way = self.position - self.held
            if under_way and under_way + count > self.window.limit:
                return
            if now < self.window.send_at:
                self.send_at = self.window.send_at
                return
            yield Chunk(self.key, self.position, self.content.read(self.position, count))
            self.position += count
            self._total += count
            self._furthest = max(self._furthest, self.position)
            self.window.sent(count, self.position, now)


class Receiving:
    """A content that is received. ask_at: when to ask for it again if nothing comes."""

    def __init__(self, digest: bytes, size: int, sink: Sink, now: float) -> None:
        self.digest = digest
        self.key = key_of(digest)
        self.size = size
        self.sink = sink
        self.held = min(sink.held, size)
        self._asked_for = -1
        self.ask(now)

    @property
    def is_whole(self) -> bool:
        return self.held == self.size

    def ask(self, now: float) -> None:
        """Notes that the rest of the content is asked for now."""
        self._began_at, self._began_with = now, self.held
        self.ask_at = now + RETRY_SECONDS

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
            return False
        self.held = end
        self.ask_at = now + RETRY_SECONDS
        return True

    def must_ask_again(self, chunk: Chunk) -> bool:
        """Is something missing before this chunk? True only once for each hole, because all chunks in flight after the
        hole show it, too."""
        is_new = chunk.offset > self.held and self._asked_for != self.held
        if is_new:
            self._asked_for = self.held
        return is_new

    def throughput(self, now: float) -> float | None:
        """Bytes per second since it was asked for; None if that took no time that can be measured."""
        seconds = now - self._began_at
        return (self.held - self._began_with) / seconds if seconds > 0 else None
