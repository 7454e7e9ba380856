"""What waits to be sent on one link: one structure with one promise.

Promise: memory stays bounded, control messages are never dropped, and everything else leaves in the order in which it
came. A peer that reads slower than the swarm speaks loses the *oldest waiting updates*; repair (digest and pull) brings
them later, in bulk. Order is kept between updates and digests because a digest that overtook updates would look like a
difference and start a pull for what is on its way anyway. Only the transport's own frames and pings overtake: they
measure and steer the link, and must not wait behind the load that they are about. They overtake one at a time, since a
fast pull asks for more after every frame and would keep everything else waiting.

Updates that wait are merged when they are taken: a busy stream gets larger batches, not more frames.
"""

from collections import deque

from seedflood.protocol.messages import (
    Bundle,
    ClosedEpoch,
    Hello,
    Message,
    Ping,
    Pong,
    Standing,
    Updates,
    count_updates,
)
from seedflood.transport.codec import EpochPart, LinkMessage, Pull, PullEnd, PullMore, PullPart
from seedflood.transport.columns import FRAME_BUNDLES_MAX

QUEUE_BUNDLES_MAX = 65_536
"""Half a megabyte of references per link (bundles are shared between links), or 6 MB on the wire."""

CONTROL_MAX = 4096
"""A peer that lets this many control messages wait does not read at all: the link is given up."""


class SendQueue:
    """Messages in, batches out. `dropped` counts updates that gave way."""

    def __init__(self, bundles_max: int = QUEUE_BUNDLES_MAX) -> None:
        self._bundles_max = bundles_max
        self._urgent: deque[LinkMessage] = deque()
        self._waiting: deque[deque[Bundle] | Message] = deque()
        """Between two messages all bundles are one run."""
        self._bundles = 0
        self._runs = 0
        self._is_turn_of_waiting = False
        self.dropped = 0

    @property
    def is_stuck(self) -> bool:
        return len(self._urgent) + len(self._waiting) - self._runs > CONTROL_MAX

    def put(self, message: LinkMessage) -> None:
        match message:
            case Updates(bundles):
                last = self._waiting[-1] if self._waiting else None
                if isinstance(last, deque):
                    last.extend(bundles)
                elif bundles:
                    self._waiting.append(deque(bundles))
                    self._runs += 1
                self._bundles += len(bundles)
                if self._bundles > self._bundles_max:
                    self._drop(self._bundles - self._bundles_max)
            case Hello() | Ping() | Pong() | Pull() | PullMore():
                self._urgent.append(message)
            case PullPart() | PullEnd() | ClosedEpoch() | EpochPart() | Standing():
                raise AssertionError("answers do not wait here: the link makes them when there is room")
            case _:
                self._waiting.append(message)

    def take(self) -> LinkMessage | None:
        """The next message to send; consecutive updates come as one batch. None: nothing waits."""
        if self._urgent and not (self._is_turn_of_waiting and self._waiting):
            self._is_turn_of_waiting = True
            return self._urgent.popleft()
        self._is_turn_of_waiting = False
        if not self._waiting:
            return None
        head = self._waiting[0]
        if isinstance(head, deque):
            return Updates(self._take_bundles(head, FRAME_BUNDLES_MAX))
        self._waiting.popleft()
        return head

    def _take_bundles(self, run: deque[Bundle], count: int) -> tuple[Bundle, ...]:
        """The first ones of the first run."""
        if len(run) <= count:
            self._waiting.remove(run)
            self._runs -= 1
            taken = tuple(run)
        else:
            taken = tuple([run.popleft() for _ in range(count)])
        self._bundles -= len(taken)
        return taken

    def _drop(self, excess: int) -> None:
        while excess:
            run = next(one for one in self._waiting if isinstance(one, deque))
            passed = self._take_bundles(run, excess)
            self.dropped += count_updates(passed)
            excess -= len(passed)
