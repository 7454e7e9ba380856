"""The seam between a swarm and what it trains by."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import AlgorithmMessage, Hello, Member
from seedflood.protocol.view import Blocker, View


class Algorithm(ABC):
    """One way of training, as a pure state machine that a `Swarm` calls.

    It decides by the events that it is given and by what the swarm knows (`Presence`). What it wants done goes to the
    outbox that both share (`Outbox`). It begins with `recall`, and ends with `Outbox.finish`. No method blocks, does
    input or output, or reads a clock. A method that raises `PeerError` has changed nothing but counters.

    What is not abstract here suits an algorithm that keeps nothing, orders nothing and waits for nobody.
    """

    # What the swarm says of us

    @property
    @abstractmethod
    def has_spoken(self) -> bool:
        """Has this node published in this life, or may it? Then it ends when a newer process has its key; until then it
        takes that statement for one of its past. SeedFlood: it has stated from which step on it takes part."""

    @property
    def is_amnesic(self) -> bool:
        """Is it unknown what earlier lives of this node published?"""
        return False

    def learn_of_past(self, member: Member) -> None:
        """The network knows this statement, which an earlier life of this node made."""

    def state(self) -> bytes:
        """The algorithm's part of our next membership statement (`Member.algorithm`): ALGORITHM_BYTES_MAX bytes at
        most."""
        return b""

    def held(self) -> tuple[Held, ...]:
        """What is held here, for the first message on a new link."""
        return ()

    # What operators are shown

    @property
    @abstractmethod
    def phase(self) -> str:
        """Where in its life this node is, in a word or two."""

    @property
    @abstractmethod
    def step(self) -> int:
        """How far it is, of the steps of the run."""

    @property
    @abstractmethod
    def is_ready(self) -> bool:
        """Does it take part as others expect it to?"""

    @property
    def is_doubted(self) -> bool:
        """Is what it holds in doubt: seen to differ from what others hold, and not seen to be right since?"""
        return False

    def blockers(self, now: float) -> tuple[Blocker, ...]:
        """Why this node does not move: for whom it waits, since when, and which step is missing. Empty if it waits for
        nobody."""
        return ()

    def describe(self, view: View) -> View:
        """Adds what only it knows to what the swarm knows."""
        return view

    # What happened

    def recall(self, records: Mapping[bytes, bytes], now: float) -> None:
        """Called first. records: what the journal keeps of it, by key. The members that the journal knows are believed
        already. It must state something (`Presence.declare`): no host can link before."""

    def leave(self) -> None:
        """The operator wants us to go: says so (`Presence.leave`), so that nobody waits for us."""

    def connected(self, peer: OriginId, hello: Hello, now: float) -> None:
        """A link is up. The members that the hello names are known already."""

    def disconnected(self, peer: OriginId) -> None: ...

    @abstractmethod
    def received(self, peer: OriginId, message: AlgorithmMessage, now: float) -> None:
        """Raises PeerError, having used nothing, if the message is not allowed."""

    def answered(self, peer: OriginId, sent_at: float) -> None:
        """The peer has answered a ping that was sent then: it has received all that was sent to it before."""

    def answer(self, answer: Any, now: float) -> None:
        """What it wanted done is done; of an algorithm that orders nothing, never called."""

    # What is due

    def advance(self, now: float) -> None:
        """Takes every transition that is due. Called after whatever happened."""

    def compare(self, now: float) -> None:
        """Once per comparison period: sends the neighbours what is held here."""

    def report(self, now: float) -> None:
        """Called after `compare`, when the pings are sent: looks for faults, and logs why nothing moves, if nothing
        does."""

    def wake_at(self, now: float) -> float:
        """The moment at which time alone makes something due; infinite if only news can."""
        return math.inf

    gather_seconds = 0.0
    """How long statements of others, and what is gathered for neighbours (`Neighbours.gather`), may wait at most, so
    that many are passed on together."""

    def queued(self, peer: OriginId, *, is_passing: bool) -> Iterable[AlgorithmMessage]:
        """Takes the messages that are to be flooded to this neighbour. is_passing: also what was gathered for it."""
        return ()
