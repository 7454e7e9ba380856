"""Two carriers, and between them a connection that takes one frame after the other and breaks when a test says so."""

import random
from collections import deque
from itertools import pairwise

from gossip import Bytes, Memories, Memory
from hypothesis import given
from hypothesis import strategies as st

from seedflood.errors import DiskFullError
from seedflood.protocol.gasloc.carrier import Carrier
from seedflood.protocol.gasloc.messages import Accept, Chunk, decode
from seedflood.protocol.gasloc.transfer import RETRY_SECONDS
from seedflood.protocol.swarm.neighbours import Neighbours
from seedflood.protocol.swarm.outputs import Outbox, Outputs

ONE, OTHER = 1, 2
UNDER_WAY = 5
"""How many frames are on the connection at most."""


class FullMemory(Memory):
    """A sink whose disk has space when the test says so."""

    is_full = False

    def write(self, data):
        if FullMemory.is_full:
            raise DiskFullError("full")
        super().write(data)


class FullMemories(Memories):
    def open(self, peer, digest, size):
        super().open(peer, digest, size)
        return FullMemory()


class End:
    def __init__(self, peer, chunk_bytes):
        self.neighbours, self.peer, self.outbox, self.whole = Neighbours(), peer, Outbox(Outputs), []
        self.neighbours.connect(peer, 1)
        self.carrier = Carrier(self.neighbours, FullMemories(1 << 40), self.outbox, chunk_bytes)

    def hear(self, frame, now):
        match decode(frame):
            case Accept() as accept:
                self.carrier.accepted(self.peer, accept)
            case Chunk() as chunk:
                receiving = self.carrier.take(self.peer, chunk, now)
                if receiving is not None:
                    self.whole.append(bytes(receiving.sink.data))


class Line:
    def __init__(self, chunk_bytes=100):
        self.ends = {ONE: End(OTHER, chunk_bytes), OTHER: End(ONE, chunk_bytes)}
        self.way = {ONE: deque(), OTHER: deque()}
        self.now, self.sent = 0.0, []

    @property
    def one(self):
        return self.ends[ONE]

    @property
    def other(self):
        return self.ends[OTHER]

    def step(self):
        """Takes what there is room for, then one frame arrives in each direction. False if nothing is under way."""
        for origin, end in self.ends.items():
            while len(self.way[origin]) < UNDER_WAY and (frame := end.carrier.next_frame(end.peer)) is not None:
                self.way[origin].append(frame)
                self.sent.append(decode(frame))
        for end in self.ends.values():
            if self.way[end.peer]:
                end.hear(self.way[end.peer].popleft(), self.now)
        return any(self.way.values()) or any(end.outbox.take().contents for end in self.ends.values())

    def run(self):
        while self.step():
            self.now += 0.01

    def breaks(self):
        """What is under way is lost, and there is a new connection."""
        for origin, end in self.ends.items():
            self.way[origin].clear()
            end.neighbours.disconnect(end.peer)
            end.carrier.disconnected(end.peer)
        for end in self.ends.values():
            end.neighbours.connect(end.peer, 1)
            end.carrier.connected(end.peer, self.now)

    def fetch(self, content):
        self.one.carrier.offer(OTHER, content)
        self.other.carrier.accept(ONE, content.digest, content.size, self.now)

    def chunks(self):
        return [one for one in self.sent if isinstance(one, Chunk)]


def content_of(size, seed=1):
    return Bytes(random.Random(seed).randbytes(size))


@given(
    st.integers(1, 5000),
    st.integers(1, 700),
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from(["break", "full", "space"])), max_size=8),
)
def test_a_content_arrives_whatever_breaks_or_is_full_and_little_of_it_twice(size, chunk_bytes, faults):
    line, content, broke = Line(chunk_bytes), content_of(size), 0
    FullMemory.is_full = False
    line.fetch(content)
    for steps, fault in faults:
        for _ in range(steps):
            line.step()
        if fault == "break":
            line.breaks()
        FullMemory.is_full = {"full": True, "space": False}.get(fault, FullMemory.is_full)
        broke += 1
    FullMemory.is_full = False
    line.run()
    line.now += RETRY_SECONDS
    line.other.carrier.advance(line.now)
    line.run()
    assert line.other.whole == [content.data]
    sent = sum(len(chunk.data) for chunk in line.chunks())
    assert sent <= size * (1 + broke)
    assert sent == line.one.carrier.bytes_sent
    assert sent == size or broke
    assert line.other.carrier.bytes_received == size


def test_a_transfer_that_nothing_breaks_is_asked_for_once_and_ends_with_a_word():
    line, content = Line(), content_of(1000)
    line.fetch(content)
    line.run()
    asked = [one for one in line.sent if isinstance(one, Accept)]
    assert asked == [Accept(content.digest, 0), Accept(content.digest, content.size)]
    assert line.one.carrier.offer(OTHER, content).is_done


def test_a_frame_is_made_only_when_the_connection_has_room_for_it():
    line = Line()
    line.fetch(content_of(100_000))
    for _ in range(20):
        line.step()
    assert sum(len(chunk.data) for chunk in line.chunks()) <= 100 * (20 + UNDER_WAY)


def test_several_contents_for_one_neighbour_take_turns():
    line = Line()
    contents = [content_of(1000, seed) for seed in (1, 2)]
    for content in contents:
        line.fetch(content)
    line.run()
    middle = [chunk.key for chunk in line.chunks()][6:14]
    assert all(before != after for before, after in pairwise(middle))
    assert sorted(line.other.whole) == sorted(content.data for content in contents)


def test_what_is_no_longer_wanted_is_not_sent_on():
    line, content = Line(), content_of(100_000)
    line.fetch(content)
    for _ in range(10):
        line.step()
    line.other.carrier.stop(ONE, content.digest)
    line.run()
    assert len(line.chunks()) < 10 + 3 * UNDER_WAY
    assert line.other.whole == []


def test_what_is_withdrawn_is_not_sent_on():
    line, content = Line(), content_of(100_000)
    line.fetch(content)
    line.step()
    line.step()
    line.one.carrier.withdraw(OTHER, content.digest)
    line.run()
    assert 0 < len(line.chunks()) <= 2 * UNDER_WAY


def test_nothing_is_due_by_itself():
    line = Line()
    line.fetch(content_of(3000))
    line.step()
    assert [end.carrier.wake_at() for end in line.ends.values()] == [float("inf")] * 2
