"""The course of a node: it joins, then goes through its rounds, each local steps and an exchange, and comes to the end.

Rounds have the same numbers on all hosts. A host that falls behind numbers its parameters with the round that the
others have reached, and nobody waits for it. They have reached it when half of the swarm has: a single neighbour could
lie. `phase` says which phases of a node may follow each other.

How a run begins and ends: docs/explanation/gossip.md.
"""

from dataclasses import dataclass

from seedflood.protocol.gasloc import orders
from seedflood.protocol.gasloc.agreement import Agreement
from seedflood.protocol.gasloc.conversation import Conversation
from seedflood.protocol.gasloc.exchange import Exchange
from seedflood.protocol.gasloc.joining import Joining
from seedflood.protocol.gasloc.pace import Pace
from seedflood.protocol.gasloc.phase import Lifecycle, Phase
from seedflood.protocol.gasloc.rules import GaslocRules
from seedflood.protocol.gasloc.transfer import Content
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.swarm.outputs import Outbox, Outputs
from seedflood.protocol.swarm.presence import Presence

BEHIND_ROUNDS = 2
"""A host that is this many rounds behind jumps to the round of the others: half of the swarm has exchanged the next
round, and exchanges the one after it."""


@dataclass(eq=False, repr=False)
class Checkpoints:
    """When a checkpoint is written, and what follows once it is on the disk.

    It holds whole rounds. Who starts again goes on from its last one, without what it has mixed since: that moves the
    mean of all replicas, as if these pairs had mixed at the other end alone (`exchange`).

    every_rounds: how often one is written. _last: the round of the last one. _is_result_unwritten: was there no
    space for that of our result?"""

    _rules: GaslocRules
    _every_rounds: int
    _presence: Presence
    _life: Lifecycle
    _outbox: Outbox[Outputs]
    _last: int = 0
    _is_result_unwritten: bool = False

    def keep(self, round_: int) -> None:
        """round_: the one with which to go on from it."""
        self._last = round_
        self._outbox.order(orders.KeepCheckpoint(round_))

    def mixed(self, round_: int) -> None:
        """A round is mixed. In closing rounds nothing is learned. They are few, and what all end with is kept at
        once."""
        following = round_ + 1
        is_last = following == self._rules.training_rounds
        is_due = following - self._last >= self._every_rounds
        if is_last or (is_due and not self._rules.is_closing(round_)):
            self.keep(following)

    def kept(self, round_: int, *, is_written: bool) -> None:
        """Once our result is on the disk we state that we have ended. So hosts that go on with another run leave nobody
        behind. A later checkpoint stands for one that a full disk did not take, but no later one comes for the
        result."""
        is_result = self._life.is_over and round_ >= self._rules.rounds
        if not is_written:
            self._is_result_unwritten |= is_result
        elif is_result and not self._presence.ours.has_left:
            self._presence.declare(last_step=self._rules.steps - 1)

    def try_again(self) -> None:
        if self._is_result_unwritten:
            self._is_result_unwritten = False
            self.keep(self._rules.rounds)


