import heapq
import random
from itertools import count

import pytest
from gossip import Bytes, Memory
from hypothesis import given, settings
from hypothesis import strategies as st

from seedflood.errors import DiskFullError, PeerError
from seedflood.protocol.gasloc.messages import CHUNK_BYTES_MAX, Chunk
from seedflood.protocol.gasloc.transfer import RETRY_SECONDS, Receiving, Sending, key_of

HEAD_BYTES = 60


class Host:
    """Now and then it does nothing for a while: others have the processor. Then it does everything that has come.

    every: seconds between two such times on average; 0: it never stands still. longest: of them."""

    def __init__(self, every, longest, rng):
        self._every, self._longest, self._rng = every, longest, rng
        self._stands, self._goes_on = (rng.expovariate(1 / every), 0.0) if every else (float("inf"), 0.0)

    def free_at(self, when):
        """When what comes then is done. Called in the order of time."""
        while self._stands <= when:
            self._goes_on = self._stands + self._rng.uniform(0, self._longest)
            self._stands = self._goes_on + self._rng.expovariate(1 / self._every)
        return max(when, self._goes_on)


class Pipe:
    """A link of some rate and delay, with a queue before it; and both ends of one transfer.

    stalls: how often and how long either host stands still (`Host`)."""

    def __init__(self, size, *, rate, delay, lose=0.0, seed=0, window=None, stalls=(0.0, 0.0)):
        self.content = Bytes(random.Random(seed).randbytes(size))
        self.rate, self.delay, self.lose, self.rng = rate, delay, lose, random.Random(seed)
        self.now, self._free_at, self._events, self._order = 0.0, 0.0, [], count()
        self.longest_queue, self.longest_chunk, self.chunks = 0.0, 0, 0
        self.sender, self.receiver = (Host(*stalls, random.Random(seed + number)) for number in (1, 2))
        self._woken_at = 0.0
        self.sending = Sending(self.content, window)
        self.sink = Memory()
        self.receiving = Receiving(self.content.digest, size, self.sink, 0.0)
        self.on_credit = lambda: None

    def _at(self, when, action):
        heapq.heappush(self._events, (when, next(self._order), action))

    def send(self):
        for chunk in self.sending.chunks(self.now):
            self.longest_queue = max(self.longest_queue, self._free_at - self.now)
            self.longest_chunk = max(self.longest_chunk, len(chunk.data))
            self.chunks += 1
            self._free_at = max(self._free_at, self.now) + (len(chunk.data) + HEAD_BYTES) / self.rate
            if self.rng.random() >= self.lose:
                copy = Chunk(chunk.key, chunk.offset, bytes(chunk.data))
                arrived = self._free_at + self.delay
                self._at(
                    arrived, lambda copy=copy: self._at(self.receiver.free_at(self.now), lambda: self.receive(copy))
                )

    def receive(self, chunk):
        if self.receiving.take(chunk, self.now):
            held = self.receiving.held
            self._at(self.now + self.delay, lambda: self._at(self.sender.free_at(self.now), lambda: self.credit(held)))
        elif self.receiving.must_ask_again(chunk):
            self.ask()

    def ask(self):
        self.receiving.ask(self.now)
        held, now = self.receiving.held, self.now
        self._at(now + self.delay, lambda: (self.sending.accept(held, self.now), self.send()))

    def credit(self, held):
        self.sending.credit(held, self.now)
        self.send()
        self.on_credit()

    def run(self, until=1e9):
        self.ask()
        while self.now < until and not self.receiving.is_whole:
            due = min(self.receiving.ask_at, self.sending.send_at)
            if self._events and self._events[0][0] <= due:
                self.now, _, action = heapq.heappop(self._events)
                action()
            elif due == self.receiving.ask_at:
                self.now = due
                self.ask()
            elif due > self._woken_at:
                self.now = due
                self._woken_at = self.sender.free_at(due)
                self._at(self._woken_at, self.send)
            else:
                self.now, _, action = heapq.heappop(self._events)
                action()
        return self.now


LINKS = {
    "1 Mbit/s": (1e5, 0.005, 0.95),
    "100 Mbit/s near": (12.5e6, 0.001, 0.95),
    "100 Mbit/s far": (12.5e6, 0.02, 0.85),
    "100 Mbit/s very far": (12.5e6, 0.2, 0.6),
    "1 Gbit/s near": (125e6, 0.0005, 0.95),
    "1 Gbit/s far": (125e6, 0.01, 0.7),
}
"""Rate, delay of one way, and how much of the link is used at least, by four seconds of it with all that is unknown."""


@pytest.mark.parametrize("name", LINKS)
def test_a_transfer_uses_a_link_and_is_not_in_the_way_of_others(name):
    rate, delay, least = LINKS[name]
    size = int(min(max(1e6, rate * 4), 60e6))
    first = Pipe(size, rate=rate, delay=delay)
    seconds = first.run()
    assert bytes(first.sink.data) == first.content.data
    assert size / seconds / rate > least
    again = Pipe(size, rate=rate, delay=delay, window=first.sending.window)
    assert again.run() <= seconds * 1.05
    small_chunks = 16_384 / rate  # at first nothing is known, and this much is sent at once
    assert max(first.longest_queue, again.longest_queue) < 0.02 + 2 * small_chunks + delay / 10


