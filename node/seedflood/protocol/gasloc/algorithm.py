"""GASLoC as an algorithm of a swarm: local steps, then an exchange of parameters with the partners of the round.

`phase` says which phases of a node may follow each other. Rounds have the same numbers on all hosts. A host that falls
behind numbers its parameters with the round that the others have reached: it has done fewer steps, and nobody waits for
it.

The others have reached a round when half of the swarm has: a single neighbour could lie. The first round waits for all
hosts, but no longer than a start may take. A host that starts again states no rounds until it takes part, so meanwhile
its last word counts; else hosts that all start again would take the run for a new one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from seedflood.protocol.frontier import Held
from seedflood.protocol.gasloc.agreement import Agreement
from seedflood.protocol.gasloc.carrier import Carrier
from seedflood.protocol.gasloc.conversation import Conversation
from seedflood.protocol.gasloc.copies import Fetch, Serve
from seedflood.protocol.gasloc.exchange import Exchange
from seedflood.protocol.gasloc.ledger import Ledger
from seedflood.protocol.gasloc.messages import Progress
from seedflood.protocol.gasloc.orders import (
    Close,
    Correct,
    Drop,
    Encode,
    KeepCheckpoint,
    Mix,
    Restore,
    TakeLocalSteps,
)
from seedflood.protocol.gasloc.outbox import Outbox
from seedflood.protocol.gasloc.pace import Pace
from seedflood.protocol.gasloc.phase import Lifecycle, Phase
from seedflood.protocol.gasloc.rules import GaslocRules, Habits
from seedflood.protocol.gasloc.sight import figures_of, find_blockers, words_of
from seedflood.protocol.gasloc.stated import Stated, behind, is_anyone_taking_part, rounds_of, standing_still, stated
from seedflood.protocol.gasloc.transfer import Content, Sinks
from seedflood.protocol.gasloc.trust import Trust
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.swarm.membership import shorten
from seedflood.protocol.swarm.messages import AlgorithmMessage, Hello, Member
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.swarm.standstill import Standstill
from seedflood.protocol.view import Blocker, View

LAST_PATIENCES = 2
"""Once half of the swarm is at the end, nobody is waited for longer than twice as long as a host may stay in one round:
who is behind goes on with the last round after its local steps."""

BEHIND_ROUNDS = 2
"""A host that is this many rounds behind jumps to the round of the others: half of the swarm has exchanged the next
round, and exchanges the one after it."""


class Gasloc:
    """GASLoC on one node. round: the one whose local steps are being done, or which is exchanged."""

    def __init__(self, rules: GaslocRules, presence: Presence, outbox: Outbox, sinks: Sinks, habits: Habits) -> None:
        bounds = habits.bounds
        self.round = 0
        self.life = Lifecycle()
        self.ledger = Ledger(outbox)
        self.pace = Pace(bounds, presence.delays)
        self.carrier = Carrier(presence.neighbours, sinks, outbox)
        self.trust = Trust(presence, outbox)
        self.exchange = Exchange(rules, bounds, presence, self.pace, self.ledger, self.carrier, self.trust, outbox)
        self.agreement = Agreement(rules, bounds, presence, self.pace, self.ledger, self.carrier, self.trust, outbox)
        self.fetch = Fetch(rules, bounds, presence.neighbours, self.carrier, self.trust, outbox)
        self.serve = Serve(bounds, self.carrier, outbox)
        self.talk = Conversation(
            rules, presence, self.carrier, self.exchange, self.agreement, self.fetch, self.serve, self._where
        )
        self._rules = rules
        self._presence = presence
        self._outbox = outbox
        self._patience = habits.patience
        self._local_steps = habits.local_steps or rules.local_steps
        self._checkpoint_rounds = habits.checkpoint_rounds
        self._has_spoken = self._is_forgetful = False
        self._known: Member | None = None
        """The last statement of an earlier life of ours that the journal has."""
        self._past_round = -1
        """The last round that others know of a life of ours that our journal lacks; -1 if there is none."""
        self.is_restored = self._is_agreed = self._is_apart = False
        """Was a checkpoint loaded? Do we have what all agreed on at the end of the run? Or could nobody give us that,
        and we end with our own parameters?"""
        self._has_parameters = False
        """Do we have other parameters than the base model?"""
        self.is_computing = self.is_waiting = False
        """is_computing: do we wait for local steps or for encoding? is_waiting: for all hosts to reach the end?"""
        self._ahead = self._checkpoint_at = self._last_serial = 0
        """Local steps of the next round that are done, or being done, while this one is exchanged. The round of the
        last checkpoint. The serial of the one at the end of the run."""
        self._asked_at = (0.0, 0)
        """When local steps were ordered last, and how many."""
        self.since = self._forsaken_since = self._now = 0.0
        """Since when we join or are finishing, and since when nobody could give us a copy."""
        self._standstill, self._last_since = Standstill(), float("inf")
        """_last_since: since when half of the swarm is at the end of the run."""
        self.shown: dict[str, float] = {}
        """Figures of the compute side, which are shown beside ours."""

    # What the swarm says of us

    @property
    def has_spoken(self) -> bool:
        return self._has_spoken

    @property
    def is_forgetful(self) -> bool:
        return self._is_forgetful

    def hear_of_past(self, member: Member) -> None:
        """Statements are journalled before they are sent. So if our journal lacks this one, the journal was lost, and
        we must not offer anything for the rounds of that life again."""
        if self._known is None or member.age > self._known.age:
            self._is_forgetful = True
            self._past_round = max(self._past_round, stated(member).round)

    def has_ended(self, member: Member) -> bool:
        return member.last_step == self._rules.steps - 1

    def state(self) -> bytes:
        return Stated(self.round, self.pace.slow, self.agreement.testimony.ours).packed()

    def held(self) -> tuple[Held, ...]:
        return ()

    @property
    def has_result(self) -> bool:
        """If the run ends by agreement: do we have the agreed parameters?"""
        return self._is_agreed or not self._rules.agrees_at_end

    def _where(self) -> Progress:
        """How far we are, as neighbours are told."""
        life = self.life
        is_over = life.is_over or life.phase is Phase.LEFT
        can_serve = life.is_active or (life.is_over and self.has_result)
        return Progress(self.round, life.is_active, can_serve, is_over)

    @property
    def _meeting(self) -> Exchange | Agreement:
        """What the round of ours ends with."""
        return self.agreement if self._rules.is_agreement(self.round) else self.exchange

    # What operators are shown

    @property
    def phase(self) -> str:
        return self.life.phase.value

    @property
    def step(self) -> int:
        return min(self.round * self._rules.local_steps, self._rules.steps)

    @property
    def is_ready(self) -> bool:
        """Does it have parameters of the run, and take part?"""
        return self.life.is_active or self.life.is_over

    @property
    def is_doubted(self) -> bool:
        return False

    def describe(self, view: View) -> View:
        figures = {**view.figures, **figures_of(self), **self.shown}
        words = words_of(self, self._presence.membership, self._presence.ours.origin)
        pairs, copy = self.exchange.pairs, self.fetch.progress()
        return replace(view, figures=figures, words=words, pairs=pairs, catching_up=copy)

    def blockers(self, now: float) -> tuple[Blocker, ...]:
        return tuple(find_blockers(self, self._presence.membership, now))

    # What happened

    def recall(self, records: Mapping[bytes, bytes], now: float) -> None:
        self._now = self.since = self._forsaken_since = now
        self.ledger.recall(records)
        self._known = self._presence.membership.get(self._presence.ours.origin)
        self._presence.declare(first_step=STEP_MAX)
        self._outbox.order(Restore())

    def restored(self, serial: int, round_: int) -> None:
        """Answers a `Restore`: the numbers of the checkpoint that is loaded; zeros if it is the base model."""
        self.is_restored, self._has_parameters = True, serial > 0
        self._is_agreed = self._rules.agrees_at_end and round_ >= self._rules.rounds
        self.round = max(round_, self.ledger.last_round + 1)
        for partner, entry in self.ledger.restored(serial):
            self._outbox.order(Correct(entry.round, partner, entry.weight))

    def leave(self) -> None:
        if self.life.phase is Phase.LEFT:
            return
        if self._meeting.is_open:
            self._meeting.abandon(self._now)
            self._mix(self._now)
            self.round += 1
        if self.life.is_active:
            self._keep_checkpoint(self.round)
        self.life.enter(Phase.LEFT)
        self.talk.tell_progress()
        self._presence.leave(min(self.step, self._rules.steps - 1) - 1)  # `checkpointed` states that we have ended

    def connected(self, peer: OriginId, hello: Hello, now: float) -> None:
        self.talk.connected(peer, now)

    def disconnected(self, peer: OriginId) -> None:
        self.talk.disconnected(peer)

    def received(self, peer: OriginId, message: AlgorithmMessage, now: float) -> None:
        self.talk.received(peer, message, now)

    def answered(self, peer: OriginId, sent_at: float) -> None:
        pass

    # What the compute side answers

    def stepped(self, now: float) -> None:
        """Answers a `TakeLocalSteps`."""
        asked_at, count = self._asked_at
        self.pace.local_seconds = (now - asked_at) / count * self._local_steps
        self.is_computing = False
        if not self.life.is_active:
            return
        if self._meeting.is_open:
            self.life.enter(Phase.EXCHANGING)
        else:
            self._encode()

    def encoded(self, content: Content, now: float) -> None:
        """Answers an `Encode`. content: stays as it is until the exchange is over."""
        self.is_computing = False
        if not self.life.is_active:
            return
        if self.round + 1 - self._checkpoint_at >= self._checkpoint_rounds:
            self._keep_checkpoint(self.round + 1)
        self._meeting.begin(self.round, content, now)
        self._ahead = min(self._rules.delay_steps, self._steps_of(self.round + 1))
        if self._ahead:
            self._take_steps(self.round + 1, self._ahead, now)

    def checkpointed(self, serial: int) -> None:
        """Answers a `KeepCheckpoint`. Once our result is on the disk we state that we have ended. So hosts that go on
        with another run leave nobody behind."""
        for partner, round_ in self.ledger.checkpointed(serial):
            self._outbox.order(Drop(round_, partner))
        if self.life.is_over and serial >= self._last_serial and not self._presence.ours.has_left:
            self._presence.declare(last_step=self._rules.steps - 1)

    def adopted(self, *, is_right: bool) -> None:
        """Answers an `Adopt`. is_right: the copy has the digest that was offered, and is loaded."""
        self.fetch.adopted(is_right=is_right)
        if is_right:
            for partner, round_ in self.ledger.replaced():
                self._outbox.order(Drop(round_, partner))
            self._has_parameters = True
            self._is_agreed = self._rules.agrees_at_end and self.fetch.round >= self._rules.rounds
            self._keep_checkpoint(max(self.round, self.fetch.round))

    # What is due

    def advance(self, now: float) -> None:
        self._now = now
        if self._presence.changed:
            changed = set(self._presence.changed)
            self._presence.changed.clear()
            self.pace.heard(rounds_of(self._presence.membership, changed), now)
            self.agreement.heard(changed, now)
        self.carrier.advance(now)
        self.serve.advance(now)
        self.exchange.advance(now)
        self.agreement.advance(now)
        if self.life.phase is Phase.JOINING and self.is_restored:
            self._join(now)
        elif self.life.is_active:
            self._go_on(now)
        elif self.life.phase is Phase.FINISHING:
            self._finish(now)

    def compare(self, now: float) -> None:
        """Repeats messages that may have been lost, and tells all neighbours how far we are."""
        self.talk.tell_progress()
        self.exchange.remind()
        self.agreement.remind(self._now)
        if self.state() != self._presence.ours.algorithm and self.life.phase is not Phase.LEFT:
            self._presence.declare()

    def review(self, now: float) -> None:
        pass

    def report(self, now: float) -> None:
        if (copy := self.fetch.progress()) is not None:
            donor = self._presence.membership.name(copy.donor)
            self._outbox.tell("copy under way", donor=donor, held=copy.held, wanted=copy.wanted)
        found = self.blockers(now)
        if found and self._standstill.lasts((self.life.phase, self.round), now):
            facts = {"waiting_for": shorten([one.name for one in found]), "why": sorted({one.kind for one in found})}
            self._outbox.tell("waiting", "warning", step=self.step, **facts)

    def wake_at(self, now: float) -> float:
        times = [self.exchange.wake_at(), self.agreement.wake_at(), self.serve.wake_at(), self.fetch.wake_at(now)]
        if self.life.phase is Phase.JOINING:
            times += [self.since + self._patience.start_seconds, self._apart_at]
        if self.life.phase is Phase.FINISHING or self.is_waiting:
            times.append(self.since + self._patience.linger_seconds)
        later = (one for one in times if one > now)
        return min(self.carrier.wake_at(), *later, float("inf"))  # chunks may be due by the time that this is asked

    def queued(self, peer: OriginId) -> Iterable[AlgorithmMessage]:
        return ()

    # To begin

    def _join(self, now: float) -> None:
        """Begins once there are parameters to begin with."""
        if self.fetch.is_adopted:
            reached = self.talk.swarm_round()
            self.round = max(self.round, min(self.fetch.round, reached + 1), reached)  # a donor may overstate its round
            self._begin(now)
        elif self._lacks_result and now >= self._apart_at and not self.fetch.is_under_way:
            self._is_apart = True
            self._outbox.tell("ends with its own parameters: nobody had those that all agreed on", "warning")
            self._begin(now)
        elif self.fetch.is_under_way or (self._has_waited(now) and self._is_copy_needed()):
            self.fetch.least_round = self._rules.rounds if self._lacks_result else 0
            self.fetch.advance(self.talk.progress, now)
            if not self._lacks_result and self._is_forsaken(now):
                self._outbox.tell("nobody has a copy: begins with its own parameters", "warning", round=self.round)
                self._begin(now)
        elif self._has_waited(now):
            self._begin(now)

    def _has_waited(self, now: float) -> bool:
        """Do we know from a neighbour how far the others are, and are all of them there if the run has not begun? Or
        was that waited for long enough? Who has what all have agreed on needs nobody."""
        if self._rules.clients == 1 or self._is_agreed or now >= self.since + self._patience.start_seconds:
            return True
        membership = self._presence.membership
        has_begun = self._has_parameters or bool(membership.words())
        there = len(membership.present()) + membership.absentees()
        return bool(self.talk.progress) and (has_begun or there >= self._rules.clients)

    def _is_forsaken(self, now: float) -> bool:
        """Has no host that we can reach in the graph taken part for a long time? Then nobody has a copy, or will have
        one. Without a link we cannot know."""
        progress, us = self.talk.progress, self._presence.ours.origin
        is_hopeless = bool(progress) and not self.fetch.is_under_way
        is_hopeless = is_hopeless and not any(one.can_serve and self.fetch.is_likely(o) for o, one in progress.items())
        if not is_hopeless or is_anyone_taking_part(self._presence.membership, us):
            self._forsaken_since = now
        return now >= self._forsaken_since + self._patience.start_seconds

    def _is_copy_needed(self) -> bool:
        """Are the others so far ahead that parameters like ours would set them back?"""
        if self._lacks_result:
            return True
        if not self._has_parameters:
            return self.talk.swarm_round() > self._rules.fresh_rounds
        return self._is_stale()

    def _is_stale(self) -> bool:
        stale = self._rules.stale_rounds
        return stale > 0 and self.talk.swarm_round() - self.round > stale

    @property
    def _lacks_result(self) -> bool:
        """Have the others agreed at the end of the run, and we have not?"""
        reached = max(self.round, self.talk.swarm_round())
        return reached >= self._rules.rounds and not self.has_result and not self._is_apart

    @property
    def _apart_at(self) -> float:
        """Until when we wait for a neighbour that can give us the agreed parameters."""
        return self.since + self._patience.start_seconds + self._patience.linger_seconds

    def _begin(self, now: float) -> None:
        """Takes part, beginning with a round for which no past life of ours has offered anything."""
        self.fetch.end()
        self._has_parameters = True
        if self._is_forgetful:
            self.round = max(self.round, self._past_round + 1, self.talk.swarm_round())
        if not self._has_spoken:
            self._has_spoken = True
            self._presence.take_part(self.step)
        self._outbox.tell("takes part", round=self.round)
        self._begin_round(self.round, now)

    # Rounds

    def _begin_round(self, round_: int, now: float) -> None:
        self.round = round_
        if round_ >= self._rules.rounds:
            if self._lacks_result:
                self._take_copy("a copy is needed: all have agreed without us", now)
            else:
                self._end(now)
            return
        steps, self._ahead = self._steps_of(round_) - self._ahead, 0
        if steps > 0:
            self._take_steps(round_, steps, now)
        else:
            self._encode()
        self.talk.tell_progress()

    def _steps_of(self, round_: int) -> int:
        return self._local_steps if round_ < self._rules.training_rounds else 0

    def _take_steps(self, round_: int, count: int, now: float) -> None:
        self.life.enter(Phase.TRAINING)
        self.is_computing, self._asked_at = True, (now, count)
        self._outbox.order(TakeLocalSteps(round_, count))

    def _encode(self) -> None:
        """Our local steps are done. If the others are far ahead, these steps count for the round that the others have
        reached."""
        reached = min(self.talk.swarm_round(), self._rules.rounds - 1)
        if reached >= self.round + BEHIND_ROUNDS:
            self._jump(reached)
        self.life.enter(Phase.EXCHANGING)
        if self._rules.is_last_agreement(self.round):
            if not self.is_waiting:
                self.since = self._now
            self.is_waiting = bool(self.awaited_at_end(self._now)) or self._has_unmet(self._now)
            if self.is_waiting:
                return
        self.is_computing = True
        self._outbox.order(Encode(self.round, self._rules.encoding_of(self.round)))

    def awaited_at_end(self, now: float) -> set[OriginId]:
        """The hosts for which the agreement at the end of the run waits: all that still train and, for some time, those
        that are away. Without them the result would differ."""
        if self.agreement.is_decided(now):
            return set()
        told = {peer: one.round for peer, one in self.talk.progress.items()}
        ours, end = self._presence.ours.origin, self._rules.first_last_agreement
        still = standing_still(self._presence.membership, self.pace.silent(now), ours, end)
        linked, away = behind(self._presence.membership, ours, told, end, still)
        if now >= self._last_end(now):
            linked = set()
        return linked if now >= self.since + self._patience.linger_seconds else linked | away

    def _last_end(self, now: float) -> float:
        """Until when we wait for hosts that do not come to the end."""
        is_patience_over = (
            now >= self.since + self._patience.linger_seconds + LAST_PATIENCES * self.pace.patience_seconds
        )
        if is_patience_over or self.talk.swarm_round() >= self._rules.first_last_agreement:
            self._last_since = min(self._last_since, now)
        return self._last_since + LAST_PATIENCES * self.pace.patience_seconds

    def _has_unmet(self, now: float) -> bool:
        """Were fewer hosts met than the run has? They are waited for like those that are away."""
        membership = self._presence.membership
        met = sum(member.has_spoken for member in membership.all()) + membership.absentees()
        is_missing = met < self._rules.clients and now < self.since + self._patience.linger_seconds
        return is_missing and not self.agreement.is_decided(now)

    def _go_on(self, now: float) -> None:
        """Goes on to the next round if the exchange is over, or can no longer take place."""
        if self.is_waiting:
            self._encode()
            return
        while self._meeting.is_over and not self.is_computing and self.life.is_active:
            meeting, content = self._meeting, self._meeting.content
            if content is None:
                return
            reached = min(self.talk.swarm_round(), self._rules.rounds - 1)
            is_passed = meeting.is_vain and reached > self.round
            if is_passed and self._rules.are_alike(self.round, reached):  # our partners are there
                meeting.end(now)
                self._jump(reached)
                meeting.begin(self.round, content, now)
                continue
            self._mix(now)
            if self._is_stale():
                self.round += 1
                self._take_copy("takes a copy: too far behind", now)
            elif self._is_agreed:
                self._begin_round(self._rules.rounds, now)
            else:
                self._begin_round(reached if is_passed else self.round + 1, now)

    def _take_copy(self, why: str, now: float) -> None:
        """Goes on once it has one."""
        if self.life.phase is not Phase.JOINING:
            self.life.enter(Phase.JOINING)
        self.since, self._ahead = now, 0
        self._outbox.tell(why, "warning", round=self.round)
        self._join(now)

    def _jump(self, round_: int) -> None:
        self._outbox.tell("behind the others", round=self.round, goes_on_with=round_)
        self.round = round_
        self.talk.tell_progress()

    def _mix(self, now: float) -> None:
        """The outer step."""
        if self._rules.is_agreement(self.round):
            self._end_agreement(now)
        else:
            self._mix_pairs(now)

    def _end_agreement(self, now: float) -> None:
        if not self.agreement.end(now):
            self._outbox.order(Close(self.round))
            return
        for partner, round_ in self.ledger.replaced():
            self._outbox.order(Drop(round_, partner))
        self._is_agreed = self._rules.is_last_agreement(self.round)

    def _mix_pairs(self, now: float) -> None:
        shares = self.exchange.end(now)
        partners = self._presence.membership.names(share.partner for share in shares)
        facts = {"partners": partners, "seconds": round(self.exchange.seconds, 3)}
        self._outbox.tell("round exchanged", "debug", round=self.round, **facts)
        self._outbox.order(Mix(self.round, shares))

    # The end

    def _end(self, now: float) -> None:
        """No rounds are left."""
        self.life.enter(Phase.FINISHING)
        self.since = now
        self._outbox.tell("no steps left", step=self.step)
        self._last_serial = self._keep_checkpoint(self.round)
        self._presence.declare()
        self.talk.tell_progress()
        self._finish(now)

    def _finish(self, now: float) -> None:
        is_wanted = self.ledger.doubts() or self.talk.unfinished() or self.serve.peers
        if is_wanted and now < self.since + self._patience.linger_seconds:
            return
        if self.ledger.is_ahead:
            self._keep_checkpoint(self.round)
        self.life.enter(Phase.FINISHED)
        self._outbox.outputs.is_finished = True

    # Small things

    def _keep_checkpoint(self, round_: int) -> int:
        """Orders a checkpoint, and returns its serial. round_: the round with which to go on from it. One of the end of
        a run is of the agreed parameters, if it ends by agreement."""
        if not self.has_result:
            round_ = min(round_, self._rules.rounds - 1)
        self._checkpoint_at = round_
        serial = self.ledger.take_serial()
        self._outbox.order(KeepCheckpoint(serial, round_))
        return serial
