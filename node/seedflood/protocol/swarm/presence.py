"""Who is there: what we know of all origins, and what we state of ourselves.

Statements of others are believed, kept and passed on. We make a new statement when something in it changes: the steps
that we take part in, what the algorithm states, and, once per comparison period, our neighbours and how slow a hop is.
Every statement goes to everyone, so at the start of a run one for each link was most of what hosts sent. Who must know
of a link at once has its algorithm state it. Silence is judged here as well, as windows see it.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.swarm.admission import MemberAdmission
from seedflood.protocol.swarm.algorithm import Algorithm
from seedflood.protocol.swarm.delays import HopDelays, bound_seconds
from seedflood.protocol.swarm.liveness import Liveness
from seedflood.protocol.swarm.messages import (
    ALGORITHM_BYTES_MAX,
    INCARNATION_MAX,
    NEIGHBOURS_MAX,
    Member,
    Ping,
    Sign,
)
from seedflood.protocol.swarm.neighbours import Neighbours
from seedflood.protocol.swarm.outputs import Outbox, Outputs
from seedflood.protocol.swarm.rules import SwarmRules

OUTLIVED_MAX = 8
"""How many newer statements about itself a process outbids. Each comes from a past life whose journal was lost, or from
a copy of our key."""


class OwnStatement:
    """Makes and signs our statements. member: the newest one, complete and signed once `say` was called. outlived: how
    often somebody else's statement about us was newer."""

    def __init__(self, member: Member, run_id: bytes, sign: Sign) -> None:
        self.member = member
        self.outlived = 0
        self._run_id = run_id
        self._sign = sign

    def say(self, known: Member | None, **changes: Any) -> Member:
        """Makes a new edition with these fields changed. known: the newest statement about us, perhaps of a past life
        or of a copy of our key; the new edition is newer than it."""
        if known is not None and known.signature == self.member.signature:
            self.member = replace(self.member, version=self.member.version + 1)
        elif known is not None and known.age >= self.member.age:
            self.outlive(known)
        fields = {**changes, "signature": b""}
        unsigned = replace(self.member, **fields)
        self.member = replace(unsigned, signature=self._sign(unsigned.signed_bytes(self._run_id)))
        return self.member

    def outlive(self, past: Member) -> None:
        """Somebody else made a statement about us that is newer than ours: the next edition will be newer than it."""
        self.outlived += 1
        self.member = replace(self.member, incarnation=past.incarnation + 1, version=0)