STALLS = {
    "100 Mbit/s near": 0.6,
    "100 Mbit/s far": 0.55,
    "100 Mbit/s very far": 0.4,
    "1 Gbit/s far": 0.4,
}
"""How much of a link is used at least by hosts that stand still for a sixth to a quarter of the time."""


@pytest.mark.parametrize("stalls", [(0.05, 0.03), (0.2, 0.09)], ids=["often", "long"])
@pytest.mark.parametrize("name", STALLS)
def test_hosts_that_stand_still_now_and_then_do_not_look_like_a_queue(name, stalls):
    """On a far link they once left 0.003 of it: each time the window became what had arrived meanwhile."""
    rate, delay, _ = LINKS[name]
    size = int(min(rate * 4, 60e6))
    pipe = Pipe(size, rate=rate, delay=delay, stalls=stalls)
    seconds = pipe.run(until=60)
    assert pipe.receiving.is_whole
    assert size / seconds / rate > STALLS[name]
    assert pipe.longest_queue < 0.1 + delay / 2


def test_a_link_that_became_faster_is_soon_full():
    """What was known of it is no limit for long, though the window grows by a fifth in each round trip."""
    known = Pipe(2_000_000, rate=0.3e6, delay=0.2)
    known.run()
    faster = Pipe(50_000_000, rate=12.5e6, delay=0.2, window=known.sending.window)
    assert 50_000_000 / faster.run() / 12.5e6 > 0.5
    assert faster.longest_queue < 0.05


@pytest.mark.parametrize("delay", [0.001, 0.02, 0.2])
def test_a_way_that_becomes_longer_does_not_look_like_a_queue_for_ever(delay):
    """Else the window would shrink until nothing is left of it."""
    pipe = Pipe(60_000_000, rate=12.5e6, delay=delay)

    def lengthen():
        if pipe.now > 3:
            pipe.delay = delay + 0.02

    pipe.on_credit = lengthen
    assert pipe.run(until=30) < 10


def test_a_link_that_became_slower_is_full_and_no_more():
    """What was known of it is too much: that waits for one round trip, and no longer."""
    known = Pipe(20_000_000, rate=12.5e6, delay=0.02)
    known.run()
    slower = Pipe(12_500_000, rate=6.25e6, delay=0.02, window=known.sending.window)
    queues = []
    slower.on_credit = lambda: queues.append((slower.now, slower._free_at - slower.now))
    seconds = slower.run()
    assert 12_500_000 / seconds / 6.25e6 > 0.9
    assert max(queue for now, queue in queues if now > 0.3) < 0.025


def test_a_window_on_a_far_link_leaves_evenly():
    """It is far more than may wait in a queue."""
    pipe = Pipe(40_000_000, rate=12.5e6, delay=0.2)
    pipe.run()
    window = pipe.sending.window
    assert window.limit > 3_000_000
    sending = Sending(pipe.content, window)
    sending.accept(0, 0.0)
    first = sum(len(chunk.data) for chunk in sending.chunks(0.0))
    assert first < 200_000
    assert 0.0 < sending.send_at < 0.02
    assert list(sending.chunks(sending.send_at / 2)) == []
    assert list(sending.chunks(sending.send_at))


def test_nothing_is_due_of_a_transfer_that_waits_for_credit_or_for_a_link():
    sending = Sending(Bytes(bytes(1_000_000)))
    assert sending.send_at == float("inf")
    sending.accept(0, 0.0)
    list(sending.chunks(0.0))
    assert sending.send_at == float("inf")
    sending.pause()
    assert sending.send_at == float("inf")


@settings(max_examples=40)
@given(
    size=st.integers(1, 400_000),
    rate=st.sampled_from([1e5, 1e6, 1e8]),
    delay=st.floats(0.0001, 0.1),
    lose=st.sampled_from([0.0, 0.01, 0.1, 0.3]),
    seed=st.integers(0, 2**32),
)
def test_everything_arrives_though_chunks_are_lost(size, rate, delay, lose, seed):
    pipe = Pipe(size, rate=rate, delay=delay, lose=lose, seed=seed)
    pipe.run()
    assert bytes(pipe.sink.data) == pipe.content.data


@given(size=st.integers(1, 300_000), breaks=st.lists(st.floats(0.001, 0.2), max_size=4))
@settings(max_examples=40)
def test_a_transfer_goes_on_where_the_link_broke(size, breaks):
    pipe = Pipe(size, rate=1e6, delay=0.005)
    for seconds in breaks:
        pipe.run(until=pipe.now + seconds)
        pipe._events.clear()  # what is under way is lost
        pipe._free_at = pipe.now
        pipe.sending.pause()
    begun_with = pipe.receiving.held
    pipe.run()
    assert bytes(pipe.sink.data) == pipe.content.data
    assert pipe.receiving.held >= begun_with


