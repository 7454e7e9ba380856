"""The conversation with the neighbours: what we send them, what we do with what they send us, and whom we ask."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from seedflood.errors import PeerError
from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.seedflood.admission import Admission, Terms
from seedflood.protocol.seedflood.announcement import Announcement
from seedflood.protocol.seedflood.bundles import Bundle, Updates
from seedflood.protocol.seedflood.catchup import CatchUp, CatchUpState, describe_progress
from seedflood.protocol.seedflood.divergence import DivergenceDetector, HearsayDetector
from seedflood.protocol.seedflood.donors import Donors
from seedflood.protocol.seedflood.ends import Ends
from seedflood.protocol.seedflood.epochs import sum_bytes_max
from seedflood.protocol.seedflood.equivocation import EquivocationSearch
from seedflood.protocol.seedflood.holdings import Holdings
from seedflood.protocol.seedflood.messages import (
    BlockDigests,
    ClosedEpoch,
    Equivocation,
    FrontierDigest,
    ReplicaDigest,
    Standing,
    Votes,
)
from seedflood.protocol.seedflood.outputs import Outputs
from seedflood.protocol.seedflood.phase import Lifecycle, Phase
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.statement import stated
from seedflood.protocol.seedflood.sums import WantedSums
from seedflood.protocol.seedflood.voting import Voting
from seedflood.protocol.swarm.messages import AlgorithmMessage
from seedflood.protocol.swarm.outputs import Outbox
from seedflood.protocol.swarm.presence import Presence


@dataclass(eq=False, repr=False)
class Exchange:
    """Takes SeedFlood's messages, on all links of a node. may_apply_before: returns below which step anything may be
    applied now."""

    _holdings: Holdings
    _presence: Presence
    _admission: Admission
    catchup: CatchUp
    _life: Lifecycle
    _outbox: Outbox[Outputs]
    _rules: Rules
    _may_apply_before: Callable[[], int]

    def __post_init__(self) -> None:
        self.donors = Donors(sum_bytes_max(self._rules))
        is_relay = self._life.phase is Phase.RELAYING
        make_watch = HearsayDetector if is_relay else DivergenceDetector
        self.divergence = make_watch(self._holdings.applied, self._presence.neighbours, self._outbox, self._has_replica)
        self.ends = Ends(self._rules, self._admission.access, self._holdings, self._presence, self._outbox)
        self.equivocation = EquivocationSearch(
            self._rules, self._holdings, self._admission, self.donors, self.ends, self._outbox
        )
        self.announcement = Announcement(self._rules, self._presence, self._holdings.frontier)
        self.voting = Voting(
            self._holdings, self._presence, self._admission, self.divergence, self._outbox, self._rules
        )
        self.sums = WantedSums(self._rules, self._holdings, self.donors, is_relay=is_relay)

    @property
    def is_joining(self) -> bool:
        """Has the node not spoken yet? Then not everything need be applied at a given moment."""
        return self._life.is_joining

    @property
    def linked(self) -> Collection[OriginId]:
        return self._presence.neighbours

    def connected(self, peer: OriginId, held: tuple[Held, ...], now: float) -> None:
        """held: by the peer."""
        self.catchup.link(now)
        self._holdings.connect(peer, held)
        self.donors.connect(peer, held, self._holdings.frontier, is_wanted=self.is_joining)
        latest = self.divergence.latest_for(peer)
        if latest is not None:
            self._outbox.send(peer, latest)
        self.voting.connected(peer)
        self.ends.send_proofs(peer)

    def disconnected(self, peer: OriginId) -> None:
        self._holdings.disconnect(peer)
        self.donors.disconnect(peer)
        self.equivocation.disconnect(peer)
        self.divergence.forget(peer)
        self.voting.disconnected(peer)

    def received(self, peer: OriginId, message: AlgorithmMessage, now: float) -> None:
        """Raises PeerError if the message is not allowed. Nothing of it is used then but votes before a bad one."""
        match message:
            case Updates(bundles):
                self._receive_bundles(peer, bundles, self._terms(peer))
            case FrontierDigest():
                self.donors.compare(peer, message, self._holdings.frontier, self._presence.membership.digest())
            case ReplicaDigest():
                self._compared(peer, message.frontier_digest, self.divergence.received(peer, message), now)
            case Votes(votes):
                self.voting.receive(peer, votes, now)
            case ClosedEpoch():
                self._receive_epoch(peer, message, now)
            case BlockDigests():
                self.equivocation.receive(peer, message, now)
            case Equivocation():
                self.equivocation.receive_proof(peer, message)
            case Standing():
                self._receive_standing(peer, message, now)
            case _:
                raise PeerError("a message that SeedFlood does not know", reason="order")

    def pulled(self, peer: OriginId) -> None:
        """A pull from the peer ended, whole or broken off."""
        self.equivocation.pulled(peer)
        self.donors.pulled(peer, self._holdings.frontier)

    def may_speak(self, first: int, now: float) -> bool:
        """Does a node that joins know enough, and do its neighbours know that it takes part from this step on?"""
        membership, frontier = self._presence.membership, self._holdings.frontier
        own = self._presence.ours.origin
        held_before = frontier.last(own) + 1
        if (former := self.catchup.notice_old_copy(held_before)) is not None:
            self._presence.log_loss(former)
        is_amnesic = self.catchup.is_amnesic
        present = membership.present() if is_amnesic else set()  # else nobody asks for it
        hosts = sum(not stated(member).is_relay for member in membership.all()) if is_amnesic else 0
        known = CatchUpState(
            self.donors.reached,
            present,
            has_pulled=self.donors.has_pulled,
            is_level=self.donors.is_level,
            held_before=held_before,
            is_whole=frontier.mark(own) >= max(held_before, self.catchup.published_before),
            is_everyone_met=hosts >= self._rules.clients and present <= {*self.donors.reached, own},
        )
        self.catchup.note(known, now)
        return self.catchup.may_speak(known, now) and self.announcement.is_confirmed(first, now)

    def agreed(self) -> set[OriginId]:
        """The neighbours that state that they are complete, and hold and have applied exactly what we have, with an
        equal digest."""
        frontier, digest = self._holdings.frontier, self._holdings.applied.digest()
        return {p for p in self.linked if self.donors.agrees(p, frontier) and self.divergence.is_equal_at(p, digest)}

    def digested(self, digest: ReplicaDigest, now: float) -> None:
        """Our own digest was taken."""
        for peer, is_equal in self.divergence.taken(digest):
            self._compared(peer, digest.frontier_digest, is_equal, now)

    def send_digests(self, before: int, *, is_complete: bool) -> None:
        """Tells all neighbours the digest of what is held of the steps below `before`; of all steps if we need nothing
        more."""
        before = STEP_MAX if is_complete else before
        frontier_digest = self._holdings.frontier.digest(before)
        digest = FrontierDigest(frontier_digest, before, is_complete, self._presence.membership.digest())
        self._outbox.outputs.send += [(peer, digest) for peer in self._presence.neighbours]

    def log_progress(self) -> None:
        """Logs how far we have caught up."""
        donor = self.donors.donor
        if self._life.phase is Phase.JOINING and donor is not None:
            progress = describe_progress(self._holdings.frontier, self.donors.goal(donor))
            self._outbox.log("catching up", donor=self._presence.membership.name(donor), **progress)

    def compact_epochs(self, now: float) -> None:
        """Compacts the epochs that have a certificate now."""
        self._outbox.outputs.compact += self.voting.review(now, len(self.ends.proofs))
        self._outdate_beside(now)

    def summed(self, closed: ClosedEpoch, now: float) -> None:
        """A sum was taken: votes for it."""
        digests = self._holdings.closings.summed(closed)
        if digests is not None:
            self.voting.cast(closed, digests, now)

    def compacted(self, closed: ClosedEpoch, now: float) -> None:
        """The journal has our sum of this epoch. What came beside it while the disk was full is outdated since then."""
        since = self._holdings.closings.wrote(closed, now)
        self._holdings.contents.forget(closed.epoch)
        self._outdate_beside(since)

    def _outdate_beside(self, since: float) -> None:
        if self._holdings.closings.is_any_beside:
            self.divergence.outdate(since)

    def compact_again(self) -> None:
        """The disk has space: what could not be written is ordered once more."""
        self._outbox.outputs.compact += self._holdings.closings.unwritten

    def settle_doubts(self, now: float) -> None:
        """Rebuilds our replica from the journal if it differs from most others.

        If a neighbour's digest differs, perhaps somebody sent us different things, so we send the neighbour which
        bundles we have (`equivocation`). An origin that did so once may have done it more often: while our coefficients
        are behind the journal, and our digest says nothing, we send that to all neighbours. So we do while votes
        differ.
        """
        self.divergence.review(now)
        is_open = self.divergence.is_outdated or self.voting.is_disputed
        for peer in self._presence.neighbours if is_open else self.divergence.unequal():
            self.equivocation.differ(peer, now)
        if self.divergence.rebuild(now):
            self._holdings.closings.distrust()

    def _terms(self, peer: OriginId) -> Terms:
        """On which terms bundles of a neighbour are taken now."""
        before = STEP_MAX
        if self._rules.window == "strict" and not self.is_joining:  # else others may have gone on without us
            before = self._presence.algorithm.step + self._rules.ahead_steps
        return Terms(self.donors.is_pulling(peer), before)

    def _receive_bundles(self, peer: OriginId, bundles: Sequence[Bundle], terms: Terms) -> None:
        taken = self._holdings.receive(peer, bundles, terms)
        if terms.is_answer:
            self.equivocation.receive_again(peer, bundles)
        if taken:
            self.donors.progressed(peer, self._holdings.frontier)
        if self.is_joining:
            self._holdings.settle(self._may_apply_before)
        elif self._presence.ours.origin in self._holdings.updated:
            self._outbox.log("another host speaks with our key", "error", peer=self._presence.membership.name(peer))

    def _receive_epoch(self, peer: OriginId, closed: ClosedEpoch, now: float) -> None:
        """Adopts a sum with a certificate, as the answer to a pull, if it brings something: steps that are missing
        here, or other bundles than we hold."""
        holdings = self._holdings
        is_held = holdings.frontier.covers(closed.frontier)
        is_asked_for = self.equivocation.is_asked_for(peer, closed.epoch) or closed.epoch in self.sums.wanted
        if not self.donors.is_pulling(peer) or (is_held and not is_asked_for):
            return
        step = self._presence.algorithm.step  # once it is measured, what the next round begins with may come
        following = step + self._rules.local_steps if self._life.phase is Phase.COLLECTING else step
        before = self._rules.applied_before(following)
        is_over = self.is_joining or (closed.epoch + 1) * self._rules.refresh_period <= before
        certified = self.voting.certified(closed)
        if certified is None or not is_over:
            name = self._presence.membership.name(peer)
            self._outbox.log("epoch not adopted", "warning", epoch=closed.epoch, donor=name)
            self._admission.refuse("unsigned sum")
        elif holdings.receive_epoch(certified, certified.certificate[0].digests):
            self.donors.progressed(peer, holdings.frontier)
            if is_held:
                self.divergence.outdate(now)

    def _receive_standing(self, peer: OriginId, standing: Standing, now: float) -> None:
        """Applies exactly what the donor had applied, so that the digests can be compared; only while we catch up, and
        if nothing else is applied here."""
        holdings = self._holdings
        theirs = Frontier(standing.frontier)
        if (
            self.is_joining
            and theirs.covers(holdings.applied.held())
            and holdings.frontier.covers(standing.frontier)
            and max(map(theirs.last, theirs.origins), default=-1) < self._may_apply_before()
        ):
            holdings.apply(holdings.pending.take_covered(theirs))
            self.divergence.take()
        digest = ReplicaDigest(theirs.digest(), standing.replica_digest)
        self._compared(peer, digest.frontier_digest, self.divergence.received(peer, digest), now)

    def _compared(self, peer: OriginId, frontier_digest: bytes, is_equal: bool | None, now: float) -> None:
        """A neighbour's replica was compared with ours. is_equal: None if that cannot be told yet."""
        if is_equal is False:
            self.equivocation.differ(peer, now)
        if is_equal is not None and self.divergence.compared(peer, frontier_digest, now):
            seconds = round(now - (self.catchup.linked_at or now), 3)
            name = self._presence.membership.name(peer)
            self._outbox.log("replica agrees", peer=name, seconds_since_link=seconds)

    def _has_replica(self, peer: OriginId) -> bool:
        """Does a neighbour speak of a replica of its own? Relays do not, whatever they state: the roster says who
        trains."""
        member, trainers = self._presence.membership.get(peer), self._admission.access.trainers
        is_trainer = trainers is None or peer in trainers
        return is_trainer and member is not None and not stated(member).is_relay
