"""The course of a node that trains: it joins, then goes through its rounds, and ends.

A round is measured once enough earlier rounds are applied. The measurement is published, and the window of the round
closes when the updates of everyone who takes part are here, or time is up. `phase` says which phases of a node may
follow each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.bundles import UpdateValue, make_bundle
from seedflood.protocol.seedflood.divergence import DIGEST_ROUNDS
from seedflood.protocol.seedflood.ending import Ending
from seedflood.protocol.seedflood.exchange import Exchange
from seedflood.protocol.seedflood.holdings import Holdings
from seedflood.protocol.seedflood.outputs import Measure, Outputs
from seedflood.protocol.seedflood.phase import Lifecycle, Phase
from seedflood.protocol.seedflood.rounds import first_round, swarm_round
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.window import OpenWindows
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.outputs import Outbox, Record
from seedflood.protocol.swarm.presence import Presence

STOP_KEY = b"stop"
"""Of the record of where a run ended early."""

STOPPED = "the hosts lose no less than in the best epoch: the run ends with its best state"


@dataclass(eq=False, repr=False)
class Course:
    """That of a trainer. step: the first step of the round that is measured now, or was measured last. has_ended: have
    we ended the run, in this life?"""

    _rules: Rules
    _life: Lifecycle
    _presence: Presence
    _holdings: Holdings
    _exchange: Exchange
    _ending: Ending
    _windows: OpenWindows
    _outbox: Outbox[Outputs]
    step: int = 0
    has_ended: bool = False
    is_relay = False

    def __post_init__(self) -> None:
        self._origin = self._presence.ours.origin
        self._membership = self._presence.membership
        self._frontier = self._holdings.frontier
        self._catchup = self._exchange.catchup

    def resume(self, past: Member | None, now: float) -> None:
        """Says that we are here (again), and takes up the round in which a past life ended."""
        last_own = self._frontier.last(self._origin)
        is_new = past is None or not past.has_spoken or (last_own < 0 and not past.has_left)
        if past is None or is_new or self._catchup.is_amnesic:
            self._presence.declare(first_step=STEP_MAX)
            return
        self._presence.go_on(past)
        if past.has_left or last_own < past.first_step or self._lost_step() is not None:
            self.step = last_own + 1
        else:
            self.step = self._rules.round_of(last_own)
            self._windows.reopen(self.step, now)
            self._windows.open(self.step, now)

    @property
    def is_ready(self) -> bool:
        """Does the node take part, with a replica that was seen to equal a neighbour's?"""
        divergence = self._exchange.divergence
        is_up = self._life.phase not in (Phase.JOINING, Phase.LEFT) and not divergence.is_rebuilding
        return is_up and (divergence.is_agreed or self._rules.clients == 1)

    def compare(self, now: float) -> None:
        """Once per comparison period: what a relay does in place of rounds."""

    def advance(self, now: float) -> None:
        """Takes every transition that is due."""
        if self._life.phase is Phase.JOINING and self._may_speak(now):
            self._speak(now)
        while self._life.phase is Phase.COLLECTING and self._close_window(now):
            pass
        if self._life.phase in (Phase.FINISHING, Phase.FINISHED):
            self._holdings.apply_before(self._ending.steps)
            self._close_epochs()  # once more those that were opened again
        if self._life.phase is Phase.FINISHING:
            self._finish(now)

    def publish(self, step: int, probes: Sequence[UpdateValue], now: float) -> None:
        if self._life.phase is not Phase.MEASURING or step != self.step:
            return  # the round was overtaken by a drain
        if self._rules.window == "strict":  # then others wait for every step
            since = self._frontier.mark(self._origin)
        else:
            since = max(self._frontier.last(self._origin) + 1, self._catchup.published_before)
        # A past life may have published this step, or in bounded windows a later one, and it turned up meanwhile: then
        # that stands.
        if step >= since and not self._frontier.holds(self._origin, step):
            assert self._rules.compression.admits(probes), "we send what every relay refuses"
            self._presence.declare_new_neighbours()
            bundle = make_bundle(self._origin, step, probes, skipped=step - since)
            key = self._presence.ours.public_key
            bundle = bundle.with_signature(self._presence.sign(bundle.signed_bytes(self._rules.run_id, key)))
            self._outbox.outputs.is_durable = True
            self._holdings.publish(bundle)
        self._windows.open(step, now)
        self._life.enter(Phase.COLLECTING)

    def stop(self, step: int, now: float) -> None:
        """The run ends before this step. Windows that are open are of steps that do not count."""
        if self._life.phase is Phase.MEASURING and step == self.step:
            self._outbox.log(STOPPED, step=step)
            self._ending.steps = step
            self._outbox.keep_record(Record(STOP_KEY, step.to_bytes(8, "big")))
            self._windows.clear()
            self._end(step, now)

    def _speak(self, now: float) -> None:
        """Enough is known: goes on with the open windows of a past life, or begins with the round that is next."""
        self._outbox.log("caught up", updates=self._frontier.count())
        if self._catchup.is_amnesic:
            self._windows.clear()  # what the journal knew last was not all
        if self._windows.oldest is not None:
            self._holdings.apply_before(self._windows.oldest.first)
            self._close_epochs()  # others may wait for our word to adopt what they lack
            self._life.enter(Phase.COLLECTING)
            return
        first = self.next_step()
        self._presence.take_part(first, is_anew=self._is_turn_lost(first))
        self._holdings.apply_before(self._rules.applied_before(first))
        self._windows.reopen(first, now)
        self._begin_round(first, now)

    def _may_speak(self, now: float) -> bool:
        """Is enough known? A node that is alone, or holds the whole run, needs to know nothing."""
        has_met_others = any(word.origin != self._origin for word in self._membership.words())
        is_nothing_to_know = self._rules.clients == 1 or (has_met_others and self._ending.holds_everything())
        return is_nothing_to_know or self._exchange.may_speak(self.next_step(), now)

    # Which round comes next

    def next_step(self) -> int:
        """What would be measured next if a node that joins could speak now."""
        latest = self._windows.latest
        if latest is not None and not self._catchup.is_amnesic:
            return latest.last + 1
        if (lost := self._lost_step()) is not None:
            return lost
        word, steps = self._membership.spoken(self._origin), self._rules.steps
        if self._rules.turn_rounds > 1 and word is not None and not word.has_left:  # our next turn is waited for
            first = max(word.first_step, self._frontier.last(self._origin) + 1, self._catchup.published_before)
            return min(first, steps)
        has_ended = self._holdings.closings.has_anyone_ended
        first = first_round(self._origin, self._rules, self._membership, self._frontier, has_anyone_ended=has_ended)
        return min(max(first, self._catchup.published_before), steps)

    def _following(self) -> int:
        """The round after this one; in bounded windows perhaps a later one, in which the others are."""
        following = self.step + self._rules.local_steps
        if self._rules.window == "strict":
            return following
        return max(following, swarm_round(self._origin, self._rules, self._membership, self._frontier))

    def _is_turn_lost(self, first: int) -> bool:
        """Is a turn of ours before this step lost? Our next bundle skips it, and cannot come as long as others wait for
        what nobody holds."""
        word, owed = self._membership.spoken(self._origin), self._rules.turns.last(self._origin, first - 1)
        is_owed = self._rules.turn_rounds > 1 and word is not None and owed >= word.first_step
        return is_owed and not self._frontier.holds(self._origin, owed)

    def _lost_step(self) -> int | None:
        """In strict windows: the first step since we take part that is lost, though later ones of ours are held. Nobody
        can go on without it, so it is measured again: with the same updates applied, for nobody has applied others."""
        if self._rules.window != "strict":
            return None
        word, last = self._membership.spoken(self._origin), self._frontier.last(self._origin)
        first = word.first_step if word is not None else 0
        return next((max(first, low) for low, high in self._frontier.gaps(self._origin, last) if high >= first), None)

    def may_apply_before(self) -> int:
        """While a node joins: the step below which updates may be applied. In strict windows what belongs to a round
        that it will measure itself has to wait."""
        return STEP_MAX if self._rules.window != "strict" else self._rules.applied_before(self.next_step())

    # Rounds

    def _begin_round(self, step: int, now: float) -> None:
        self.step = step
        self._close_epochs()
        if step // self._rules.local_steps % DIGEST_ROUNDS == 0:
            self._exchange.divergence.take()
        if step < self._rules.steps:
            self._life.enter(Phase.MEASURING)
            self._windows.began_at = now
            if self._rules.turns.has(self._origin, step):
                self._outbox.order(Measure(step, self._rules.local_steps))
            else:
                self._windows.open(step, now)
                self._life.enter(Phase.COLLECTING)
        else:
            self._end(step, now)

    def _close_window(self, now: float) -> bool:
        """Closes the window that is in the way of the next round, or begins that round. False: nothing is due."""
        window = self._windows.in_the_way(self.step + self._rules.local_steps)
        if window is not None:
            reason = self._windows.close_reason(window, now)
            if reason is not None:
                self._holdings.close(self._windows.close(), reason, now, self._presence)
            return reason is not None
        following = self._following()
        while self._windows.in_the_way(following):  # the others are far ahead
            self._holdings.close(self._windows.close(), "no waiting", now, self._presence)
        self._holdings.apply_before(self._rules.applied_before(following))
        self._begin_round(following, now)
        return True

    def _close_epochs(self) -> None:
        """Orders the sums of all epochs that can be closed now."""
        if self._exchange.divergence.is_current:  # else a sum would stand for bundles that are not in it
            before = self._rules.applied_before(self.step)
            self._outbox.outputs.orders += self._holdings.closings.due(
                before, self._ending.holds_everything, self._ending.is_held_of_reached
            )

    # The end

    def _end(self, step: int, now: float) -> None:
        """No steps are left."""
        self._life.enter(Phase.FINISHING)
        self._ending.since = now
        self._outbox.log("no steps left", step=step)
        if (last_own := self._last_step()) < self._ending.steps - 1:  # joined too late for the last round
            self._presence.declare(last_step=last_own)

    def _last_step(self) -> int:
        """At the end of the run: the last step of which we have published what there is."""
        last_own, end = self._frontier.last(self._origin), self._ending.steps - 1
        return end if last_own == self._rules.turns.last(self._origin, end) else last_own

    def _finish(self, now: float) -> None:
        ending, exchange = self._ending, self._exchange
        if ending.is_complete:
            if not ending.is_announced:
                ending.is_announced = True
                exchange.send_digests(STEP_MAX, is_complete=True)
            exchange.divergence.take()
        if ending.may_end(now):
            self._life.enter(Phase.FINISHED)
            if facts := ending.describe_missing():
                self._outbox.log("the run ends without some updates", "warning", **facts)
            if exchange.divergence.is_outdated:
                self._outbox.log("the run ends with a replica that is behind its journal", "error")
            exchange.send_digests(STEP_MAX, is_complete=ending.is_complete)
            self.has_ended = True
            self._presence.declare(last_step=self._last_step())
            self._outbox.finish()