def test_nothing_is_sent_before_it_is_accepted():
    assert list(Sending(Bytes(bytes(100_000))).chunks(0.0)) == []


def test_a_sender_waits_for_credit():
    sending = Sending(Bytes(bytes(10_000_000)))
    sending.accept(0, 0.0)
    first = list(sending.chunks(0.0))
    assert 0 < sum(len(chunk.data) for chunk in first) < 200_000
    assert list(sending.chunks(1.0)) == []
    sending.credit(len(first[0].data), 0.1)
    assert list(sending.chunks(0.1))


def test_credit_for_what_was_not_sent_counts_for_nothing():
    sending = Sending(Bytes(bytes(1000)))
    assert not sending.credit(1, 0.0)
    assert sending.held == 0
    with pytest.raises(PeerError, match="byte 1,001"):
        sending.accept(1001, 0.0)


def test_credit_for_what_was_sent_before_it_was_asked_for_again_counts():
    """The receiver asked again, and then what was under way arrived after all."""
    sending = Sending(Bytes(bytes(90_000)))
    sending.accept(0, 0.0)
    list(sending.chunks(0.0))
    sent = sending.position
    sending.accept(0, 3.0)
    sending.credit(sent, 3.0)
    assert next(sending.chunks(3.0)).offset == sent


def test_whoever_asks_for_the_same_again_and_again_gets_no_more():
    sending = Sending(Bytes(bytes(100_000)))
    total = 0
    for turn in range(2000):
        sending.accept(0, float(turn))
        total += sum(len(chunk.data) for chunk in sending.chunks(float(turn)))
    assert total < 18_000_000


def make_receiving(size=1000):
    sink = Memory()
    return Receiving(bytes(32), size, sink, 0.0), sink


def test_a_chunk_that_came_twice_is_passed_over():
    receiving, sink = make_receiving()
    assert receiving.take(Chunk(bytes(8), 0, b"abc"), 0.0)
    assert not receiving.take(Chunk(bytes(8), 0, b"abc"), 0.0)
    assert not receiving.must_ask_again(Chunk(bytes(8), 0, b"abc"))
    assert bytes(sink.data) == b"abc"


def test_a_hole_is_asked_for_once():
    receiving, sink = make_receiving()
    late = [Chunk(bytes(8), offset, b"abc") for offset in (3, 6, 9)]
    assert not any(receiving.take(chunk, 0.0) for chunk in late)
    assert [receiving.must_ask_again(chunk) for chunk in late] == [True, False, False]
    assert sink.held == 0


def test_a_chunk_beyond_the_end_is_refused():
    receiving, sink = make_receiving(5)
    with pytest.raises(PeerError, match="beyond"):
        receiving.take(Chunk(bytes(8), 3, b"abc"), 0.0)
    assert sink.held == 0


def test_what_an_earlier_life_received_is_not_asked_for_again():
    sink = Memory()
    sink.write(b"abc")
    receiving = Receiving(bytes(32), 5, sink, 0.0)
    assert receiving.held == 3
    assert receiving.take(Chunk(bytes(8), 3, b"de"), 1.0)
    assert receiving.is_whole


def test_a_chunk_for_which_the_disk_has_no_space_is_asked_for_again():
    class Full(Memory):
        is_full = True

        def write(self, data):
            if self.is_full:
                raise DiskFullError("no space")
            super().write(data)

    sink = Full()
    receiving = Receiving(bytes(32), 100, sink, 0.0)
    chunk = Chunk(key_of(bytes(32)), 0, bytes(100))
    assert not receiving.take(chunk, 1.0)
    assert (receiving.held, receiving.ask_at) == (0, RETRY_SECONDS)
    sink.is_full = False
    assert receiving.take(chunk, RETRY_SECONDS)
    assert receiving.is_whole


def test_a_receiver_that_hears_nothing_asks_again():
    receiving, _ = make_receiving()
    receiving.take(Chunk(bytes(8), 0, b"abc"), 7.0)
    assert receiving.ask_at == 7.0 + RETRY_SECONDS


def test_throughput_counts_since_it_was_asked_for():
    receiving, _ = make_receiving()
    receiving.take(Chunk(bytes(8), 0, bytes(400)), 1.0)
    receiving.ask(2.0)
    receiving.take(Chunk(bytes(8), 400, bytes(600)), 4.0)
    assert receiving.throughput(4.0) == 300.0
    assert receiving.throughput(2.0) is None


def test_chunks_of_fast_links_are_large_and_of_slow_ones_small():
    fast, slow = Pipe(20_000_000, rate=1e9, delay=0.0001), Pipe(300_000, rate=5e4, delay=0.0001)
    fast.run()
    slow.run()
    assert fast.longest_chunk == CHUNK_BYTES_MAX
    assert slow.chunks >= 300_000 / 33_000


def test_a_key_is_the_beginning_of_a_digest():
    assert key_of(bytes(range(32))) == bytes(range(8))
