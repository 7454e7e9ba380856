"""Two carriers and a long line between them, under a virtual clock: whatever is due is done when they say so."""

import heapq
import random
from itertools import count

from gossip import Bytes, Memories

from seedflood.protocol.gasloc.carrier import Carrier
from seedflood.protocol.gasloc.messages import Accept, Chunk, Credit, decode
from seedflood.protocol.gasloc.outbox import Outbox
from seedflood.protocol.swarm.neighbours import Neighbours

ONE, OTHER = 1, 2
RATE, DELAY = 12.5e6, 0.2


class End:
    def __init__(self, peer):
        neighbours, self.peer, self.outbox, self.whole = Neighbours(), peer, Outbox(), []
        neighbours.connect(peer, 1)
        self.carrier = Carrier(neighbours, Memories(1 << 40), self.outbox)

    def hear(self, saying, now):
        match saying:
            case Accept():
                self.carrier.accepted(self.peer, saying, now)
            case Credit():
                self.carrier.credited(self.peer, saying, now)
            case Chunk():
                receiving = self.carrier.take(self.peer, saying, now)
                if receiving is not None:
                    self.whole.append(bytes(receiving.sink.data))


class Line:
    """now: of both. bursts: how many bytes left at each instant."""

    def __init__(self):
        self.ends = {ONE: End(OTHER), OTHER: End(ONE)}
        self.now, self.bursts = 0.0, {}
        self._events, self._order = [], count()
        self._free_at = dict.fromkeys(self.ends, 0.0)

    def collect(self):
        for origin, end in self.ends.items():
            for peer, message in end.outbox.take().send:
                size = len(message.data)
                self._free_at[origin] = max(self._free_at[origin], self.now) + size / RATE
                self.bursts[self.now] = self.bursts.get(self.now, 0) + size
                event = (self._free_at[origin] + DELAY, next(self._order), peer, decode(message.data))
                heapq.heappush(self._events, event)

    def run(self, until):
        self.collect()
        while not until():
            wake_at = min(end.carrier.wake_at() for end in self.ends.values())
            if self._events and self._events[0][0] <= wake_at:
                self.now, _, peer, saying = heapq.heappop(self._events)
                self.ends[peer].hear(saying, self.now)
            else:
                self.now = wake_at
                for end in self.ends.values():
                    end.carrier.advance(self.now)
            self.collect()

    def move(self, content):
        """Seconds until it is at the other end."""
        one, other, began = self.ends[ONE], self.ends[OTHER], self.now
        one.carrier.offer(OTHER, content)
        other.carrier.accept(ONE, content.digest, content.size, self.now)
        self.run(lambda: other.whole)
        assert other.whole.pop() == content.data
        other.carrier.forget(ONE, content.digest)
        one.carrier.withdraw(OTHER, content.digest)
        return self.now - began


def content_of(size, seed):
    return Bytes(random.Random(seed).randbytes(size))


def test_a_content_goes_over_a_far_link_evenly_and_the_next_one_at_its_full_rate():
    line = Line()
    first = line.move(content_of(30_000_000, 1))
    line.bursts.clear()
    second = line.move(content_of(30_000_000, 2))
    whole = 30_000_000 / RATE
    assert first < whole + 4.5
    assert second < whole + 1.0, "asking and the way there take 0.4 s of it"
    assert max(line.bursts.values()) < 200_000


def test_nothing_is_due_when_all_is_there():
    line = Line()
    line.move(content_of(3_000_000, 1))
    assert [end.carrier.wake_at() for end in line.ends.values()] == [float("inf")] * 2


def test_what_would_leave_later_does_not_after_a_break_before_it_is_asked_for_again():
    line = Line()
    line.move(content_of(30_000_000, 1))
    one, other, content = line.ends[ONE], line.ends[OTHER], content_of(30_000_000, 2)
    one.carrier.offer(OTHER, content)
    other.carrier.accept(ONE, content.digest, content.size, line.now)
    line.run(lambda: one.carrier.wake_at() < float("inf"))
    one.carrier.disconnected(OTHER)
    assert one.carrier.wake_at() == float("inf")
