"""SeedFlood as an algorithm of a swarm: puts its parts together, and passes on to each what concerns it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from seedflood.protocol.frontier import Frontier, Held, sendable
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.seedflood.admission import Admission
from seedflood.protocol.seedflood.blockers import Blockers, describe
from seedflood.protocol.seedflood.bundles import Bundle, Updates
from seedflood.protocol.seedflood.catchup import CatchUp
from seedflood.protocol.seedflood.certificates import Certificates
from seedflood.protocol.seedflood.course import STOP_KEY, Course
from seedflood.protocol.seedflood.ending import Ending
from seedflood.protocol.seedflood.exchange import Exchange
from seedflood.protocol.seedflood.flood import Flood
from seedflood.protocol.seedflood.holdings import Holdings
from seedflood.protocol.seedflood.messages import ClosedEpoch, ReplicaDigest, Votes
from seedflood.protocol.seedflood.outputs import (
    Answer,
    Compacted,
    CutOff,
    Measured,
    Outputs,
    Pulled,
    Remade,
    Stopped,
)
from seedflood.protocol.seedflood.phase import Lifecycle, Phase
from seedflood.protocol.seedflood.relaying import Relaying
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.statement import Remains, Rows, Stated, pack
from seedflood.protocol.seedflood.view import add_removals, add_to_view, add_votes
from seedflood.protocol.seedflood.window import OpenWindows
from seedflood.protocol.swarm.algorithm import Algorithm
from seedflood.protocol.swarm.messages import AlgorithmMessage, Hello, Member
from seedflood.protocol.swarm.outputs import Outbox
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.swarm.rules import Patience
from seedflood.protocol.swarm.standstill import Standstill
from seedflood.protocol.view import Blocker, View

GATHER_SECONDS = 0.25
"""How long votes, and statements of others, wait at most. Nobody waits for a statement who does not get it at once: it
goes before any update. It is long beside a hop, so that a neighbour has mostly sent us what we would send it."""


class SeedFlood(Algorithm):
    """SeedFlood on one node."""

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
        certificates = Certificates(rules, admission.access, presence.membership, self.origin)
        self.holdings = Holdings(rules, frontier, admission, certificates, self.flood, outbox)
        self.applied = self.holdings.applied
        self._catchup = CatchUp(patience)
        self._rows = rows
        self._remains: tuple[Remains, ...] = ()
        """What we state that we hold of removed hosts."""
        self.windows = OpenWindows(rules, presence.membership, frontier, presence.liveness, presence.bound_seconds)
        self.exchange = Exchange(
            self.holdings,
            presence,
            admission,
            self._catchup,
            self.life,
            outbox,
            rules,
            lambda: self._course.may_apply_before(),
        )
        self.ends = self.exchange.ends
        self.ending = Ending(rules, patience, presence, self.holdings, self.exchange.donors, self.exchange.divergence)
        self._course = (Relaying if is_relay else Course)(
            rules,
            self.life,
            presence,
            self.holdings,
            self.exchange,
            self.ending,
            self.windows,
            outbox,
        )
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
    def step(self) -> int:
        """The first step of the round that is measured now, or was measured last."""
        return self._course.step

    @property
    def is_ready(self) -> bool:
        return self._course.is_ready

    @property
    def is_doubted(self) -> bool:
        return self.exchange.divergence.is_doubted

    # What the swarm says of us

    @property
    def has_spoken(self) -> bool:
        return not self.life.is_joining

    @property
    def is_amnesic(self) -> bool:
        return self._catchup.is_amnesic

    def learn_of_past(self, member: Member) -> None:
        self._catchup.learn_of_past(member)

    def state(self) -> bytes:
        published_before = max(self.frontier.last(self.origin) + 1, self._catchup.published_before)
        has_ended = self._course.has_ended or self._catchup.has_ended
        return pack(Stated(published_before, self._rows, self._remains, has_ended, self._course.is_relay))

    def held(self) -> tuple[Held, ...]:
        return sendable(self.frontier.held())

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
        self._course.resume(newest, now)
        self.exchange.divergence.take()

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
                self._course.publish(step, probes, now)
            case Stopped(step):
                self._course.stop(step, now)
            case ReplicaDigest():
                self.exchange.digested(answer, now)
            case ClosedEpoch():
                self.exchange.summed(answer, now)
            case Remade(is_changed):
                self.exchange.divergence.rebuilt(is_changed, now)
            case Pulled(peer):
                self.exchange.pulled(peer)
            case Compacted(closed):
                self.exchange.compacted(closed, now)
            case CutOff(origin, surplus):
                if self.ends.take_out(origin, surplus):
                    self.exchange.divergence.outdate(now)

    def leave(self) -> None:
        if self.phase is not Phase.LEFT:
            self.life.enter(Phase.LEFT)
            self._presence.leave(self.frontier.last(self.origin))

    def note_disk(self, *, is_full: bool) -> None:
        """The disk is full, or has room again."""
        self._blockers.is_disk_full = is_full
        if not is_full:
            self.exchange.compact_again()

    # What is due

    def queued(self, peer: OriginId, *, is_passing: bool) -> Iterable[Updates | Votes]:
        yield from self.flood.take(peer)
        if is_passing:
            yield from self.exchange.voting.gathered(peer)

    def wake_at(self, now: float) -> float:
        times = [self.ending.wake_at(now)]
        if self.phase is Phase.COLLECTING:
            times.append(self.windows.wake_at())
        return min(times)

    def compare(self, now: float) -> None:
        """Sends the neighbours what is held here; pulls again what broken pulls did not bring."""
        donors = self.exchange.donors
        donors.retry()
        self.exchange.voting.ask(now)
        self.exchange.voting.log_overdue(self.step, now, self.ending.lacking)
        self.exchange.voting.take_names_back(self.step)
        if self.phase is not Phase.JOINING and not self._blockers.is_disk_full:
            self.exchange.sums.ask(self.rules.applied_before(self.step), self.exchange.linked, self._outbox, now)
        # neighbours are so much further apart, and bundles of turns cover rounds before their own
        on_the_way = 2 * self.rules.delay * self.rules.local_steps + self.rules.turns.spread
        before = donors.settled_before(self.frontier, self.step - on_the_way, self.rules.local_steps)
        self.exchange.send_digests(before, is_complete=self.ending.is_complete)
        if before == STEP_MAX:
            self.exchange.divergence.take()
        self._course.compare(now)
        if self.phase is not Phase.JOINING and (remains := self.ends.remains()) != self._remains:
            self._remains = remains
            self._presence.declare()

    def report(self, now: float) -> None:
        """Looks into replicas that differ. Logs how far we have caught up, and for whom we wait if nothing has moved
        for a while."""
        self.exchange.log_progress()
        self.exchange.settle_doubts(now)
        found = self._blockers.note(now)
        if self._standstill.lasts((self.phase, self.step, bool(found)), now) and found and self._is_waiting():
            facts = describe(found) | self.ending.describe_missing()
            self._outbox.log("waiting", "warning", step=self.step, **facts)

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

    def _notice(self, now: float) -> None:
        """Shows new bundles and statements to the open windows and to the epochs; looks who has ended."""
        self.ends.follow(now)
        holdings, presence = self.holdings, self._presence
        for origin in holdings.updated:
            presence.seen(origin, self.frontier.last(origin), now)
            self.windows.received(origin, now)
        holdings.updated.clear()
        for origin in presence.changed:
            self.windows.review(origin, now)
        if self.phase is not Phase.JOINING:
            self.exchange.compact_epochs(now)
        presence.changed.clear()

    def advance(self, now: float) -> None:
        """Takes every transition that is due: what happened may have made it so."""
        self._notice(now)
        self._course.advance(now)
        if (donor := self.exchange.donors.next_donor(self.frontier)) is not None:
            self._outbox.outputs.pull += [(donor, self.held())]
