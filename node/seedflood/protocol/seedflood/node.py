"""The node: one origin's part of the protocol, as a pure state machine.

Put in what happened (`connected`, `received`, `published`, `tick`, ...), then `collect` what is to be done. No method
blocks, performs anything or asks for the time. A method that raises `PeerError` has changed nothing but counters.
What follows what in its life stands in `phase`.
"""

from collections.abc import Iterable, Mapping, Sequence

from seedflood.protocol.frontier import Frontier, tellable
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.seedflood.admission import Admission
from seedflood.protocol.seedflood.blockers import Blockers, describe
from seedflood.protocol.seedflood.catchup import CatchUp
from seedflood.protocol.seedflood.ending import Ending
from seedflood.protocol.seedflood.exchange import Exchange
from seedflood.protocol.seedflood.flood import Flood
from seedflood.protocol.seedflood.holdings import Holdings
from seedflood.protocol.seedflood.messages import Bundle, ClosedEpoch, ReplicaDigest, Standing, Told
from seedflood.protocol.seedflood.outputs import Measure, Outputs
from seedflood.protocol.seedflood.own_state import OwnState
from seedflood.protocol.seedflood.phase import Lifecycle, Phase
from seedflood.protocol.seedflood.rounds import applied_before, first_round, next_round, round_of
from seedflood.protocol.seedflood.rules import Patience, Rules
from seedflood.protocol.seedflood.standstill import Standstill
from seedflood.protocol.seedflood.view import Blocker, View, make_view
from seedflood.protocol.seedflood.watch import DIGEST_ROUNDS
from seedflood.protocol.seedflood.windows import OpenWindows
from seedflood.protocol.swarm.membership import Membership
from seedflood.protocol.swarm.messages import Hello, Member, Message, Sign, Verify
from seedflood.protocol.swarm.neighbours import Neighbours
from seedflood.protocol.swarm.outbox import Outbox
from seedflood.protocol.swarm.presence import Presence