@dataclass(eq=False, repr=False)
class Course:
    """round: the one whose local steps are being done, or which is exchanged. is_restored: is what our disk has loaded?
    is_computing: do we wait for the compute side? has_spoken: have we stated that we take part?

    _local_steps: ours in a round. _asked_at: when they were ordered last, and how many. _ahead: those of the next round
    that are done, or being done, while this one is exchanged. _has_met: have all come to the closing rounds, or were
    waited for?
    """

    _rules: GaslocRules
    _local_steps: int
    _presence: Presence
    _life: Lifecycle
    _pace: Pace
    _exchange: Exchange
    _talk: Conversation
    _joining: Joining
    _agreement: Agreement
    _checkpoints: Checkpoints
    _outbox: Outbox[Outputs]
    round: int = 0
    is_restored: bool = False
    is_computing: bool = False
    has_spoken: bool = False
    _asked_at: tuple[float, int] = (0.0, 0)
    _ahead: int = 0
    _has_met: bool = False
    _now: float = 0.0

    def __post_init__(self) -> None:
        self._fetch = self._talk.fetch

    def begin(self, now: float) -> None:
        """What the disk has is loaded first."""
        self._now = now
        self._joining.recall(now)
        self._presence.declare(first_step=STEP_MAX)
        self._outbox.order(orders.Restore())

    def advance(self, now: float) -> None:
        """Takes the next step, if one is due."""
        self._now = now
        if self._life.phase is Phase.JOINING and self.is_restored:
            self._join(now)
        elif self._life.is_active:
            self._go_on(now)
        elif self._life.phase in (Phase.CHOOSING, Phase.FINISHING):
            self._agreement.advance(now)

    def break_off(self) -> None:
        """We leave: what was exchanged so far is mixed and kept."""
        is_encoding = self._life.phase is Phase.EXCHANGING and self.is_computing
        if self._exchange.is_open:
            self._exchange.abandon(self._now)
            self._mix(self._now)
            self.round += 1
        elif is_encoding:
            self._order_mix(())
            self.round += 1
        if self._life.is_active:
            self._checkpoints.keep(self.round)
        self._life.enter(Phase.LEFT)

    # What the compute side answers

    def restored(self, round_: int | None) -> None:
        self.is_restored, self._joining.has_parameters = True, round_ is not None
        self.round = round_ or 0
        self._agreement.has_result = self.round >= self._rules.rounds

    def adopted(self, *, is_right: bool) -> None:
        self._fetch.adopted(is_right=is_right)
        if is_right:
            self._joining.has_parameters = True
            self._checkpoints.keep(max(self.round, self._fetch.round))

    def stepped(self, now: float) -> None:
        asked_at, count = self._asked_at
        self._pace.local_seconds = (now - asked_at) / count * self._local_steps
        self.is_computing = False
        if not self._life.is_active:
            return
        if self._exchange.is_open:
            self._life.enter(Phase.EXCHANGING)
        else:
            self._prepare_exchange()

    def encoded(self, content: Content, now: float) -> None:
        self.is_computing = False
        if not self._life.is_active:
            return
        self._exchange.begin(self.round, content, now)
        self._ahead = min(self._rules.delay_steps, self._steps_of(self.round + 1))
        if self._ahead:
            self._take_steps(self.round + 1, self._ahead, now)

    # To begin

    def _join(self, now: float) -> None:
        """Begins once there are parameters to begin with."""
        if self._fetch.is_adopted:
            reached = self._talk.swarm_round()
            copied = min(self._fetch.round, reached + 1)  # a donor may overstate its round
            self.round = max(self.round, copied, reached)
            self._begin(now)
            return
        # Who has the replica of the end needs nobody.
        has_waited = self._agreement.has_result or self._joining.has_waited(now)
        if self._fetch.is_under_way or (has_waited and self._joining.is_copy_needed(self.round)):
            self._fetch.advance(self._talk.donors(), now)
            if self._joining.is_forsaken(now):
                self.round = max(self.round, self._talk.swarm_round())  # so that none is sought again at once
                self._outbox.log("nobody has a copy: begins with its own parameters", "warning", round=self.round)
                self._begin(now)
        elif has_waited:
            self._begin(now)

    @property
    def _has_ended(self) -> bool:
        """Is the run over for most of the others?"""
        return self._talk.swarm_round() >= self._rules.rounds

    def _begin(self, now: float) -> None:
        """Takes part."""
        self._fetch.end()
        self._joining.has_parameters = True
        stands = self.round >= self._rules.rounds  # who has not come to the end takes what the others have
        if self._has_ended:
            self.round = self._rules.rounds
        if not self.has_spoken:
            self.has_spoken = True
            word, step = self._presence.membership.spoken(self._presence.ours.origin), self._rules.step_of(self.round)
            last_step = self._rules.steps - 1
            if word is not None and word.last_step == last_step:
                self._presence.go_on(word)  # it may come to hold another replica than it stated
            elif word is not None and word.has_left:  # the closing rounds belong to the last step: else nobody waits
                self._presence.take_part(min(step, last_step))
            else:
                self._presence.take_part(step)
        self._outbox.log("takes part", round=self.round)
        self._begin_round(self.round, now, stands=stands)

    # Rounds

    def _begin_round(self, round_: int, now: float, *, stands: bool = True) -> None:
        """stands: at the end of the run, may our replica be the one that all take?"""
        self.round = round_
        if round_ >= self._rules.rounds:
            self._outbox.log("no steps left", step=self._rules.step_of(self.round))
            self._agreement.begin(now, stands=stands)
            return
        steps, self._ahead = self._steps_of(round_) - self._ahead, 0
        if steps > 0:
            self._take_steps(round_, steps, now)
        else:
            self._prepare_exchange()
        self._talk.send_progress()

    def _steps_of(self, round_: int) -> int:
        return self._local_steps if round_ < self._rules.training_rounds else 0

    def _take_steps(self, round_: int, count: int, now: float) -> None:
        self._life.enter(Phase.TRAINING)
        self.is_computing, self._asked_at = True, (now, count)
        self._outbox.order(orders.TakeLocalSteps(round_, count))

    def _prepare_exchange(self) -> None:
        """Our local steps are done, or we wait before the closing rounds: has our parameters encoded, with which the
        exchange begins. If the others are ahead, the steps count for the round that they have reached. If they are far
        ahead, our parameters give way to a copy."""
        reached = self._talk.swarm_round()
        self._life.enter(Phase.EXCHANGING)
        if reached >= self._rules.rounds:
            self._begin_round(reached, self._now, stands=False)
            return
        if self._joining.is_copy_needed(self.round):
            self._join_again(reached)
            return
        if reached >= self.round + BEHIND_ROUNDS:
            self._jump(reached)
        if self._rules.is_closing(self.round) and not self._has_met:
            if self._agreement.wait.lasts(self._rules.training_rounds, self._now):
                return
            self._has_met = True
        self.is_computing = True
        self._outbox.order(orders.Encode(self.round, self._rules.encoding_of(self.round)))

    def _go_on(self, now: float) -> None:
        """Goes on to the next round if the exchange is over, or can no longer take place."""
        if self._agreement.wait.is_under_way:
            self._prepare_exchange()
            return
        exchange, rules = self._exchange, self._rules
        while exchange.is_over and not self.is_computing and self._life.is_active:
            content = exchange.content
            if content is None:
                return
            reached = min(self._talk.swarm_round(), rules.rounds - 1)
            is_passed = exchange.is_vain and reached > self.round
            if is_passed and self._joining.is_copy_needed(self.round):
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
        self._outbox.log("far behind the others: takes a copy", "warning", round=self.round, reached=reached)
        self._ahead = 0
        self._joining.begin(self._now)
        self._life.enter(Phase.JOINING)
        self._talk.send_progress()

    def _jump(self, round_: int) -> None:
        self._outbox.log("behind the others", round=self.round, goes_on_with=round_)
        self.round = round_
        self._talk.send_progress()

    def _mix(self, now: float) -> None:
        """The outer step."""
        shares = self._exchange.end(now)
        partners = self._presence.membership.names(share.partner for share in shares)
        facts = {"partners": partners, "seconds": round(self._exchange.seconds, 3)}
        self._outbox.log("round exchanged", "debug", round=self.round, **facts)
        self._order_mix(shares)
        self._checkpoints.mixed(self.round)

    def _order_mix(self, shares: tuple[orders.Share, ...]) -> None:
        has_momentum = not self._rules.is_closing(self.round)
        self._outbox.order(orders.Mix(self.round, shares, has_momentum))
