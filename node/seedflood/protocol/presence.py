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
from seedflood.protocol.frontier import Frontier
from seedflood.protocol.liveness import Liveness
from seedflood.protocol.membership import Membership
from seedflood.protocol.messages import INCARNATION_MAX, NEIGHBOURS_MAX, STEP_MAX, Member, OriginId, Ping, Sign
from seedflood.protocol.outbox import Outbox
from seedflood.protocol.own_statement import OwnStatement
from seedflood.protocol.rules import Rules
from seedflood.protocol.window import bound_seconds

OUTLIVED_MAX = 8
"""So many statements of past lives a process outbids: each had lost its journal, or has a copy of our key."""


class Presence:
    """membership: the newest statement of everyone, ours included. changed: of whom there is news since
    this was cleared. unsaid_from: the first own step that could not be kept yet, and is not said before it is."""

    def __init__(
        self,
        rules: Rules,
        member: Member,
        sign: Sign,
        membership: Membership,
        frontier: Frontier,
        admission: Admission,
        flood: Flood,
        catchup: CatchUp,
        outbox: Outbox,
    ) -> None:
        self.changed: set[OriginId] = set()
        self.membership = membership
        self.liveness = Liveness()
        self.delays = HopDelays()
        self.unsaid_from: int | None = None
        self._is_loss_told = False
        self._frontier = frontier
        self._clients = rules.clients
        self._statement = OwnStatement(member, rules.run_id, sign)
        self._admission = admission
        self._flood = flood
        self._catchup = catchup
        self._outbox = outbox

    @property
    def ours(self) -> Member:
        """The last statement about ourselves."""
        return self._statement.member

    def introduce(self) -> tuple[Member, tuple[Member, ...]]:
        """What a new link is told first: our statement, and all others that count."""
        return self.ours, tuple(member for member in self.membership.told() if member != self.ours)

    def declare(self, **changes: Any) -> None:
        """Makes, keeps and floods a new statement about ourselves."""
        changes["neighbours"] = self._neighbours()
        changes["said_before"] = self._said_before()
        member = self._statement.say(self.membership.get(self.ours.origin), **changes)
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

    def take_part(self, first: int, steps: int) -> None:
        """Says from which step on. Whoever did so before and has not left is expected from then on all the same; one
        that had left does not come back for a run that is over."""
        word = self.membership.spoken(self.ours.origin)
        if word is not None and not word.has_left:
            self.declare(first_step=min(first, word.first_step), last_step=None)
        elif word is None or first < steps:
            self.declare(first_step=first, last_step=None)

    def leave(self, unsaid_from: int | None) -> None:
        """Says goodbye. Whoever has not caught up does not know what a past life said last, and says nothing about it:
        its last word stands, and it counts as down until it is back."""
        self.unsaid_from = unsaid_from
        if not self.ours.has_spoken:
            self.declare(last_step=-1)
        elif not self.ours.has_left:
            last = self._frontier.last(self.ours.origin) if unsaid_from is None else unsaid_from - 1
            self.declare(last_step=last)

    def declare_neighbours(self) -> None:
        """A link has come or gone."""
        if self._neighbours() != self.ours.neighbours:
            self.declare()

    def believe(self, members: Iterable[Member], source: OriginId) -> None:
        """Takes statements whose signatures were checked."""
        for member in members:
            if self.membership.is_taken(member):
                continue
            if member.origin == self.ours.origin:
                self._hear_of_us(member, source)
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
        """No statement with more than so many is accepted by anyone."""
        return tuple(sorted(self._flood.neighbours)[:NEIGHBOURS_MAX])

    def _said_before(self) -> int:
        said = max(self._frontier.last(self.ours.origin) + 1, self._catchup.said_before)
        return said if self.unsaid_from is None else min(said, self.unsaid_from)

    def _hear_of_us(self, member: Member, source: OriginId) -> None:
        """A past life of ours said this, or a process with a copy of our key.

        One that is about to start has the last word over whatever it finds, for its clock may have gone back, and its
        journal may have lost the count of its starts. One that has spoken and hears of a newer one is the older of two,
        and ends; if it was not, it has the last word when it is started again. Two that start at the same moment outbid
        each other a few times, until one of them gives up. Nothing can be newer than the last incarnation there is.
        """
        if member.signature == self.ours.signature or not self._admission.is_signed(member):
            return
        is_newer = member.age > self.ours.age
        if is_newer or member.incarnation != self.ours.incarnation:
            self._remember(member)
        is_hopeless = self._statement.outlived == OUTLIVED_MAX or member.incarnation >= INCARNATION_MAX
        if is_newer and (self._catchup.is_over or is_hopeless):
            self._outbox.outputs.is_superseded = True
            return
        if self.membership.is_news(member):
            self._keep(member)
            self._flood.spread_member(member, source)
        if is_newer:
            self._statement.outlive(member)
            self._state_again()

    def _state_again(self) -> None:
        """Of the steps we take part in nothing, as long as we do not know what a past life said of them."""
        if self._catchup.is_forgetful and not self._catchup.is_over:
            self.declare(first_step=STEP_MAX, last_step=None)
        else:
            self.declare()

    def _remember(self, past: Member) -> None:
        if self._catchup.is_over:
            return
        self._catchup.hear_of_past(past)
        if self._catchup.is_forgetful and not self._is_loss_told:
            self._is_loss_told = True
            neighbours = sorted(map(self.membership.name, past.neighbours))
            self._outbox.tell("the journal lacks a past life of this node", "warning", former_neighbours=neighbours)

    def _keep(self, member: Member) -> None:
        self.membership.believe(member)
        self._outbox.outputs.members.append(member)
        self.changed.add(member.origin)
