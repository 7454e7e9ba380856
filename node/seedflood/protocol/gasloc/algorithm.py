"""GASLoC as an algorithm of a swarm: local steps, then an exchange of parameters with the partners of the round.

`phase` says which phases of a node may follow each other. Rounds have the same numbers on all hosts. A host that falls
behind numbers its parameters with the round that the others have reached: it has done fewer steps, and nobody waits for
it. If it lacks most of the rounds it takes a copy, as who joins does.

The others have reached a round when half of the swarm has: a single neighbour could lie. The first round waits for all
hosts, but no longer than a start may take. A host that starts again states no rounds until it takes part, so meanwhile
its last word counts; else hosts that all start again would take the run for a new one.

A run ends with three closing rounds, exchanges with all neighbours without local steps, before which all wait for
those that still train. They bring replicas near each other. Then all end with one replica (`choice`), before which they
wait for each other again.

A checkpoint holds whole rounds. Who starts again goes on from its last one, without what it has mixed since: that moves
the mean of all replicas, as if these pairs had mixed at the other end alone (`exchange`).
"""

from collections.abc import Mapping
from dataclasses import replace

from seedflood.protocol.gasloc import orders
from seedflood.protocol.gasloc.agreement import Agreement
from seedflood.protocol.gasloc.carrier import Carrier
from seedflood.protocol.gasloc.conversation import Conversation
from seedflood.protocol.gasloc.copies import Fetch, Serve
from seedflood.protocol.gasloc.exchange import Exchange
from seedflood.protocol.gasloc.joining import Joining
from seedflood.protocol.gasloc.messages import Progress
from seedflood.protocol.gasloc.pace import Pace
from seedflood.protocol.gasloc.phase import Lifecycle, Phase
from seedflood.protocol.gasloc.rules import GaslocRules, Habits
from seedflood.protocol.gasloc.sight import figures_of, find_blockers, words_of
from seedflood.protocol.gasloc.statement import Stated, rounds_of
from seedflood.protocol.gasloc.transfer import Content, Sinks
from seedflood.protocol.gasloc.trust import Trust
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.swarm.algorithm import Algorithm
from seedflood.protocol.swarm.membership import shorten
from seedflood.protocol.swarm.messages import AlgorithmMessage, Hello, Member
from seedflood.protocol.swarm.outputs import Outbox, Outputs
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.swarm.standstill import Standstill
from seedflood.protocol.view import Blocker, View

BEHIND_ROUNDS = 2
"""A host that is this many rounds behind jumps to the round of the others: half of the swarm has exchanged the next
round, and exchanges the one after it."""