class Presence:
    """rules, admission: of this node. membership: the newest statement of everyone, ours included. changed: the origins
    of whom there is news; an algorithm that looks at it clears it then. algorithm: what this swarm trains by, set
    before anything happens."""

    algorithm: Algorithm

    def __init__(
        self,
        rules: SwarmRules,
        member: Member,
        sign: Sign,
        admission: MemberAdmission,
        outbox: Outbox[Outputs],
    ) -> None:
        self.changed: set[OriginId] = set()
        self.sign = sign
        self.rules = rules
        self.admission = admission
        self.membership = admission.membership
        self.neighbours = Neighbours()
        self.liveness = Liveness()
        self.delays = HopDelays()
        self._is_loss_logged = False
        self._statement = OwnStatement(member, rules.run_id, sign)
        self._outbox = outbox

    @property
    def ours(self) -> Member:
        """The last statement about ourselves."""
        return self._statement.member

    def introduce(self) -> tuple[Member, tuple[Member, ...]]:
        """What we send first on a new link: our statement, and all others that count."""
        ours = self.ours
        return ours, tuple(one for one in self.membership.to_send() if one.origin != ours.origin or one != ours)

    def declare(self, **changes: Any) -> None:
        """Makes, keeps and floods a new statement about ourselves."""
        changes = {"hop_milliseconds": self._hop_milliseconds(), **changes, "neighbours": self._neighbours()}
        changes["algorithm"] = state = self.algorithm.state()
        assert len(state) <= ALGORITHM_BYTES_MAX, "an algorithm states more than anyone takes"
        member = self._statement.say(self.membership.get(self.ours.origin), **changes)
        self._keep(member)
        self._outbox.outputs.is_durable = True
        self.neighbours.spread(member, is_urgent=True)

    def go_on(self, past: Member) -> None:
        """Says that we are here again, as we were."""
        hop = past.hop_milliseconds
        self.declare(first_step=past.first_step, last_step=past.last_step, hop_milliseconds=hop)

    def take_part(self, first: int, *, is_anew: bool = False) -> None:
        """States from which step on we take part. If we took part before and have not left, the earlier step stays,
        unless we begin anew. If we had left, we do not come back for a run that is over."""
        word = self.membership.spoken(self.ours.origin)
        if word is not None and not word.has_left:
            self.declare(first_step=first if is_anew else min(first, word.first_step), last_step=None)
        elif word is None or first < self.rules.steps:
            self.declare(first_step=first, last_step=None)

    def leave(self, last_step: int) -> None:
        """Says goodbye. A node that has not caught up does not know what a past life published last, so it states
        nothing about steps: its last word stands, and it counts as down until it is back."""
        if not self.ours.has_spoken:
            self.declare(last_step=-1)
        elif not self.ours.has_left:
            self.declare(last_step=last_step)

    def declare_neighbours(self) -> None:
        """States our neighbours again if a link has come or gone."""
        if self._neighbours() != self.ours.neighbours:
            self.declare()

    def declare_new_neighbours(self) -> None:
        """States our neighbours if there is one that our statement does not name: before it receives what we send for
        the first time, and must receive it again if we forget it. Else `look_around` is soon enough."""
        if not set(self._neighbours()) <= set(self.ours.neighbours):
            self.declare()

    def believe(self, members: Iterable[Member], source: OriginId) -> None:
        """Takes statements whose signatures were checked."""
        for member in members:
            self.neighbours.receive(source, member)
            if self.membership.get(member.origin) is member and member.origin != self.ours.origin:
                continue  # nearly always when hosts link: the codec gives equal statements as one object
            if self.membership.is_taken(member) or self.admission.access.objection(member) is not None:
                continue
            if member.origin == self.ours.origin:
                self._learn_of_us(member, source)
            elif self.membership.is_news(member):
                self._outbox.outputs.events += self.membership.describe_news(member, self.rules.clients)
                self._keep(member)
                self.neighbours.spread(member, source)

    def never_seen(self) -> list[str]:
        """The names of those who may train, by the roster, and of whom nothing was ever received."""
        access = self.admission.access
        absent = (access.trainers or frozenset()) - {member.origin for member in self.membership.all()}
        return [entry.name for entry in access.entries() if entry.origin in absent]

    def seen(self, origin: OriginId, last_step: int, now: float) -> None:
        """Something new of the origin has come."""
        if self.liveness.seen(origin, now):
            self._outbox.log("member is back", member=self.membership.name(origin), step=last_step)

    def look_around(self, now: float) -> None:
        """Once per comparison period: suspects who has fallen silent, and states our neighbours again if they have
        changed, and our hop delay if it has changed much."""
        for origin in self.liveness.review(now, self.bound_seconds):
            self.changed.add(origin)
            self._outbox.log("member silent", "warning", member=self.membership.name(origin))
        ours = self.ours
        if (self._neighbours(), self._hop_milliseconds()) != (ours.neighbours, ours.hop_milliseconds):
            self.declare()

    def ping(self, peer: OriginId, now: float) -> None:
        self.delays.ping(peer, now)
        self._outbox.send(peer, Ping(now))

    def bound_seconds(self) -> float:
        """How long news may take to reach everyone, in seconds: the slowest hop that anyone states, times the
        diameter."""
        hop = max(self.membership.hop_seconds(), self.delays.slow_seconds)
        return bound_seconds(self.membership.diameter(), hop)

    def _neighbours(self) -> tuple[OriginId, ...]:
        """Our neighbours. No node accepts a statement with more than NEIGHBOURS_MAX."""
        return tuple(sorted(self.neighbours)[:NEIGHBOURS_MAX])

    def _hop_milliseconds(self) -> int:
        return self.delays.milliseconds_to_state(self.ours.hop_milliseconds)

    def _learn_of_us(self, member: Member, source: OriginId) -> None:
        """Somebody else made this statement under our key: an earlier life of this node, or another process with a copy
        of the key.

        | it is | we have published | what we do |
        |---|---|---|
        | newer | yes | end (`is_superseded`): of two processes the older one gives up |
        | newer, or as old as ours | no | make a newer one: our journal may have lost the count of our starts |
        | as old as ours | yes | pass it on if it is news, and go on |
        | older | either | the same |

        Whoever ends by mistake makes a newer one when it is started again. Two processes that start at the same moment
        do so in turn, until one of them has tried OUTLIVED_MAX times, and ends. Nothing is newer than INCARNATION_MAX,
        so whoever finds that ends, too.
        """
        ours, we_have_published = self.ours, self.algorithm.has_spoken
        if member.signature == ours.signature or not self.admission.is_signed(member):
            return
        is_newer = member.age > ours.age
        if not we_have_published:
            it_alone_names_steps = member.has_spoken and not ours.has_spoken
            if is_newer or it_alone_names_steps or member.incarnation != ours.incarnation:
                self._remember(member)
        is_hopeless = self._statement.outlived >= OUTLIVED_MAX or member.incarnation >= INCARNATION_MAX
        can_outlive = not we_have_published and not is_hopeless
        if is_newer and not can_outlive:
            self._outbox.outputs.is_superseded = True
            return
        if self.membership.is_news(member):
            self._keep(member)
            self.neighbours.spread(member, source)
        if member.age >= ours.age and can_outlive:
            self._statement.outlive(member)
            self._state_again()

    def _state_again(self) -> None:
        """States again that we are here, without steps as long as we do not know what a past life stated about them."""
        if self.algorithm.is_amnesic and not self.algorithm.has_spoken:
            self.declare(first_step=STEP_MAX, last_step=None)
        else:
            self.declare()

    def _remember(self, past: Member) -> None:
        """An earlier life of ours stated this. It may show that our journal lacks something."""
        self.algorithm.learn_of_past(past)
        if self.algorithm.is_amnesic:
            self.log_loss(past.neighbours)

    def log_loss(self, former: Iterable[OriginId]) -> None:
        """Our journal was lost, or is an old copy. former: neighbours of the life that it lacks."""
        if not self._is_loss_logged:
            self._is_loss_logged = True
            names = sorted(map(self.membership.name, former))
            self._outbox.log("the journal lacks a past life of this node", "warning", former_neighbours=names)

    def _keep(self, member: Member) -> None:
        self.membership.believe(member)
        self._outbox.keep(member)
        self.changed.add(member.origin)
