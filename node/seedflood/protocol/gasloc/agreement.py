"""How a node comes to the replica with which all end, once no rounds are left, and when it may go.

It states its own replica, waits until all have stated one (`final_wait`), takes the one that is chosen (`choice`) from
a neighbour that has it (`copies`), and stays for those that still need it.

A host ends when all that it can reach state what it holds, or after its patience; then its log says who holds what
else. Those that have come to the closing rounds, and are away, have `patience_seconds` to come back. So replicas are
unequal only where the swarm was cut apart for longer than that, or lied to (`choice`).
"""

from dataclasses import dataclass

from seedflood.protocol.gasloc.choice import Choice
from seedflood.protocol.gasloc.conversation import Conversation
from seedflood.protocol.gasloc.final_wait import FinalWait
from seedflood.protocol.gasloc.orders import KeepCheckpoint, Publish, Taken
from seedflood.protocol.gasloc.pace import Pace
from seedflood.protocol.gasloc.phase import Lifecycle, Phase
from seedflood.protocol.gasloc.rules import GaslocRules, Habits
from seedflood.protocol.gasloc.statement import Result
from seedflood.protocol.gasloc.transfer import Content
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.outputs import Outbox, Outputs
from seedflood.protocol.swarm.presence import Presence


@dataclass(eq=False, repr=False)
class Agreement:
    """choice, wait: whose replica is taken, and who is waited for before. since: when we came to the end, began to seek
    another replica, or had what we sought. is_publishing: is our own being encoded? has_result: do we have the replica
    with which all end? aim: the one that we fetch.

    _stands: may our own be the one with which all end? _moved_at: when a part of a replica came last. _come_near: the
    digest of the last one that a neighbour came to have. _is_late: have
    hosts kept different replicas for too long? _is_alone: could nobody give us what most of the others hold?
    """

    _rules: GaslocRules
    _habits: Habits
    _presence: Presence
    _pace: Pace
    _life: Lifecycle
    _talk: Conversation
    _outbox: Outbox[Outputs]
    since: float = 0.0
    is_publishing: bool = False
    has_result: bool = False
    aim: Result | None = None
    _moved_at: float = 0.0
    _come_near: bytes = b""
    _stands: bool = False
    _is_late: bool = False
    _is_alone: bool = False

    def __post_init__(self) -> None:
        self._patience = self._habits.patience
        self.choice = Choice(self._rules, self._habits.bounds, self._presence, self._pace)
        self.wait = FinalWait(self._rules, self._patience, self._presence, self._pace, self.choice, self._talk)
        self._fetch, self._serve = self._talk.fetch, self._talk.serve

    def begin(self, now: float, *, stands: bool) -> None:
        """No rounds are left. stands: may our replica be the one that all take?"""
        self._life.enter(Phase.CHOOSING)
        self.since, self._stands = now, stands
        self._presence.declare()
        self._talk.send_progress()
        self.advance(now)

    def advance(self, now: float) -> None:
        """Takes the next step, if one is due: states our replica, waits for all others, and takes the one with which
        all end, as far as we know."""
        if self.is_publishing or self._fetch.is_adopting:
            return
        if self._stands and self.choice.ours is None:
            self._order_publish()
        elif not self._is_waiting_for_all(now):
            self._take_the_chosen(now)

    def wake_at(self, now: float) -> float:
        patient_until = self.since + self._patience.linger_seconds
        times = patient_until, self._alone_at, self._end_at, self.choice.wake_at(now)
        return min((one for one in times if one > now), default=float("inf"))

    def awaited(self, now: float) -> set[OriginId]:
        """The hosts for which we stay, now that we have the replica with which all end."""
        return self.choice.awaited(with_away=now < self.since + self._patience.linger_seconds)

    def published(self, content: Content) -> None:
        """What we hold is encoded."""
        self.is_publishing = False
        known = self.choice.ours
        author = known.author if known is not None and known.digest == content.digest else self._presence.ours.origin
        self._state(Result(author, content.digest), content)

    def taken(self, answer: Taken) -> None:
        """What we fetched has replaced ours, or was refused, or was not what was stated."""
        aim, self.aim = self.aim, None
        self._fetch.adopted(is_right=answer.content is not None or answer.is_far)
        if answer.is_far and aim is not None:
            self.choice.refuse(aim.author)
            name = self._presence.membership.name(aim.author)
            self._outbox.log("a replica for the end is too far from ours", "warning", author=name)
        if answer.content is not None and aim is not None:
            self._state(aim, answer.content)
        elif self.choice.ours is not None and self._life.phase is not Phase.LEFT:
            self._order_publish()  # ours, which was withdrawn

    def _state(self, result: Result, content: Content) -> None:
        self.choice.ours = result
        self._serve.publish(content, self._rules.rounds)
        if self._life.phase is not Phase.LEFT:
            self._presence.declare()

    def _order_publish(self) -> None:
        self.is_publishing = True
        self._outbox.order(Publish())

    def _is_waiting_for_all(self, now: float) -> bool:
        if self._life.phase is not Phase.CHOOSING or not self.wait.lasts(self._rules.rounds, now):
            return False
        self.since = now
        return True

    def _take_the_chosen(self, now: float) -> None:
        aim, ours = self._find_aim(now), self.choice.ours
        if aim is not None:
            self._fetch_result(aim, now)
        elif ours is not None:
            self._finish(now)
        elif not self.choice.is_any_stated() or now >= self._alone_at:  # nobody gives us anything with which to end
            self._stands = True
            self._order_publish()

    def _find_aim(self, now: float) -> Result | None:
        """What we are to take; None: we keep what we have."""
        is_idle = self._life.phase is Phase.FINISHING or self.choice.ours is None
        if is_idle and now >= self.since + self._patience.linger_seconds:
            self._is_late = True
        while not self._is_alone:
            moving, ours = self._fetch.moving, self.choice.ours
            aim = self.choice.find(now, moving=moving, is_late=self._is_late)
            if aim is None or (ours is not None and aim.digest == ours.digest):
                break
            self.aim = aim
            if moving == aim.digest:
                self._moved_at = now
            if self._come_near != aim.digest and self.choice.holders(aim):
                self._come_near, self.since = aim.digest, now
            if self._life.phase is Phase.FINISHING or now < self._alone_at:
                return aim
            self.since = now  # the next one has as long
            if not self.choice.give_up(aim):
                self._is_alone = True
                self._outbox.log(
                    "ends with what it has: nobody gives it the replica with which the others end", "warning"
                )
        return None

    def _fetch_result(self, aim: Result, now: float) -> None:
        if self._life.phase is Phase.FINISHING:
            self._life.enter(Phase.CHOOSING)
            self.since = now
        self._fetch.is_backed = self._is_late or self.choice.is_backed(aim)
        self._fetch.advance(dict.fromkeys(self.choice.holders(aim), 0), now, aim.digest)

    @property
    def _alone_at(self) -> float:
        """Until when we wait for somebody who has the replica with which all end: longer while no neighbour has it."""
        patience_seconds = self._patience.start_seconds + self._patience.linger_seconds
        if self.aim is not None and not self.choice.holders(self.aim):
            patience_seconds += self.choice.way_seconds(self.aim.author)
        return max(self.since, self._moved_at) + patience_seconds

    @property
    def _end_at(self) -> float:
        """Until when we stay for others. Some may still take local steps."""
        return self.since + self._patience.linger_seconds + self.wait.longest_seconds

    def _finish(self, now: float) -> None:
        """We have it: ends once nobody needs it of us."""
        if self._life.phase is Phase.CHOOSING:
            self._life.enter(Phase.FINISHING)
            self._fetch.end()
            self.since, self.has_result = now, not self._is_alone
            self._outbox.order(KeepCheckpoint(self._rules.rounds))
            self._talk.send_progress()
        is_wanted = self.awaited(now) or self._serve.peers
        if is_wanted and now < self._end_at:
            return
        if unequal := self._presence.membership.names(self.choice.unequal()):
            self._outbox.log("ends, and other hosts hold another replica", "warning", unequal_to=unequal)
        self._life.enter(Phase.FINISHED)
        self._outbox.finish()
