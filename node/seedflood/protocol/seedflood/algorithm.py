"""SeedFlood as an algorithm of a swarm: rounds, one after the other.

A round is measured once enough earlier rounds are applied. The measurement is published, and the window of the round
closes when everyone who takes part was heard, or time is up. `phase` says which phases of a node may follow each other.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from seedflood.protocol.frontier import Frontier, Held, tellable
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.seedflood.admission import Admission
from seedflood.protocol.seedflood.blockers import Blockers, describe
from seedflood.protocol.seedflood.catchup import CatchUp
from seedflood.protocol.seedflood.certificates import Certificates
from seedflood.protocol.seedflood.ending import Ending
from seedflood.protocol.seedflood.exchange import Exchange
from seedflood.protocol.seedflood.flood import Flood
from seedflood.protocol.seedflood.holdings import Holdings
from seedflood.protocol.seedflood.messages import Bundle, ClosedEpoch, ReplicaDigest, Told, Updates, Votes
from seedflood.protocol.seedflood.outputs import (
    Answer,
    Compacted,
    CutOff,
    Measure,
    Measured,
    Outputs,
    Pulled,
    Remade,
    Stopped,
)
from seedflood.protocol.seedflood.phase import Lifecycle, Phase
from seedflood.protocol.seedflood.relaying import SETTLE_BUNDLES, Relaying
from seedflood.protocol.seedflood.rounds import applied_before, first_round, next_round, round_of
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.statement import Remains, Rows, Stated, pack
from seedflood.protocol.seedflood.view import add_removals, add_to_view, add_votes
from seedflood.protocol.seedflood.watch import DIGEST_ROUNDS
from seedflood.protocol.seedflood.window import OpenWindows
from seedflood.protocol.swarm.algorithm import Algorithm
from seedflood.protocol.swarm.messages import AlgorithmMessage, Hello, Member
from seedflood.protocol.swarm.outputs import Outbox, Record
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.swarm.rules import Patience
from seedflood.protocol.swarm.standstill import Standstill
from seedflood.protocol.view import Blocker, View

STOP_KEY = b"stop"
"""Of the record of where a run ended early."""

GATHER_SECONDS = 0.25
"""How long votes, and statements of others, wait at most. Nobody waits for a statement who is not told at once: it goes
before any update. It is long beside a hop, so that a neighbour has mostly told us what we would tell it."""

STOPPED = "the hosts lose no less than in the best epoch: the run ends with its best state"


class SeedFlood(Algorithm):
    """SeedFlood on one node. step: the first step of the round that is measured now, or was measured last."""

    step = 0
    gather_seconds = GATHER_SECONDS

    def __init__(
        self,
        rules: Rules,
        presence: Presence,
        admission: Admission,
        frontier: Frontier,
        outbox: Outbox[Outputs],
        patience: Patience,
        rows: Rows | None = None,
        is_relay: bool = False,
    ) -> None:
        self.origin = presence.ours.origin
        self.rules = rules
        self.frontier = frontier
        self.life = Lifecycle(is_relay=is_relay)
        self.flood = Flood()
        certificates = Certificates(rules, admission.gate, presence.membership, self.origin)
        self.holdings = Holdings(rules, frontier, admission, certificates, self.flood, outbox)
        self.applied = self.holdings.applied
        self._catchup = CatchUp(patience)
        self._rows = rows
        self._remains: tuple[Remains, ...] = ()
        """What we state that we hold of removed hosts."""
        self._has_ended = False
        """Have we ended the run, in this life?"""
        self.exchange = Exchange(
            self.holdings, presence, admission, self._catchup, self.life, outbox, rules, self._may_apply_before
        )
        self.ends = self.exchange.ends
        self.ending = Ending(rules, patience, presence, self.holdings, self.exchange.donors, self.exchange.watch)
        members = presence.membership
        self._relaying = Relaying(self.holdings, self.exchange, self.ending, members) if is_relay else None
        self.windows = OpenWindows(rules, presence.membership, frontier, presence.liveness, presence.bound_seconds)
        self._blockers = Blockers(rules, self.life, self.exchange, presence, self.windows, self.ending, frontier)
        self._standstill = Standstill()
        self._membership = presence.membership
        self._presence = presence
        self._outbox = outbox
        self._patience = patience

    @property
    def phase(self) -> Phase:
        return self.life.phase

    @property
    def is_ready(self) -> bool:
        """Does it take part, with a replica that was seen to equal a neighbour's?"""
        if self._relaying is not None:
            return self._relaying.is_ready
        watch = self.exchange.watch
        is_up = self.phase not in (Phase.JOINING, Phase.LEFT) and not watch.is_rebuilding
        return is_up and (watch.is_agreed or self.rules.clients == 1)

    @property
    def is_doubted(self) -> bool:
        return self.exchange.watch.is_doubted

    # What the swarm says of us

    @property
    def has_spoken(self) -> bool:
        return not self.life.is_joining

    @property
    def is_forgetful(self) -> bool:
        return self._catchup.is_forgetful

    def hear_of_past(self, member: Member) -> None:
        self._catchup.hear_of_past(member)

    def state(self) -> bytes:
        said_before = max(self.frontier.last(self.origin) + 1, self._catchup.said_before)
        has_ended = self._has_ended or self._catchup.has_ended
        return pack(Stated(said_before, self._rows, self._remains, has_ended, self._relaying is not None))

    def held(self) -> tuple[Held, ...]:
        return tellable(self.frontier.held())

    # What happened

    def recall(self, records: Mapping[bytes, bytes], now: float) -> None:
        """Our votes, who has ended, and where the run did; bundles and sums are given to `start`."""
        if STOP_KEY in records:
            self.ending.steps = int.from_bytes(records[STOP_KEY], "big")
        self.exchange.ends.recall(records)
        self.exchange.voting.recall(records)

    def start(
        self,
        bundles: Iterable[Bundle],
        closed: Iterable[ClosedEpoch],
        settled: Mapping[int, Frontier],
        now: float,
        *,
        is_journal_damaged: bool,
        is_key_fresh: bool,
    ) -> None:
        """See `Node.start`; the members that the journal knows are believed already."""
        newest, spoken = self._membership.get(self.origin), self._membership.spoken(self.origin)
        self.holdings.restore(bundles, closed, settled)
        self.windows.until_joined = now + self._patience.start_seconds
        end = self.frontier.last(self.origin) + 1
        self._catchup.remember(newest, spoken, end, is_journal_damaged=is_journal_damaged, is_key_fresh=is_key_fresh)
        self._go_on(newest, now)
        self.exchange.watch.take()

    def connected(self, peer: OriginId, hello: Hello, now: float) -> None:
        if self.frontier.last(self.origin) >= 0 or self.holdings.certificates.ours():
            self._presence.declare_new_neighbours()
        self.exchange.connected(peer, hello.frontier, now)

    def disconnected(self, peer: OriginId) -> None:
        self.exchange.disconnected(peer)

    def received(self, peer: OriginId, message: AlgorithmMessage, now: float) -> None:
        self.exchange.received(peer, message, now)

    def answered(self, peer: OriginId, sent_at: float) -> None:
        self.exchange.announcement.answered(peer, sent_at)

    def answer(self, answer: Answer, now: float) -> None:
        """Something that we wanted done is done."""
        match answer:
            case Measured(step, probes):
                self._publish(step, probes, now)
            case Stopped(step):
                self._stop(step, now)
            case ReplicaDigest():
                self.exchange.digested(answer, now)
            case ClosedEpoch():
                self.exchange.summed(answer, now)
            case Remade(is_changed):
                self.exchange.watch.rebuilt(is_changed, now)
            case Pulled(peer):
                self.exchange.pulled(peer)
            case Compacted(closed):
                self.exchange.compacted(closed, now)
            case CutOff(origin, surplus):
                if self.ends.take_out(origin, surplus):
                    self.exchange.watch.outdate(now)

    def _publish(self, step: int, probes: Sequence[Told], now: float) -> None:
        if self.phase is not Phase.MEASURING or step != self.step:
            return  # the round was overtaken by a drain
        last_own = self.frontier.last(self.origin)
        if not self.frontier.holds(self.origin, step):  # else what a past life said turned up meanwhile: it stands
            assert self.rules.telling.admits(probes), "we tell what every relay refuses"
            self._presence.declare_new_neighbours()
            is_strict = self.rules.window == "strict"  # then others wait for every step
            since = self.frontier.mark(self.origin) if is_strict else max(last_own + 1, self._catchup.said_before)
            bundle = Bundle(self.origin, step, tuple(probes), skipped=step - since)
            key = self._presence.ours.public_key
            bundle = bundle._replace(signature=self._presence.sign(bundle.signed_bytes(self.rules.run_id, key)))
            self._outbox.outputs.is_durable = True
            self.holdings.publish(bundle)
        self.windows.open(step, now)
        self.life.enter(Phase.COLLECTING)

    def _stop(self, step: int, now: float) -> None:
        """The run ends before this step. Windows that are open are of steps that do not count."""
        if self.phase is Phase.MEASURING and step == self.step:
            self._outbox.tell(STOPPED, step=step)
            self.ending.steps = step
            self._outbox.keep_record(Record(STOP_KEY, step.to_bytes(8, "big")))
            self.windows.clear()
            self._end(step, now)

    def leave(self) -> None:
        if self.phase is not Phase.LEFT:
            self.life.enter(Phase.LEFT)
            self._presence.leave(self.frontier.last(self.origin))

    def hear_of_disk(self, *, is_full: bool) -> None:
        """The disk is full, or has room again."""
        self._blockers.is_disk_full = is_full
        if not is_full:
            self.exchange.compact_again()

    # What is due

    def queued(self, peer: OriginId) -> Iterable[Updates]:
        return self.flood.take(peer)

    def gathered(self, peer: OriginId) -> Iterable[Votes]:
        return self.exchange.voting.gathered(peer)

    def wake_at(self, now: float) -> float:
        times = [self.ending.wake_at(now)]
        if self.phase is Phase.COLLECTING:
            times.append(self.windows.wake_at())
        return min(times)

    def compare(self, now: float) -> None:
        """Tells the neighbours what is held here; pulls again what broken pulls did not bring."""
        donors = self.exchange.donors
        donors.retry()
        self.exchange.voting.ask(now)
        self.exchange.voting.tell_overdue(self.step, now, self.ending.lacking)
        self.exchange.voting.take_names_back(self.step)
        if self.phase is not Phase.JOINING and not self._blockers.is_disk_full:
            self.exchange.sums.ask(applied_before(self.step, self.rules), self.exchange.linked, self._outbox, now)
        # neighbours are so much further apart, and bundles of turns cover rounds before their own
        on_the_way = 2 * self.rules.delay * self.rules.local_steps + self.rules.turns.spread
        before = donors.settled_before(self.frontier, self.step - on_the_way, self.rules.local_steps)
        self.exchange.say_digests(before, is_complete=self.ending.is_complete)
        if before == STEP_MAX:
            self.exchange.watch.take()
        if self._relaying is not None:
            self._relay(self._relaying, now)
        if self.phase is not Phase.JOINING and (remains := self.ends.remains()) != self._remains:
            self._remains = remains
            self._presence.declare()

    def _relay(self, relaying: Relaying, now: float) -> None:
        relaying.settle()
        self.step = min(self._next_step(), self.rules.steps)
        if self.ending.since is None and self.ending.holds_everything():
            self.ending.since = now
        if relaying.ends():
            self._outbox.finish()

    def review(self, now: float) -> None:
        """Logs how far we have caught up, and looks into replicas that differ."""
        self.exchange.tell_progress()
        self.exchange.settle_doubts(now)

    def report(self, now: float) -> None:
        """Logs for whom we wait, if nothing has moved for a while."""
        found = self._blockers.note(now)
        if self._standstill.lasts((self.phase, self.step, bool(found)), now) and found and self._is_waiting():
            facts = describe(found) | self.ending.describe_missing()
            self._outbox.tell("waiting", "warning", step=self.step, **facts)

    def blockers(self, now: float) -> tuple[Blocker, ...]:
        return self._blockers.find(now)

    def describe(self, view: View) -> View:
        """Adds the open window, what is held of every origin, and how far the node has caught up."""
        duplicates = self.holdings.duplicates * self.rules.local_steps
        view = add_to_view(view, self._presence, self.exchange, self.frontier, self.windows, duplicates=duplicates)
        view = replace(add_removals(view, self.ends, self._membership), steps=self.ending.steps)
        voting = self.exchange.voting
        return add_votes(view, self.holdings.certificates, map(self._membership.name, voting.misvoting))

    def _is_waiting(self) -> bool:
        is_served = self.phase is Phase.JOINING and self.exchange.donors.donor is not None  # it says how far it is
        return self.phase in (Phase.JOINING, Phase.COLLECTING, Phase.FINISHING, Phase.RELAYING) and not is_served

    def _go_on(self, past: Member | None, now: float) -> None:
        """Says that we are here (again), and takes up the round in which a past life ended."""
        last_own = self.frontier.last(self.origin)
        is_new = past is None or not past.has_spoken or (last_own < 0 and not past.has_left)
        if past is None or is_new or self._catchup.is_forgetful:
            self._presence.declare(first_step=STEP_MAX)
            return
        self._presence.go_on(past)
        if past.has_left or last_own < past.first_step or self._lost_step() is not None:
            self.step = last_own + 1
        else:
            self.step = round_of(last_own, self.rules)
            self.windows.reopen(self.step, now)
            self.windows.open(self.step, now)

    def _notice(self, now: float) -> None:
        """Shows new bundles and statements to the open windows and to the epochs; looks who has ended."""
        self.ends.follow(now)
        holdings, presence = self.holdings, self._presence
        for origin in holdings.heard:
            presence.heard(origin, self.frontier.last(origin), now)
            self.windows.hear(origin, now)
        holdings.heard.clear()
        for origin in presence.changed:
            self.windows.review(origin, now)
        if self.phase is not Phase.JOINING:
            self.exchange.compact_epochs(now)
        presence.changed.clear()

    # Rounds

    def advance(self, now: float) -> None:
        """Takes every transition that is due: what happened may have made it so."""
        self._notice(now)
        if self.phase is Phase.JOINING and self._may_speak(now):
            self._speak(now)
        while self.phase is Phase.COLLECTING and self._close_window(now):
            pass
        if self._relaying is not None:
            self._relaying.settle(SETTLE_BUNDLES)
        if self.phase in (Phase.FINISHING, Phase.FINISHED):
            self.holdings.apply(self.holdings.pending.take_before(self.ending.steps))
            self._close_epochs()  # once more those that were opened again
        if self.phase is Phase.FINISHING:
            self._finish(now)
        if (donor := self.exchange.donors.next_donor(self.frontier)) is not None:
            self._outbox.outputs.pull += [(donor, tellable(self.frontier.held()))]

    def _speak(self, now: float) -> None:
        """Enough is known: goes on with the open windows of a past life, or begins with the round that is next."""
        self._outbox.tell("caught up", updates=self.frontier.count())
        if self._catchup.is_forgetful:
            self.windows.clear()  # what the journal knew last was not all
        if self.windows.oldest is not None:
            self.holdings.apply(self.holdings.pending.take_before(self.windows.oldest.first))
            self._close_epochs()  # others may wait for our word to adopt what they lack
            self.life.enter(Phase.COLLECTING)
            return
        first = self._next_step()
        self._presence.take_part(first, is_anew=self._is_turn_lost(first))
        self.holdings.apply(self.holdings.pending.take_before(applied_before(first, self.rules)))
        self.windows.reopen(first, now)
        self._begin_round(first, now)

    def _close_window(self, now: float) -> bool:
        """Closes the window that is in the way of the next round, or begins that round. False: nothing is due."""
        window = self.windows.in_the_way(self.step + self.rules.local_steps)
        if window is not None:
            reason = self.windows.close_reason(window, now)
            if reason is not None:
                self.holdings.close(self.windows.close(), reason, now, self._presence)
            return reason is not None
        following = next_round(self.step, self.origin, self.rules, self._membership, self.frontier)
        while self.windows.in_the_way(following):  # the others are far ahead
            self.holdings.close(self.windows.close(), "no waiting", now, self._presence)
        self.holdings.apply(self.holdings.pending.take_before(applied_before(following, self.rules)))
        self._begin_round(following, now)
        return True

    def _may_speak(self, now: float) -> bool:
        """Is enough known? A node that is alone, or holds the whole run, needs to know nothing."""
        has_met_others = any(word.origin != self.origin for word in self._membership.words())
        is_nothing_to_know = self.rules.clients == 1 or (has_met_others and self.ending.holds_everything())
        return is_nothing_to_know or self.exchange.may_speak(self._next_step(), now)

    def _next_step(self) -> int:
        """What would be measured next if a node that joins could speak now."""
        latest = self.windows.latest
        if latest is not None and not self._catchup.is_forgetful:
            return latest.last + 1
        if (lost := self._lost_step()) is not None:
            return lost
        word = self._membership.spoken(self.origin)
        if self.rules.turn_rounds > 1 and word is not None and not word.has_left:  # our next turn is waited for
            first = max(word.first_step, self.frontier.last(self.origin) + 1, self._catchup.said_before)
            return min(first, self.rules.steps)
        has_votes = self.holdings.certificates.has_votes or self.holdings.closings.before > 0
        first = first_round(self.origin, self.rules, self._membership, self.frontier, has_anyone_ended=has_votes)
        return min(max(first, self._catchup.said_before), self.rules.steps)

    def _is_turn_lost(self, first: int) -> bool:
        """Is a turn of ours before this step lost? Our next bundle skips it, and cannot come as long as others wait for
        what nobody holds."""
        word, owed = self._membership.spoken(self.origin), self.rules.turns.last(self.origin, first - 1)
        is_owed = self.rules.turn_rounds > 1 and word is not None and owed >= word.first_step
        return is_owed and not self.frontier.holds(self.origin, owed)

    def _lost_step(self) -> int | None:
        """In strict windows: the first step since we take part that is lost, though later ones of ours are held. Nobody
        can go on without it, so it is measured again: with the same updates applied, for nobody has applied others."""
        if self.rules.window != "strict":
            return None
        word, last = self._membership.spoken(self.origin), self.frontier.last(self.origin)
        first = word.first_step if word is not None else 0
        return next((max(first, low) for low, high in self.frontier.gaps(self.origin, last) if high >= first), None)

    def _may_apply_before(self) -> int:
        """While a node joins: the step below which updates may be applied. In strict windows what belongs to a round
        that it will measure itself has to wait."""
        return STEP_MAX if self.rules.window != "strict" else applied_before(self._next_step(), self.rules)

    def _begin_round(self, step: int, now: float) -> None:
        self.step = step
        self._close_epochs()
        if step // self.rules.local_steps % DIGEST_ROUNDS == 0:
            self.exchange.watch.take()
        if step < self.rules.steps:
            self.life.enter(Phase.MEASURING)
            self.windows.began_at = now
            if self.rules.turns.has(self.origin, step):
                self._outbox.order(Measure(step, self.rules.local_steps))
            else:
                self.windows.open(step, now)
                self.life.enter(Phase.COLLECTING)
        else:
            self._end(step, now)

    def _end(self, step: int, now: float) -> None:
        """No steps are left."""
        self.life.enter(Phase.FINISHING)
        self.ending.since = now
        self._outbox.tell("no steps left", step=step)
        if (last_own := self._last_step()) < self.ending.steps - 1:  # joined too late for the last round
            self._presence.declare(last_step=last_own)

    def _last_step(self) -> int:
        """At the end of the run: the last step of which we have said what there is to say."""
        last_own, end = self.frontier.last(self.origin), self.ending.steps - 1
        return end if last_own == self.rules.turns.last(self.origin, end) else last_own

    def _close_epochs(self) -> None:
        """Orders the sums of all epochs that can be closed now."""
        if self.exchange.watch.is_current:  # else a sum would stand for bundles that are not in it
            before = applied_before(self.step, self.rules)
            self._outbox.outputs.orders += self.holdings.closings.due(
                before, self.ending.holds_everything, self.ending.is_held_of_reached
            )

    def _finish(self, now: float) -> None:
        ending, exchange = self.ending, self.exchange
        if ending.is_complete:
            if not ending.is_said:
                ending.is_said = True
                exchange.say_digests(STEP_MAX, is_complete=True)
            exchange.watch.take()
        if ending.may_end(now):
            self.life.enter(Phase.FINISHED)
            if facts := ending.describe_missing():
                self._outbox.tell("the run ends without some updates", "warning", **facts)
            if exchange.watch.is_outdated:
                self._outbox.tell("the run ends with a replica that is behind its journal", "error")
            exchange.say_digests(STEP_MAX, is_complete=ending.is_complete)
            self._has_ended = True
            self._presence.declare(last_step=self._last_step())
            self._outbox.finish()