class Node:
    """One origin. `member` says who: key, name, incarnation; its signature is made here."""

    def __init__(
        self, rules: Rules, member: Member, sign: Sign, verify: Verify, *, patience: Patience | None = None
    ) -> None:
        self.rules = rules
        self.origin = member.origin
        self.step = 0
        """First step of the round that is measured now, or was last."""
        self.frontier = Frontier()
        self.membership = Membership(origins_max=rules.origins_max)
        self.flood = Flood()
        self.admission = Admission(rules, verify, self.membership, self.frontier)
        self._patience = patience or Patience()
        self._outbox = Outbox(Outputs)
        self._life = Lifecycle()
        self._catchup = CatchUp(self._patience, self._life)
        self._holdings = Holdings(rules, self.frontier, self.admission, self.flood, self._outbox)
        self.read = self._holdings.contents.note  # what `start` was told of alone, as it comes from the journal
        self.may_insert, self.contradicting = self._holdings.may_insert, self._holdings.contradicting
        self._own = OwnState(self.origin, self.frontier, self._catchup)
        self.neighbours = Neighbours()
        known = (self.membership, self.neighbours, self.admission, self._catchup, self._outbox)
        self._presence = Presence(rules, member, sign, *known, state=self._own.packed)
        parts = (self._presence, self.admission, self.flood, self._catchup, self._own, self._outbox)
        self._exchange = Exchange(self._holdings, *parts, rules, self)
        self.repair, self.inquiry = self._exchange.repair, self._exchange.inquiry
        self.closings = self._holdings.closings
        self._sign = sign
        self._windows = OpenWindows(
            rules, self.membership, self.frontier, self._presence.liveness, self._presence.bound_seconds
        )
        self._repair_at = 0.0
        self._ending = Ending(self.origin, rules, self._patience, self.membership, self.frontier)
        self._standstill = Standstill()
        waits = (self._life, self._exchange, self._presence, self._windows, self._ending, self.frontier)
        self._blockers = Blockers(rules, *waits)

    @property
    def phase(self) -> Phase:
        return self._life.phase

    @property
    def applied(self) -> Frontier:
        """What the coefficients stand for, once all orders are carried out."""
        return self._holdings.applied

    @property
    def duplicates(self) -> int:
        """How many bundles came that were held already."""
        return self._holdings.duplicates

    @property
    def is_ready(self) -> bool:
        """Does it take part, with a replica that was seen to equal a neighbour's?"""
        watch = self._exchange.watch
        is_up = self.phase not in (Phase.JOINING, Phase.LEFT) and not watch.is_rebuilding
        return is_up and (watch.is_agreed or self.rules.clients == 1)

    @property
    def is_doubted(self) -> bool:
        """Was a neighbour's replica seen to differ from ours, and none to be equal since?"""
        return self._exchange.watch.is_doubted

    @property
    def standing(self) -> Standing | None:
        """The last digest that was taken, and of what: told at the end of a pull."""
        return self._exchange.watch.standing

    # What happened

    def start(
        self,
        bundles: Iterable[Bundle],
        members: Iterable[Member],
        now: float,
        *,
        closed: Iterable[ClosedEpoch] = (),
        settled: Mapping[int, Frontier] | None = None,
        is_journal_damaged: bool = False,
        is_key_fresh: bool = True,
    ) -> None:
        """Begins, or goes on with what the journal holds: closed, sums that the model has already; settled: what else
        it is given, by epoch (`opening`); bundles: all others. The round of the last own one is open again. A node that
        had left, or never spoke, is expected by nobody until it has caught up and says from which step on it takes
        part; what it said before it left is still awaited. is_key_fresh: nothing was ever published with our key."""
        for member in members:
            self.membership.believe(member)
        newest, spoken = self.membership.get(self.origin), self.membership.spoken(self.origin)
        self._holdings.restore(bundles, closed, settled or {})
        self._repair_at = now
        self._windows.until_joined = now + self._patience.start_seconds
        self._catchup.remember(newest, spoken, is_journal_damaged=is_journal_damaged, is_key_fresh=is_key_fresh)
        self._go_on(newest, now)
        self._exchange.watch.take(self.applied, self._outbox)
        self._advance(now)

    def connected(self, peer: OriginId, hello: Hello, now: float) -> None:
        """A link is up and both hellos were exchanged; `admission.check_hello` has accepted this one."""
        self._exchange.connected(peer, hello, now)
        self._advance(now)

    def disconnected(self, peer: OriginId, now: float, reason: str = "") -> None:
        self._exchange.disconnected(peer, reason)
        self._advance(now)

    def received(self, peer: OriginId, message: Message, now: float) -> None:
        """Takes a message of a linked peer. Raises PeerError, having used nothing, if it is not allowed."""
        if peer in self.neighbours:  # else the link went down meanwhile; repair brings what it said
            self._exchange.received(peer, message, now)
            self._advance(now)

    def pulled(self, peer: OriginId, now: float) -> None:
        """A pull from the peer ended, whole or broken off."""
        self._exchange.pulled(peer)
        self._advance(now)

    def published(self, step: int, probes: Sequence[Told], now: float) -> None:
        """Our measurement of the round that starts at `step` is done: what we tell of each step."""
        if self.phase is not Phase.MEASURING or step != self.step:
            return  # the round was overtaken by a drain
        last_own = self.frontier.last(self.origin)
        if last_own < step:  # else what a past life of ours said turned up meanwhile: it stands
            assert self.rules.telling.admits(probes), "we tell what every relay refuses"
            lost = 0 if self.rules.window == "strict" else self._catchup.said_before  # strict windows wait for a hole
            bundle = Bundle(self.origin, step, tuple(probes), skipped=step - max(last_own + 1, lost))
            key = self._presence.ours.public_key
            bundle = bundle._replace(signature=self._sign(bundle.signed_bytes(self.rules.run_id, key)))
            self._outbox.outputs.is_durable = True
            self._holdings.publish(bundle)
        self._windows.open(step, now)
        self._life.enter(Phase.COLLECTING)
        self._advance(now)

    def digested(self, frontier_digest: bytes, replica_digest: bytes, now: float) -> None:
        """The digest of our coefficients was taken, with exactly this frontier applied."""
        self._exchange.digested(ReplicaDigest(frontier_digest, replica_digest), now)
        self._advance(now)

    def settled(self, old: Bundle | None, new: Bundle, now: float) -> None:
        """In the journal one bundle has taken the place of another of its step, or of none: the step was skipped."""
        if self._holdings.replace(old, new):
            self._exchange.watch.outdate(now)
        self._advance(now)

    def summed(self, closed: ClosedEpoch, now: float) -> None:
        """An epoch that was to be closed is summed."""
        self._outbox.outputs.compact += self._holdings.closings.summed(closed)
        self._advance(now)

    def rebuilt(self, is_changed: bool, now: float) -> None:
        """The coefficients were made again from the journal. is_changed: they had been wrong."""
        self._exchange.watch.rebuilt(is_changed, self._outbox, now)
        self._advance(now)

    def leave(self, now: float, unsaid_from: int | None = None) -> None:
        """The operator wants us to go: say so, so that nobody waits for us. Relaying goes on.

        unsaid_from: the first own step that was measured and is not to be said, since it could not be kept.
        """
        if self.phase is not Phase.LEFT:
            self._life.enter(Phase.LEFT)
            self._own.unsaid_from = unsaid_from
            self._presence.leave(self._own.last_said())
            self._advance(now)

    def withhold(self, unsaid_from: int | None, *, is_disk_full: bool) -> None:
        """The disk is full, or has room again. unsaid_from: the first own step that could not be kept yet, if any:
        nobody is to hear of it."""
        self._own.unsaid_from, self._blockers.is_disk_full = unsaid_from, is_disk_full

    def tick(self, now: float) -> None:
        """Time has passed; call it when `next_tick` says so. More often does no harm."""
        if now >= self._repair_at:
            self._repair_at = now + self._patience.repair_seconds
            self._compare_notes(now)
        self._advance(now)

    def collect(self) -> Outputs:
        """Takes what is to be done now."""
        out = self._outbox.take()
        out.send = [*self._exchange.collect(), *out.send]
        donor = self._exchange.repair.collect(self.frontier)
        if donor is not None:
            out.pull.append((donor, tellable(self.frontier.held())))
        return out

    def next_tick(self, now: float) -> float:
        """When `tick` is to be called at the latest."""
        times = [self._repair_at, self._ending.wake_at(now)]
        if self.phase is Phase.COLLECTING:
            times.append(self._windows.wake_at())
        return max(now, min(times))

    def hello(self) -> Hello:
        """What to say first on a new link."""
        rules, held = self.rules, tellable(self.frontier.held())
        return Hello(rules.run_id, rules.base_digest, *self._presence.introduce(), frontier=held)

    def view(self, now: float) -> View:
        """What an operator is shown."""
        window, found = self._windows.oldest, self.blockers(now)
        return make_view(self._presence, self._exchange, self.frontier, window, found, now)

    def blockers(self, now: float) -> tuple[Blocker, ...]:
        """Why it does not move: for whom it waits, since when, and which step lacks; nothing if it waits for nobody."""
        return self._blockers.find(now)

    def _is_waiting(self) -> bool:
        is_served = self.phase is Phase.JOINING and self._exchange.repair.donor is not None  # it says how far it is
        return self.phase in (Phase.JOINING, Phase.COLLECTING, Phase.FINISHING) and not is_served

    def _go_on(self, past: Member | None, now: float) -> None:
        """Says that we are here (again), and takes up the round in which a past life ended."""
        last_own, self._own.closed = self.frontier.last(self.origin), self._holdings.closings.statement()
        is_new = past is None or not past.has_spoken or (last_own < 0 and not past.has_left)
        if past is None or is_new or self._catchup.is_forgetful:
            self._presence.declare(first_step=STEP_MAX)
            return
        self._presence.go_on(past)
        if past.has_left or last_own < past.first_step:
            self.step = last_own + 1
        else:
            self.step = round_of(last_own, self.rules)
            self._windows.reopen(self.step, now)
            self._windows.open(self.step, now)

    def _compare_notes(self, now: float) -> None:
        """Once per comparison period: what do the neighbours hold, who is silent, for whom do we wait?"""
        repair = self._exchange.repair
        repair.retry()
        on_the_way = 2 * self.rules.delay * self.rules.local_steps  # neighbours are so much further apart
        before = repair.settled_before(self.frontier, self.step - on_the_way, self.rules.local_steps)
        self._exchange.say_digests(before, is_complete=self._ending.is_complete)
        if before == STEP_MAX:
            self._exchange.watch.take(self.applied, self._outbox)
        self._exchange.look_around(now)
        self._exchange.settle_doubts(now)
        self._presence.look_around(now)
        found = self._blockers.note(now)
        if self._standstill.lasts((self.phase, self.step), now) and self._is_waiting():
            facts = describe(found) | self._exchange.describe_missing(self._ending)
            self._outbox.tell("waiting", "warning", step=self.step, **facts)

    def _notice(self, now: float) -> None:
        """What is new of bundles and statements, for the windows that are open and for the journal."""
        holdings, presence = self._holdings, self._presence
        for origin in holdings.heard:
            presence.heard(origin, self.frontier.last(origin), now)
            self._windows.hear(origin, now)
        holdings.heard.clear()
        for origin in presence.changed:
            self._windows.review(origin, now)
        if self.phase is not Phase.JOINING:
            self._exchange.compare_epochs(now)
        presence.changed.clear()

    # Rounds

    def _advance(self, now: float) -> None:
        """Takes every transition that is due: what happened may have made it so."""
        self._notice(now)
        if self.phase is Phase.JOINING and self._may_speak(now):
            self._speak(now)
        while self.phase is Phase.COLLECTING and self._close_window(now):
            pass
        if self._life.is_ending:
            self._holdings.apply(self._holdings.pending.take_before(self.rules.steps))
            self._close_epochs()  # once more those that were opened again
        if self.phase is Phase.FINISHING:
            self._finish(now)

    def _speak(self, now: float) -> None:
        """Enough is known: goes on with the windows of a past life, or begins with the round that is next."""
        self._outbox.tell("caught up", updates=self.frontier.count())
        if self._catchup.is_forgetful:
            self._windows.clear()  # what the journal knew last was not all
        if self._windows.oldest is not None:
            self._holdings.apply(self._holdings.pending.take_before(self._windows.oldest.first))
            self._close_epochs()  # others may wait for our word to adopt what they lack
            self._life.enter(Phase.COLLECTING)
            return
        first = self._next_step()
        self._presence.take_part(first, self.rules.steps)
        self._holdings.apply(self._holdings.pending.take_before(applied_before(first, self.rules)))
        self._windows.reopen(first, now)
        self._begin_round(first, now)

    def _close_window(self, now: float) -> bool:
        """Closes the window that is in the way of the next round, or begins that round. False: nothing is due."""
        window = self._windows.in_the_way(self.step + self.rules.local_steps)
        if window is not None:
            reason = self._windows.close_reason(window, now)
            if reason is not None:
                self._holdings.close(self._windows.close(), reason, now, self._presence)
            return reason is not None
        following = next_round(self.step, self.origin, self.rules, self.membership, self.frontier)
        while self._windows.in_the_way(following):  # the others are far ahead
            self._holdings.close(self._windows.close(), "no waiting", now, self._presence)
        self._holdings.apply(self._holdings.pending.take_before(applied_before(following, self.rules)))
        self._begin_round(following, now)
        return True

    def _may_speak(self, now: float) -> bool:
        """Is enough known, or is there nothing to be told: alone, or the journal has a whole run?"""
        is_nothing_to_know = self.rules.clients == 1 or self._ending.holds_everything()
        return is_nothing_to_know or self._exchange.may_speak(self._next_step(), now)

    def _next_step(self) -> int:
        """What would be measured next if a node that joins could speak now."""
        latest = self._windows.latest
        if latest is not None and not self._catchup.is_forgetful:
            return latest.last + 1
        first = first_round(self.origin, self.rules, self.membership, self.frontier)
        return max(first, self._catchup.said_before)

    def may_apply_before(self) -> int:
        """While a node joins: in strict windows nothing of what it is going to measure itself."""
        return STEP_MAX if self.rules.window != "strict" else applied_before(self._next_step(), self.rules)

    def _begin_round(self, step: int, now: float) -> None:
        self.step = step
        self._close_epochs()
        if step // self.rules.local_steps % DIGEST_ROUNDS == 0:
            self._exchange.watch.take(self.applied, self._outbox)
        if step < self.rules.steps:
            self._life.enter(Phase.MEASURING)
            self._outbox.outputs.orders.append(Measure(step, self.rules.local_steps))
            return
        self._life.enter(Phase.FINISHING)
        self._ending.since = now
        self._outbox.tell("no steps left", step=step)
        if (last_own := self.frontier.last(self.origin)) < self.rules.steps - 1:  # joined too late for the last round
            self._presence.declare(last_step=last_own)

    def _close_epochs(self) -> None:
        """All that is due, with everything applied that was said of steps before this round."""
        if self._exchange.watch.is_current:  # else a sum would stand for bundles that are not in it
            before = applied_before(self.step, self.rules)
            self._outbox.outputs.orders += self._holdings.closings.due(before, self._ending.holds_everything)

    def _finish(self, now: float) -> None:
        ending = self._ending
        if ending.is_complete and not ending.is_said:
            ending.is_said = True
            self._exchange.say_digests(STEP_MAX, is_complete=ending.is_complete)
        exchange = self._exchange
        if ending.is_complete:
            exchange.watch.take(self.applied, self._outbox)
        of = (exchange.repair, exchange.watch, self.applied, exchange.linked)
        if ending.may_end(*of, now=now):
            self._life.enter(Phase.FINISHED)
            exchange.tell_shortcomings(ending)
            self._exchange.say_digests(STEP_MAX, is_complete=ending.is_complete)
            self._presence.declare(last_step=self.frontier.last(self.origin))
            self._outbox.outputs.is_finished = True
