"""The seam between a swarm and what it trains by."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from seedflood.protocol.frontier import Held
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.messages import AlgorithmMessage, Hello, Member
from seedflood.protocol.view import Blocker, View


class Algorithm(Protocol):
    """One way of training, as a pure state machine that a `Swarm` calls.

    It decides by what it is told and by what the swarm knows; what it wants done goes to the outbox that both share. No
    method blocks, performs anything or asks for the time. One that raises `PeerError` has changed nothing but counters.
    """

    # What the swarm says of us

    @property
    def has_spoken(self) -> bool:
        """Has this node said in this life from which step on it takes part?"""

    @property
    def is_forgetful(self) -> bool:
        """Is it unknown what earlier lives of this node said?"""

    def hear_of_past(self, member: Member) -> None:
        """The network knows this statement of an earlier life."""

    def state(self) -> bytes:
        """What our next membership statement says beside (`Member.algorithm`)."""

    def held(self) -> tuple[Held, ...]:
        """What is held here, for the first message on a new link."""

    # What operators are shown

    @property
    def phase(self) -> str:
        """Where in its life this node is, in a word or two."""

    @property
    def step(self) -> int:
        """How far it is, of the steps of the run."""

    @property
    def is_ready(self) -> bool:
        """Does it take part as others expect it to?"""

    @property
    def is_doubted(self) -> bool:
        """Was what it holds seen to be wrong, and not seen to be right since?"""

    def blockers(self, now: float) -> tuple[Blocker, ...]:
        """Why it does not move: for whom it waits, since when, and which step lacks; nothing if it waits for nobody."""

    def describe(self, view: View) -> View:
        """Adds what only it knows to what the swarm knows."""

    # What happened

    def recall(self, records: Mapping[bytes, bytes], now: float) -> None:
        """What the journal keeps of it, by key. The members that the journal knows are believed already."""

    def leave(self) -> None:
        """The operator wants us to go: says so, so that nobody waits for us."""

    def connected(self, peer: OriginId, hello: Hello, now: float) -> None:
        """A link is up; what the hello says of members is known already."""

    def disconnected(self, peer: OriginId) -> None: ...

    def received(self, peer: OriginId, message: AlgorithmMessage, now: float) -> None:
        """Raises PeerError, having used nothing, if the message is not allowed."""

    def answered(self, peer: OriginId, sent_at: float) -> None:
        """The peer has answered a ping that was sent then: it has heard all that was said to it before."""

    # What is due

    def advance(self, now: float) -> None:
        """Takes every transition that is due. Called after whatever happened."""

    def compare(self, now: float) -> None:
        """Once per comparison period: tells the neighbours what is held here."""

    def review(self, now: float) -> None:
        """Right after that, when pings are on their way."""

    def report(self, now: float) -> None:
        """At the end of that: logs why nothing moves, if nothing does."""

    def wake_at(self, now: float) -> float:
        """When time alone makes something due; infinite if only news can."""

    def queued(self, peer: OriginId) -> Iterable[AlgorithmMessage]:
        """Takes what is to be flooded to this neighbour."""
