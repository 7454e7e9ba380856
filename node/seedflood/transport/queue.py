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

from seedflood.protocol.messages import Bundle, ClosedEpoch, Hello, Message, Ping, Pong, Standing, Updates
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
        self._waiting: deque[Bundle | Message] = deque()
        self._bundles = 0
        self._is_turn_of_waiting = False
        self.dropped = 0

    @property
    def is_stuck(self) -> bool:
        return len(self._urgent) + len(self._waiting) - self._bundles > CONTROL_MAX

    def put(self, message: LinkMessage) -> None:
        match message:
            case Updates(bundles):
                self._waiting.extend(bundles)
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
        batch: list[Bundle] = []
        while self._waiting and len(batch) < FRAME_BUNDLES_MAX:
            head = self._waiting[0]
            if not isinstance(head, Bundle):
                break
            batch.append(head)
            self._waiting.popleft()
        if batch:
            self._bundles -= len(batch)
            return Updates(tuple(batch))
        message = self._waiting.popleft()
        assert not isinstance(message, Bundle)
        return message

    def _drop(self, excess: int) -> None:
        passed: list[Bundle | Message] = []
        while excess:
            head = self._waiting.popleft()
            if isinstance(head, Bundle):
                self.dropped += len(head.probes)
                self._bundles -= 1
                excess -= 1
            else:
                passed.append(head)
        self._waiting.extendleft(reversed(passed))
