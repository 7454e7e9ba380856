"""The swarm: one node among others, whatever they train by.

It knows who is there and who is linked, introduces hosts to each other, measures how far away they are, and passes
everything else on to the algorithm that it hosts. Report what happened, then collect what is to be done.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Generic, assert_never

from seedflood.errors import PeerError
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.access import stand_in
from seedflood.protocol.swarm.algorithm import Algorithm
from seedflood.protocol.swarm.messages import AlgorithmMessage, Goodbye, Hello, Member, Members, Message, Ping, Pong
from seedflood.protocol.swarm.outputs import Outbox, Wanted
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.swarm.roster import Roster
from seedflood.protocol.swarm.rules import Patience
from seedflood.protocol.swarm.view import make_view
from seedflood.protocol.view import Blocker, View


class Swarm(Generic[Wanted]):
    """presence: who is there. algorithm: what the nodes of this run train by. outbox: what all parts share."""

    def __init__(
        self,
        presence: Presence,
        algorithm: Algorithm,
        outbox: Outbox[Wanted],
        patience: Patience,
    ) -> None:
        self.origin = presence.ours.origin
        self.membership = presence.membership
        self.neighbours = presence.neighbours
        self._rules = presence.rules
        self._presence = presence
        self.admission = presence.admission
        self.access = self.admission.access
        self.access.ours = presence.ours.public_key
        self.access.refresh()
        self._contradictions_logged = 0
        self._dropped: set[OriginId] = set()
        """Neighbours whose links are to end; what still comes from them is dropped."""
        self._algorithm = algorithm
        self._outbox = outbox
        self._patience = patience
        self._compare_at = 0.0
        self._pass_at = math.inf
        """When neighbours are sent what was gathered for them; infinite if nothing was."""
        self._is_passing = False
        presence.algorithm = algorithm
        self._silence()

    # What its algorithm says of itself

    @property
    def phase(self) -> str:
        return self._algorithm.phase

    @property
    def step(self) -> int:
        return self._algorithm.step

    @property
    def is_ready(self) -> bool:
        return self._algorithm.is_ready

    @property
    def is_doubted(self) -> bool:
        return self._algorithm.is_doubted

    def blockers(self, now: float) -> tuple[Blocker, ...]:
        return self._algorithm.blockers(now)

    # Who has ended the run

    def is_everyone_gone(self) -> bool:
        """Have all clients come, and left again? One that left without having ended the run may come back, but nobody
        waits for it."""
        is_here = any(not word.has_left for word in self.membership.words())
        return self.membership.taking_part >= self._rules.clients and not is_here

    # What happened

    def recall(self, members: Iterable[Member], now: float, records: Mapping[bytes, bytes] | None = None) -> None:
        """What the journal knows of everyone, ourselves included. Called before anything else happens."""
        for member in members:
            self._remember(member)
        self._compare_at = now
        self._algorithm.recall(records or {}, now)

    def leave(self, now: float) -> None:
        """The operator wants us to go: says so, so that nobody waits for us."""
        self._algorithm.leave()
        self._advance(now)
        self._is_passing = True

    def connected(self, peer: OriginId, hello: Hello, now: float) -> None:
        """A link is up and both hellos were exchanged; `admission.check_hello` has accepted this one."""
        presence, statements = self._presence, (hello.member, *hello.members)
        self.neighbours.connect(peer, hello.member.incarnation)
        presence.believe(statements, peer)
        if self.access.refresh():  # the peer has looked at its clock, too, and does not name those whose time is over
            self._enforce()
        self.neighbours.offer(peer, self.membership.newer_than(statements))
        if self.access.roster is not None and hello.roster != self.access.roster:  # it may have come after our hello
            self._outbox.send(peer, self.access.roster)
        self._algorithm.connected(peer, hello, now)
        presence.ping(peer, now)
        self._outbox.log("link up", peer=hello.member.name)
        self._advance(now)

    def enrol(self, roster: Roster, now: float, source: OriginId | None = None) -> None:
        """Somebody sent us this roster, or the operator has put it here (source None). If it is news, it counts from
        now on: neighbours get it, and who is no longer on it loses its link. Raises PeerError if it is not
        signed."""
        access = self.access
        is_news = access.is_news(roster)
        if access.contradictions and not self._contradictions_logged:
            self._contradictions_logged = access.contradictions
            self._outbox.log("the operator has signed two rosters with one serial", "error", serial=roster.serial)
        if not is_news:
            return
        access.adopt(roster)
        self._outbox.outputs.roster = roster
        self._outbox.log("roster", serial=roster.serial, entries=len(roster))
        for peer in self.neighbours:
            if peer != source:
                self._outbox.send(peer, roster)
        self._enforce()
        self._advance(now)

    def disconnected(self, peer: OriginId, now: float, reason: str = "") -> None:
        """The link to the peer is down. reason: for the log."""
        self._dropped.discard(peer)
        self.neighbours.disconnect(peer)
        self._presence.delays.forget(peer)
        self._algorithm.disconnected(peer)
        self._outbox.log("link down", peer=self.membership.name(peer), reason=reason)
        self._advance(now)

    def received(self, peer: OriginId, message: Message, now: float) -> None:
        """Takes a message of a linked peer. Raises PeerError, having used nothing, if it is not allowed."""
        if peer not in self.neighbours or peer in self._dropped:
            return  # the link went down meanwhile; whatever it sent is compared again
        match message:
            case Roster():
                self.enrol(message, now, peer)
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
            case _:
                assert_never(message)
        self._advance(now)

    def answer(self, answer: Any, now: float) -> None:
        """Something that the algorithm wanted done is done. answer: as the algorithm defines it."""
        self._algorithm.answer(answer, now)
        self._advance(now)

    def tick(self, now: float) -> None:
        """Time has passed; call it when `next_tick` says so. More often does no harm."""
        if now >= self._compare_at:
            self._compare_at = now + self._patience.repair_seconds
            self._algorithm.compare(now)
            for peer in self.neighbours:
                self._presence.ping(peer, now)
            self._presence.look_around(now)
            if self.access.refresh():  # somebody's time is over, or has come
                self._enforce()
            self._algorithm.report(now)
        self._advance(now)

    def _advance(self, now: float) -> None:
        """Takes what is due, and sees to it that nothing is gathered for longer than `gather_seconds`. Hosts pass on at
        moments of their own, so a neighbour has mostly sent what it knows before we would."""
        self._algorithm.advance(now)
        seconds = self._algorithm.gather_seconds
        if self.neighbours.has_gathered and self._pass_at == math.inf:
            self._pass_at = now + ((self._compare_at - now) % seconds if seconds else 0.0)
        self._is_passing = self._is_passing or now >= self._pass_at

    # What is to be done

    def collect(self) -> Wanted:
        """Takes what is to be done now."""
        out = self._outbox.take()
        self._is_passing = self._is_passing or out.is_finished
        out.send = [*self._flooding({peer for peer, _ in out.send}), *out.send]
        return out

    def next_content(self, peer: OriginId) -> bytes | None:
        """What goes next over the connection for contents to the peer; None if nothing waits."""
        return None

    def next_tick(self, now: float) -> float:
        """When `tick` is to be called at the latest."""
        return max(now, min(self._compare_at, self._pass_at, self._algorithm.wake_at(now)))

    def hello(self) -> Hello:
        """What to say first on a new link."""
        rules = self._rules
        ours, others = self._presence.introduce()
        return Hello(
            rules.run_id,
            rules.base_digest,
            ours,
            others,
            frontier=self._algorithm.held(),
            roster=self.access.roster,
            form=rules.form,
        )

    # Who belongs to the run

    def _enforce(self) -> None:
        """The roster or its validity has changed."""
        access, outputs = self.access, self._outbox.outputs
        may_stay = not self._algorithm.has_spoken and access.may_link(self._presence.ours.public_key)
        if self.origin not in (access.trainers or ()) and not may_stay:
            outputs.is_removed = True
        for peer in self.neighbours:
            member = self.membership.get(peer)
            if member is None or not access.may_link(member.public_key):
                self._dropped.add(peer)
                outputs.drop.append(peer)
        self._silence()

    def _silence(self) -> None:
        """Nothing counts that hosts state who may not train."""
        access = self.access
        if access.trainers is None:
            return
        silenced = {origin: one for origin, one in access.stand_ins().items() if origin != self.origin}
        for member in self.membership.all():  # an entry may have been taken out altogether
            if member.origin not in access.trainers and member.origin != self.origin:
                silenced.setdefault(member.origin, stand_in(member.public_key, member.name))
        removed = access.former - {self.origin}
        self._presence.changed |= self.membership.silence(silenced, access.may_link, removed, len(access.trainers))

    def _remember(self, member: Member) -> None:
        """The journal knows this statement. Of a host that is not on the roster any more only the key counts."""
        self.membership.believe(member)
        trainers = self.access.trainers
        if trainers is not None and member.origin not in trainers and not self.membership.has_stand_in(member.origin):
            self._silence()

    def view(self, now: float) -> View:
        """What an operator is shown."""
        return self._algorithm.describe(make_view(self._presence, now))

    def _flooding(self, addressed: Collection[OriginId]) -> Iterator[tuple[OriginId, Message]]:
        """What is queued for each neighbour: statements first, so that an origin's key precedes what it says. Those of
        others may wait a moment, but nothing overtakes them. addressed: the neighbours to whom something else goes."""
        is_passing, self._is_passing = self._is_passing, False
        if is_passing:
            self._pass_at, self.neighbours.has_gathered = math.inf, False
        for peer in self.neighbours:
            queued = [*self._algorithm.queued(peer, is_passing=is_passing)]
            is_wanted = is_passing or queued or peer in addressed
            if (members := self.neighbours.take(peer, is_urgent=not is_wanted)) is not None:
                yield peer, members
            for message in queued:
                yield peer, message
