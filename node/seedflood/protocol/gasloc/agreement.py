"""How a node comes to the replica with which all end, once no rounds are left, and when it may go.

It states its own replica, waits until all have stated one (`final_wait`), takes the one that is chosen (`choice`) from
a neighbour that has it (`copies`), and stays for those that still need it.
"""

from dataclasses import dataclass, field

from seedflood.protocol.gasloc.choice import Choice
from seedflood.protocol.gasloc.conversation import Conversation
from seedflood.protocol.gasloc.final_wait import FinalWait
from seedflood.protocol.gasloc.ledger import Ledger
from seedflood.protocol.gasloc.orders import Drop, KeepCheckpoint, Publish
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
    """choice, wait: whose replica is taken, and who is waited for before. since: when we came to the end, or began to
    seek the replica of a further author. is_publishing: is our own being encoded? has_result: do we have the replica
    with which all end? aim: the one that we fetch. last_serial: of the checkpoint at the end.

    _stands: may our own be the one with which all end? _sought: those who answer for replicas that we have given time
    to, no more than the run has clients. _moved_at: when what most of the others hold was last on its way to us.
    _is_alone: could nobody give it to us?
    """

    _rules: GaslocRules
    _habits: Habits
    _presence: Presence
    _pace: Pace
    _life: Lifecycle
    _ledger: Ledger
    _talk: Conversation
    _outbox: Outbox[Outputs]
    since: float = 0.0
    is_publishing: bool = False
    has_result: bool = False
    aim: Result | None = None
    last_serial: int = 0
    _moved_at: float = 0.0
    _stands: bool = False
    _is_alone: bool = False
    _sought: set[OriginId] = field(default_factory=set)

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
        self._talk.tell_progress()
        self.advance(now)

    def advance(self, now: float) -> None:
        """Takes the next step, if one is due: states our replica, waits for all others, and takes the one with which
        all end, as far as we know."""
        if self.is_publishing or self._fetch.is_adopting:
            return
        if self._stands and self.choice.ours is None:
            self._state_ours(now)
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

    def taken(self, content: Content | None) -> None:
        """What we fetched has replaced ours; None: it was not what was stated."""
        self._fetch.adopted(is_right=content is not None)
        aim, self.aim = self.aim, None
        if content is not None and aim is not None:
            self._state(aim, content)
        elif self.choice.ours is not None and self._life.phase is not Phase.LEFT:
            self._order_publish()  # ours, which was withdrawn

    def _state(self, result: Result, content: Content) -> None:
        self.choice.ours = result
        self._serve.publish(content, self._rules.rounds)
        if self._life.phase is not Phase.LEFT:
            self._presence.declare()

    def _state_ours(self, now: float) -> None:
        """What is in doubt is waited for: if it counts, it is still added."""
        is_patient = now < self.since + self._patience.linger_seconds
        if not (self._ledger.doubts() and is_patient):
            self._order_publish()

    def _order_publish(self) -> None:
        for partner, round_ in self._ledger.replaced():
            self._outbox.order(Drop(round_, partner))
        self.is_publishing = True
        self._outbox.order(Publish())

    def _is_waiting_for_all(self, now: float) -> bool:
        if self._life.phase is not Phase.CHOOSING or not self.wait.lasts(self._rules.rounds, now):
            return False
        self.since = now
        return True

    def _take_the_chosen(self, now: float) -> None:
        aim = self._find_aim(now)
        if aim is not None:
            self._fetch_result(aim, now)
        elif self.choice.ours is not None:
            self._finish(now)
        else:  # nobody here holds anything with which to end
            self._stands = True
            self._order_publish()

    def _find_aim(self, now: float) -> Result | None:
        """What we are to take; None: we end with what we have."""
        while not self._is_alone:
            aim, ours = self.choice.find(now, moving=self._fetch.moving), self.choice.ours
            if aim is None or (ours is not None and aim.digest == ours.digest):
                break
            host = self.choice.answers_for(aim)
            is_new = host not in self._sought and len(self._sought) < self._rules.clients
            if is_new and self.choice.holders(aim):
                self._sought.add(host)
                self.since = now
            moving = self._fetch.moving
            if moving is not None and moving == self.choice.made():
                self._moved_at = now
            may_come = moving is not None or self.choice.is_on_its_way(aim, now)
            if self._life.phase is Phase.FINISHING or now < self._alone_at or may_come:
                return aim
            if not self.choice.give_up(aim, now):
                self._is_alone = True
                self._outbox.tell(
                    "ends with what it has: nobody gives it the replica with which the others end", "warning"
                )
        return None

    def _fetch_result(self, aim: Result, now: float) -> None:
        if self._life.phase is Phase.FINISHING:
            self._life.enter(Phase.CHOOSING)
            self.since = now
        self.aim = aim
        self._fetch.advance(dict.fromkeys(self.choice.holders(aim), 0), now, aim.digest)

    @property
    def _alone_at(self) -> float:
        """Until when we wait for somebody who has the replica with which all end."""
        return max(self.since, self._moved_at) + self._patience.start_seconds + self._patience.linger_seconds

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
            self.last_serial = self._ledger.take_serial()
            self._outbox.order(KeepCheckpoint(self.last_serial, self._rules.rounds))
            self._talk.tell_progress()
        is_wanted = self.awaited(now) or self._serve.peers
        if is_wanted and now < self._end_at:
            return
        if unequal := self._presence.membership.names(self.choice.unequal()):
            self._outbox.tell("ends, and other hosts hold another replica", "warning", unequal_to=unequal)
        self._life.enter(Phase.FINISHED)
        self._outbox.finish()
