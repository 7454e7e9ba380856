"""Who is there: what we know of all origins, and what we say of ourselves.

Statements of others are believed, kept and passed on; our own are made whenever something of them changes: neighbours,
the steps we take part in, how slow a hop is, what is closed. Silence is judged here as well, from the windows' point of
view.
"""

from collections.abc import Iterable
from typing import Any

from seedflood.protocol.admission import Admission
from seedflood.protocol.catchup import CatchUp
from seedflood.protocol.delays import HopDelays
from seedflood.protocol.evidence import Statement
from seedflood.protocol.flood import Flood
from seedflood.protocol.liveness import Liveness
from seedflood.protocol.membership import Membership
from seedflood.protocol.messages import NEIGHBOURS_MAX, Member, OriginId, Ping, Sign
from seedflood.protocol.outbox import Outbox
from seedflood.protocol.rules import Rules
from seedflood.protocol.voice import Voice
from seedflood.protocol.window import bound_seconds


class Presence:
    """membership: the newest statement of everyone, ours included. changed: of whom there is news since
    this was cleared."""

    def __init__(
        self,
        rules: Rules,
        member: Member,
        sign: Sign,
        membership: Membership,
        admission: Admission,
        flood: Flood,
        catchup: CatchUp,
        outbox: Outbox,
    ) -> None:
        self.changed: set[OriginId] = set()
        self.membership = membership
        self.liveness = Liveness()
        self.delays = HopDelays()
        self._clients = rules.clients
        self._voice = Voice(member, rules.run_id, sign)
        self._admission = admission
        self._flood = flood
        self._catchup = catchup
        self._outbox = outbox

    @property
    def ours(self) -> Member:
        """The last statement about ourselves."""
        return self._voice.member

    def declare(self, **changes: Any) -> None:
        """Makes, keeps and floods a new statement about ourselves."""
        changes["neighbours"] = self._neighbours()
        member = self._voice.say(self.membership.get(self.ours.origin), **changes)
        self._keep(member)
        self._outbox.outputs.is_durable = True
        self._flood.spread_member(member)

    def go_on(self, past: Member, closed: Statement) -> None:
        """Says that we are here again, as we were, but for what is closed here: the journal knows."""
        hop = past.hop_milliseconds
        self.state_closed(closed, first_step=past.first_step, last_step=past.last_step, hop_milliseconds=hop)

    def state_closed(self, closed: Statement, **changes: Any) -> None:
        """Says what is closed here."""
        before, frontier, digest = closed
        self.declare(closed_before=before, closed_frontier=frontier, closed_digest=digest, **changes)

    def declare_neighbours(self) -> None:
        """A link has come or gone."""
        if self._neighbours() != self.ours.neighbours:
            self.declare()

    def believe(self, members: Iterable[Member], source: OriginId) -> None:
        """Takes statements whose signatures were checked."""
        for member in members:
            if member.origin == self.ours.origin:
                self._hear_of_us(member)
            elif self.membership.is_news(member):
                self._outbox.outputs.events += self.membership.describe_news(member, self._clients)
                self._keep(member)
                self._flood.spread_member(member, source)

    def heard(self, origin: OriginId, last_step: int, now: float) -> None:
        """Something new of the origin has come."""
        if self.liveness.heard(origin, now):
            self._outbox.tell("member heard again", member=self.membership.name(origin), step=last_step)

    def look_around(self, now: float) -> None:
        """Now and then: who has fallen silent, how slow is a hop?"""
        for origin in self.liveness.review(now, self.bound_seconds):
            self.changed.add(origin)
            self._outbox.tell("member silent", "warning", member=self.membership.name(origin))
        said = self.ours.hop_milliseconds
        if (milliseconds := self.delays.milliseconds_to_say(said)) != said:
            self.declare(hop_milliseconds=milliseconds)

    def ping(self, peer: OriginId, now: float) -> None:
        self.delays.ping(peer, now)
        self._outbox.send(peer, Ping(now))

    def bound_seconds(self) -> float:
        """How long news may take to reach everyone: the slowest hop that anyone measures, times the diameter."""
        hop = max(self.membership.hop_seconds(), self.delays.slow_seconds)
        return bound_seconds(self.membership.diameter(), hop)

    def _neighbours(self) -> tuple[OriginId, ...]:
        """Those that we must not forget come first: no statement with more than so many is accepted by anyone."""
        owed = self._catchup.owed
        linked = [peer for peer in sorted(self._flood.neighbours) if peer not in owed]
        return tuple(sorted([*sorted(owed), *linked][:NEIGHBOURS_MAX]))

    def _hear_of_us(self, member: Member) -> None:
        """A past life of ours said this, or a copy of our key lives: learn from it, and have the last word."""
        if member.signature == self.ours.signature or not self._admission.is_signed(member):
            return
        is_news = self.membership.is_news(member)
        if is_news or member.incarnation != self.ours.incarnation:
            self._remember(member)
        if is_news:
            self._voice.outlive(member)
            self.declare()

    def _remember(self, past: Member) -> None:
        was_forgetful = self._catchup.is_forgetful
        self._catchup.hear_of_past(past)
        if self._catchup.is_forgetful and not (was_forgetful or self._catchup.is_over):
            neighbours = sorted(map(self.membership.name, past.neighbours))
            self._outbox.tell("the journal lacks a past life of this node", "warning", former_neighbours=neighbours)

    def _keep(self, member: Member) -> None:
        self.membership.believe(member)
        self._outbox.outputs.members.append(member)
        self.changed.add(member.origin)
        if member.has_left:
            self.liveness.forget(member.origin)