class Gasloc(Algorithm):
    """GASLoC on one node. round: the one whose local steps are being done, or which is exchanged.

    is_restored: is what our disk has loaded?

    Work. is_computing: do we wait for the compute side? _asked_at: when local steps were ordered last, and how many.
    _ahead: local steps of the next round that are done, or being done, while this one is exchanged. _checkpoint_at: the
    round of the last checkpoint. _has_met: have all come to the closing rounds, or were waited for?
    """

    has_spoken = False

    def __init__(
        self, rules: GaslocRules, presence: Presence, outbox: Outbox[Outputs], sinks: Sinks, habits: Habits
    ) -> None:
        bounds = habits.bounds
        self.round = 0
        self.life = Lifecycle()
        self.pace = Pace(bounds, presence.delays)
        self.carrier = Carrier(presence.neighbours, sinks, outbox, bounds.chunk_bytes)
        self.trust = Trust(presence, outbox)
        self.exchange = Exchange(rules, bounds, presence, self.pace, self.carrier, self.trust, outbox)
        self.serve = Serve(bounds, self.carrier, outbox)
        self.fetch = Fetch(rules, bounds, presence.neighbours, self.carrier, self.trust, self.serve, outbox)
        self.talk = Conversation(rules, presence, self.carrier, self.exchange, self.fetch, self.serve, self._where)
        self.joining = Joining(rules, habits.patience, presence, self.talk, self.fetch)
        self.agreement = Agreement(rules, habits, presence, self.pace, self.life, self.talk, outbox)
        self._rules = rules
        self._presence = presence
        self._outbox = outbox
        self._local_steps, self._checkpoint_rounds = habits.local_steps or rules.local_steps, habits.checkpoint_rounds
        self.is_restored = self.is_computing = False
        self._is_result_unwritten = False
        """Was there no space for the checkpoint of our result?"""
        self._ahead = self._checkpoint_at = 0
        self._asked_at = (0.0, 0)
        self._has_met = False
        self._now = 0.0
        self._standstill = Standstill()
        self.shown: dict[str, float] = {}
        """Figures of the compute side, which are shown beside ours."""

    # What the swarm says of us

    @property
    def is_forgetful(self) -> bool:
        return self.joining.is_forgetful

    def hear_of_past(self, member: Member) -> None:
        self.joining.hear_of_past(member)

    def state(self) -> bytes:
        choice = self.agreement.choice
        return Stated(self.round, self.pace.slow, choice.ours, tuple(choice.refused)).packed()

    def _where(self) -> Progress:
        """How far we are, as neighbours are told."""
        return Progress(self.round, self.life.is_active, self.life.phase not in (Phase.JOINING, Phase.LEFT))

    # What operators are shown

    @property
    def phase(self) -> str:
        return self.life.phase.value

    @property
    def step(self) -> int:
        return self._step_in(self.round)

    def _step_in(self, round_: int) -> int:
        return min(round_ * self._rules.local_steps, self._rules.steps)

    @property
    def is_ready(self) -> bool:
        """Does it have parameters of the run, and take part?"""
        return self.life.phase not in (Phase.JOINING, Phase.LEFT)

    def describe(self, view: View) -> View:
        figures = {**view.figures, **figures_of(self), **self.shown}
        words = words_of(self, self._presence.membership, self._presence.ours.origin)
        pairs, copy = self.exchange.pairs, self.fetch.progress()
        members = tuple(replace(one, mark=self._step_in(self.talk.round_of(one.origin))) for one in view.members)
        return replace(view, figures=figures, words=words, pairs=pairs, catching_up=copy, members=members)

    def blockers(self, now: float) -> tuple[Blocker, ...]:
        return tuple(find_blockers(self, self._presence.membership, now))

    # What happened

    def recall(self, records: Mapping[bytes, bytes], now: float) -> None:
        self._now = now
        self.joining.recall(now)
        self._presence.declare(first_step=STEP_MAX)
        self._outbox.order(orders.Restore())

    def _restored(self, round_: int | None) -> None:
        self.is_restored, self.joining.has_parameters = True, round_ is not None
        self.round = round_ or 0
        self.agreement.has_result = self.round >= self._rules.rounds

    def leave(self) -> None:
        if self.life.phase is Phase.LEFT:
            return
        is_encoding = self.life.phase is Phase.EXCHANGING and self.is_computing
        if self.exchange.is_open:
            self.exchange.abandon(self._now)
            self._mix(self._now)
            self.round += 1
        elif is_encoding:
            self._order_mix(())
            self.round += 1
        if self.life.is_active:
            self._keep_checkpoint(self.round)
        self.life.enter(Phase.LEFT)
        self.talk.tell_progress()
        self._presence.leave(min(self.step, self._rules.steps - 1) - 1)  # `_checkpointed` states that we have ended

    def connected(self, peer: OriginId, hello: Hello, now: float) -> None:
        self._presence.declare_neighbours()  # who is matched with whom depends on it
        self.talk.connected(peer, now)

    def disconnected(self, peer: OriginId) -> None:
        self.talk.disconnected(peer)
        self._presence.declare_neighbours()

    def received(self, peer: OriginId, message: AlgorithmMessage, now: float) -> None:
        self.talk.received(peer, message, now)
        if peer in self.talk.progress:  # sooner than by its statement
            self.pace.heard({peer: self.talk.progress[peer].round}, now)

    # What the compute side answers

    def answer(self, answer: orders.Answer, now: float) -> None:
        match answer:
            case orders.Restored(round_):
                self._restored(round_)
            case orders.Stepped():
                self._stepped(now)
            case orders.Encoded(content):
                self._encoded(content, now)
            case orders.RoundMixed(refused):
                self.exchange.refused(refused)
            case orders.Checkpointed(round_, is_written):
                self._checkpointed(round_, is_written=is_written)
            case orders.Opened(peer, copy, round_):
                self.serve.opened(peer, copy, round_, now)
            case orders.Adopted(is_right):
                self._adopted(is_right=is_right)
            case orders.Ready(content):
                self.agreement.published(content)
            case orders.Taken():
                self.agreement.taken(answer)

    def _stepped(self, now: float) -> None:
        asked_at, count = self._asked_at
        self.pace.local_seconds = (now - asked_at) / count * self._local_steps
        self.is_computing = False
        if not self.life.is_active:
            return
        if self.exchange.is_open:
            self.life.enter(Phase.EXCHANGING)
        else:
            self._prepare_exchange()

    def _encoded(self, content: Content, now: float) -> None:
        self.is_computing = False
        if not self.life.is_active:
            return
        self.exchange.begin(self.round, content, now)
        self._ahead = min(self._rules.delay_steps, self._steps_of(self.round + 1))
        if self._ahead:
            self._take_steps(self.round + 1, self._ahead, now)

    def _checkpointed(self, round_: int, *, is_written: bool) -> None:
        """Once our result is on the disk we state that we have ended. So hosts that go on
        with another run leave nobody behind. A later checkpoint stands for one that a full disk did not take, but no
        later one comes for the result."""
        is_result = self.life.is_over and round_ >= self._rules.rounds
        if not is_written:
            self._is_result_unwritten |= is_result
        elif is_result and not self._presence.ours.has_left:
            self._presence.declare(last_step=self._rules.steps - 1)

    def _adopted(self, *, is_right: bool) -> None:
        self.fetch.adopted(is_right=is_right)
        if is_right:
            self.joining.has_parameters = True
            self._keep_checkpoint(max(self.round, self.fetch.round))

    # What is due

    def advance(self, now: float) -> None:
        self._now = now
        if self._presence.changed:
            changed = set(self._presence.changed)
            self._presence.changed.clear()
            self.pace.heard(rounds_of(self._presence.membership, changed), now)
        self.carrier.advance(now)
        self.serve.advance(now)
        self.exchange.advance(now)
        if self.life.phase is Phase.JOINING and self.is_restored:
            self._join(now)
        elif self.life.is_active:
            self._go_on(now)
        elif self.life.phase in (Phase.CHOOSING, Phase.FINISHING):
            self.agreement.advance(now)

    def compare(self, now: float) -> None:
        """Repeats messages that may have been lost, and tells all neighbours how far we are."""
        self.talk.tell_progress()
        self.exchange.remind()
        if self._is_result_unwritten:
            self._is_result_unwritten = False
            self._outbox.order(orders.KeepCheckpoint(self._rules.rounds))
        if self.state() != self._presence.ours.algorithm and self.life.phase is not Phase.LEFT:
            self._presence.declare()

    def report(self, now: float) -> None:
        if (copy := self.fetch.progress()) is not None:
            donor = self._presence.membership.name(copy.donor)
            self._outbox.tell("copy under way", donor=donor, held=copy.held, wanted=copy.wanted)
        found = self.blockers(now)
        if found and self._standstill.lasts((self.life.phase, self.round), now):
            facts = {"waiting_for": shorten([one.name for one in found]), "why": sorted({one.kind for one in found})}
            self._outbox.tell("waiting", "warning", step=self.step, **facts)

    def wake_at(self, now: float) -> float:
        times = [self.exchange.wake_at(), self.serve.wake_at(), self.fetch.wake_at(now)]
        if self.life.phase is Phase.JOINING:
            times.append(self.joining.patient_until)
        if self.agreement.wait.is_under_way:
            times.append(self.agreement.wait.wake_at())
        if self.life.phase in (Phase.CHOOSING, Phase.FINISHING):
            times.append(self.agreement.wake_at(now))
        later = (one for one in times if one > now)
        return min(self.carrier.wake_at(), *later, float("inf"))

    # To begin

    def _join(self, now: float) -> None:
        """Begins once there are parameters to begin with."""
        if self.fetch.is_adopted:
            reached = self.talk.swarm_round()
            self.round = max(self.round, min(self.fetch.round, reached + 1), reached)  # a donor may overstate its round
            self._begin(now)
            return
        # who has the replica of the end needs nobody
        has_waited = self.agreement.has_result or self.joining.has_waited(now)
        if self.fetch.is_under_way or (has_waited and self.joining.is_copy_needed(self.round)):
            self.fetch.advance(self.talk.donors(), now)
            if self.joining.is_forsaken(now):
                self.round = max(self.round, self.talk.swarm_round())  # so that none is sought again at once
                self._outbox.tell("nobody has a copy: begins with its own parameters", "warning", round=self.round)
                self._begin(now)
        elif has_waited:
            self._begin(now)

    @property
    def _has_ended(self) -> bool:
        """Is the run over for most of the others?"""
        return self.talk.swarm_round() >= self._rules.rounds

    def _begin(self, now: float) -> None:
        """Takes part."""
        self.fetch.end()
        self.joining.has_parameters = True
        stands = self.round >= self._rules.rounds  # who has not come to the end takes what the others have
        if self._has_ended:
            self.round = self._rules.rounds
        if not self.has_spoken:
            self.has_spoken = True
            word = self._presence.membership.spoken(self._presence.ours.origin)
            if (
                word is not None and word.last_step == self._rules.steps - 1
            ):  # it may come to hold another replica than it stated
                self._presence.go_on(word)
            elif word is not None and word.has_left:  # the closing rounds belong to the last step: else nobody waits
                self._presence.take_part(min(self.step, self._rules.steps - 1))
            else:
                self._presence.take_part(self.step)
        self._outbox.tell("takes part", round=self.round)
        self._begin_round(self.round, now, stands=stands)

    # Rounds

    def _begin_round(self, round_: int, now: float, *, stands: bool = True) -> None:
        """stands: at the end of the run, may our replica be the one that all take?"""
        self.round = round_
        if round_ >= self._rules.rounds:
            self._outbox.tell("no steps left", step=self.step)
            self.agreement.begin(now, stands=stands)
            return
        steps, self._ahead = self._steps_of(round_) - self._ahead, 0
        if steps > 0:
            self._take_steps(round_, steps, now)
        else:
            self._prepare_exchange()
        self.talk.tell_progress()

    def _steps_of(self, round_: int) -> int:
        return self._local_steps if round_ < self._rules.training_rounds else 0

    def _take_steps(self, round_: int, count: int, now: float) -> None:
        self.life.enter(Phase.TRAINING)
        self.is_computing, self._asked_at = True, (now, count)
        self._outbox.order(orders.TakeLocalSteps(round_, count))

    def _prepare_exchange(self) -> None:
        """Our local steps are done, or we wait before the closing rounds: has our parameters encoded, with which the
        exchange begins. If the others are ahead, the steps count for the round that they have reached. If they are far
        ahead, our parameters give way to a copy."""
        reached = self.talk.swarm_round()
        self.life.enter(Phase.EXCHANGING)
        if reached >= self._rules.rounds:
            self._begin_round(reached, self._now, stands=False)
            return
        if self.joining.is_copy_needed(self.round):
            self._join_again(reached)
            return
        if reached >= self.round + BEHIND_ROUNDS:
            self._jump(reached)
        if self._rules.is_closing(self.round) and not self._has_met:
            if self.agreement.wait.lasts(self._rules.training_rounds, self._now):
                return
            self._has_met = True
        self.is_computing = True
        self._outbox.order(orders.Encode(self.round, self._rules.encoding_of(self.round)))

    def _go_on(self, now: float) -> None:
        """Goes on to the next round if the exchange is over, or can no longer take place."""
        if self.agreement.wait.is_under_way:
            self._prepare_exchange()
            return
        exchange, rules = self.exchange, self._rules
        while exchange.is_over and not self.is_computing and self.life.is_active:
            content = exchange.content
            if content is None:
                return
            reached = min(self.talk.swarm_round(), rules.rounds - 1)
            is_passed = exchange.is_vain and reached > self.round
            if is_passed and self.joining.is_copy_needed(self.round):
                self._mix(now)
                self._join_again(reached)
                return
            if is_passed and rules.encoding_of(self.round) == rules.encoding_of(reached):  # our partners are there
                exchange.end(now)
                self._jump(reached)
                exchange.begin(self.round, content, now)
                continue
            self._mix(now)
            if self._has_ended:
                self._begin_round(rules.rounds, now, stands=rules.is_closing(self.round))
            else:
                self._begin_round(reached if is_passed else self.round + 1, now)

    def _join_again(self, reached: int) -> None:
        """Our parameters would set the others back."""
        self._outbox.tell("far behind the others: takes a copy", "warning", round=self.round, reached=reached)
        self._ahead = 0
        self.joining.begin(self._now)
        self.life.enter(Phase.JOINING)
        self.talk.tell_progress()

    def _jump(self, round_: int) -> None:
        self._outbox.tell("behind the others", round=self.round, goes_on_with=round_)
        self.round = round_
        self.talk.tell_progress()

    def _mix(self, now: float) -> None:
        """The outer step."""
        shares = self.exchange.end(now)
        partners = self._presence.membership.names(share.partner for share in shares)
        facts = {"partners": partners, "seconds": round(self.exchange.seconds, 3)}
        self._outbox.tell("round exchanged", "debug", round=self.round, **facts)
        self._order_mix(shares)
        is_closing = self._rules.is_closing(self.round)
        # In closing rounds nothing is learned. They are few, and what all end with is kept at once.
        is_last = self.round + 1 == self._rules.training_rounds
        is_due = self.round + 1 - self._checkpoint_at >= self._checkpoint_rounds
        if is_last or (is_due and not is_closing):
            self._keep_checkpoint(self.round + 1)

    def _order_mix(self, shares: tuple[orders.Share, ...]) -> None:
        has_momentum = not self._rules.is_closing(self.round)
        self._outbox.order(orders.Mix(self.round, shares, has_momentum))

    def _keep_checkpoint(self, round_: int) -> None:
        """round_: the one with which to go on from it."""
        self._checkpoint_at = round_
        self._outbox.order(orders.KeepCheckpoint(round_))
