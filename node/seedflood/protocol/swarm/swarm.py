"""The swarm: one node among others, whatever they train by.

It knows who is there and who is linked, introduces hosts to each other, measures how far away they are, and passes
everything else on to the algorithm that it hosts. Tell it what happened, then collect what is to be done.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic

from seedflood.errors import PeerError
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.admission import MemberAdmission
from seedflood.protocol.swarm.algorithm import Algorithm
from seedflood.protocol.swarm.messages import AlgorithmMessage, Goodbye, Hello, Member, Members, Message, Ping, Pong
from seedflood.protocol.swarm.outbox import Outbox, Wanted
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.swarm.rules import Patience, SwarmRules
from seedflood.protocol.swarm.view import make_view
from seedflood.protocol.view import Blocker, View


class Swarm(Generic[Wanted]):
    """presence: who is there. admission: who is let in. algorithm: what the nodes of this run train by."""

    def __init__(
        self,
        rules: SwarmRules,
        presence: Presence,
        admission: MemberAdmission,
        algorithm: Algorithm,
        outbox: Outbox[Wanted],
        patience: Patience,
    ) -> None:
        self.origin = presence.ours.origin
        self.membership = presence.membership
        self.neighbours = presence.neighbours
        self._rules = rules
        self._presence = presence
        self.admission = admission
        self._algorithm = algorithm
        self._outbox = outbox
        self._patience = patience
        self._compare_at = 0.0
        presence.algorithm = algorithm

    @property
    def phase(self) -> str:
        """Where in its life this node is, in a word of its algorithm."""
        return self._algorithm.phase

    @property
    def step(self) -> int:
        """How far it is, of the steps of the run."""
        return self._algorithm.step

    @property
    def is_ready(self) -> bool:
        """Does it take part as others expect it to?"""
        return self._algorithm.is_ready

    @property
    def is_doubted(self) -> bool:
        """Is what it holds in doubt: seen to differ from what others hold, and not seen to be right since?"""
        return self._algorithm.is_doubted

    # What happened

    def recall(self, members: Iterable[Member], now: float, records: Mapping[bytes, bytes] | None = None) -> None:
        """What the journal knows of everyone, ourselves included. Called before anything else happens."""
        for member in members:
            self.membership.believe(member)
        self._compare_at = now
        self._algorithm.recall(records or {}, now)

    def leave(self, now: float) -> None:
        """The operator wants us to go: says so, so that nobody waits for us."""
        self._algorithm.leave()
        self._algorithm.advance(now)

    def connected(self, peer: OriginId, hello: Hello, now: float) -> None:
        """A link is up and both hellos were exchanged; `admission.check_hello` has accepted this one."""
        presence, told = self._presence, (hello.member, *hello.members)
        self.neighbours.connect(peer, hello.member.incarnation)
        presence.believe(told, peer)
        presence.declare_neighbours()
        self.neighbours.offer(peer, self.membership.newer_than(told))
        self._algorithm.connected(peer, hello, now)
        presence.ping(peer, now)
        self._outbox.tell("link up", peer=hello.member.name)
        self._algorithm.advance(now)

    def disconnected(self, peer: OriginId, now: float, reason: str = "") -> None:
        """The link to the peer is down. reason: for the log."""
        self.neighbours.disconnect(peer)
        self._presence.delays.forget(peer)
        self._algorithm.disconnected(peer)
        self._presence.declare_neighbours()
        self._outbox.tell("link down", peer=self.membership.name(peer), reason=reason)
        self._algorithm.advance(now)

    def received(self, peer: OriginId, message: Message, now: float) -> None:
        """Takes a message of a linked peer. Raises PeerError, having used nothing, if it is not allowed."""
        if peer not in self.neighbours:
            return  # the link went down meanwhile; whatever it said is compared again
        match message:
            case AlgorithmMessage():
                self._algorithm.received(peer, message, now)
            case Members(members):
                for member in members:
                    self.admission.check_member(member)
                self._presence.believe(members, peer)
            case Ping(sent_at):
                self._outbox.send(peer, Pong(sent_at))
            case Pong(sent_at):
                self._presence.delays.pong(peer, sent_at, now)
                self._algorithm.answered(peer, sent_at)
            case Goodbye():
                pass
            case Hello():
                raise PeerError("a second hello on one link", reason="order")
        self._algorithm.advance(now)

    def tick(self, now: float) -> None:
        """Time has passed; call it when `next_tick` says so. More often does no harm."""
        if now >= self._compare_at:
            self._compare_at = now + self._patience.repair_seconds
            self._algorithm.compare(now)
            for peer in self.neighbours:
                self._presence.ping(peer, now)
            self._algorithm.review(now)
            self._presence.look_around(now)
            self._algorithm.report(now)
        self._algorithm.advance(now)

    # What is to be done

    def collect(self) -> Wanted:
        """Takes what is to be done now."""
        out = self._outbox.take()
        out.send = [*self._flooding(), *out.send]
        return out

    def next_tick(self, now: float) -> float:
        """When `tick` is to be called at the latest."""
        return max(now, min(self._compare_at, self._algorithm.wake_at(now)))

    def hello(self) -> Hello:
        """What to say first on a new link."""
        rules = self._rules
        return Hello(rules.run_id, rules.base_digest, *self._presence.introduce(), frontier=self._algorithm.held())

    # What operators are shown

    def blockers(self, now: float) -> tuple[Blocker, ...]:
        """Why this node does not move: for whom it waits, since when, and which step is missing. Empty if it waits for
        nobody."""
        return self._algorithm.blockers(now)

    def view(self, now: float) -> View:
        """What an operator is shown."""
        return self._algorithm.describe(make_view(self, self._presence, self.admission.refused, now))

    def _flooding(self) -> Iterator[tuple[OriginId, Message]]:
        """What is queued for each neighbour: statements first, so that an origin's key precedes what it says."""
        for peer in self.neighbours:
            if (members := self.neighbours.take(peer)) is not None:
                yield peer, members
            for message in self._algorithm.queued(peer):
                yield peer, message
