"""Voting on the sums of epochs: casts and keeps our votes, checks those of others and passes them on (`certificates`).

Our vote is on the disk before anyone receives it. Nobody is in a hurry for votes, so a node gathers them
(`Neighbours.gather`). If a host contradicts a certificate, bundles stay beside it for a while: only they prove that an
origin sent different updates to different hosts.

What follows if hosts vote for different sums, and which hosts are named: docs/explanation/consensus.md.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from seedflood.errors import PeerError
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.admission import Admission
from seedflood.protocol.seedflood.divergence import DivergenceDetector
from seedflood.protocol.seedflood.holdings import Holdings
from seedflood.protocol.seedflood.messages import ClosedEpoch, EpochDigest, Vote, Votes, pack_votes, read_votes
from seedflood.protocol.seedflood.outputs import Outputs
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.swarm.outputs import Outbox, Record
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.swarm.standstill import Standstill

ASK_SECONDS_MIN, ASK_SECONDS_MAX = 4.0, 600.0
"""How long an epoch may be without a certificate until we ask the neighbours for votes; twice as long each time."""

OVERDUE_SECONDS = 60.0
"""How long the first epoch that could be compacted may wait for that until the log says why it waits."""

DISPUTE_SECONDS = 8.0
"""How long bundles stay beside a certificate if a vote attests another sum: neighbours compare every four seconds."""

VOTES_KEY = b"votes"


@dataclass(eq=False, repr=False)
class Voting:
    """What this node does about votes: its own, those of others, and those that contradict a certificate."""

    _holdings: Holdings
    _presence: Presence
    _admission: Admission
    _divergence: DivergenceDetector
    _outbox: Outbox[Outputs]
    _rules: Rules
    misvoting: dict[OriginId, int] = field(default_factory=dict)
    """By host that attests another sum than a certificate, while no origin is known to have deceived it: the first such
    epoch."""
    _suspects: dict[int, set[OriginId]] = field(default_factory=dict)
    """By disputed epoch: the neighbours that attest another sum, and were linked with us all the time since."""
    _deceiving: dict[OriginId, int] = field(default_factory=dict)
    """By origin that was proven to contradict itself: the last epoch on which a host may have voted before it knew
    that."""
    _is_changed: bool = False
    """Have votes come since certificates were looked for last?"""
    _counted: int | None = None
    """The serial of the roster when all votes were counted last; None if other votes have come since."""
    _serial: int = 0
    """The serial of the roster when certificates were looked for last."""
    _standstill: Standstill = field(default_factory=lambda: Standstill(ASK_SECONDS_MIN, ASK_SECONDS_MAX))
    _answered: dict[tuple[OriginId, int], float] = field(default_factory=dict)
    """By neighbour and epoch, if we have just sent it the votes on this epoch: until when we do not send them again."""
    _disputed: dict[int, float] = field(default_factory=dict)
    """By epoch that has a certificate for our sum, and whose bundles stay all the same: since when."""
    _objections: dict[OriginId, int] = field(default_factory=dict)
    """By host that votes for other sums than certificates: the first epoch on which it did since the last proof."""
    _proven: int = 0
    """How many origins were proven to contradict themselves, at the last review."""
    _logged: set[int] = field(default_factory=set)
    """The epochs of which the log has said why they stay as bundles."""
    _overdue: tuple[int | None, float] = (None, 0.0)
    """The first epoch that is not among these and could be compacted, and since when that is so."""

    def __post_init__(self) -> None:
        self._certificates = self._holdings.certificates
        self._closings = self._holdings.closings
        self._membership = self._presence.membership
        self._run_id = self._rules.run_id
        self._period = self._rules.refresh_period

    def recall(self, records: Mapping[bytes, bytes]) -> None:
        """Takes our votes back from the records of the journal."""
        record = records.get(VOTES_KEY, b"")
        for vote in read_votes(record, votes_max=len(record)):
            self._certificates.take(vote)

    def connected(self, peer: OriginId) -> None:
        """Sends a new neighbour the votes that matter."""
        votes = self._certificates.to_send()
        if votes:
            self._outbox.send(peer, Votes(tuple(votes)))

    def cast(self, closed: ClosedEpoch, digests: EpochDigest, now: float) -> None:
        """Votes for our sum, unless we have voted on its epoch. We look at it again in any case."""
        self._is_changed = True
        self._counted = None
        serial = self._certificates.serial_for(closed.epoch)
        if self._certificates.ours_on(closed.epoch) is None and serial is not None:
            ours = self._presence.ours
            self._presence.declare_new_neighbours()
            vote = Vote(ours.origin, closed.epoch, digests, serial=serial)
            signature = self._presence.sign(vote.signed_bytes(self._run_id, ours.public_key))
            vote = vote._replace(signature=signature)
            self._certificates.take(vote)
            self._keep()
            self._presence.neighbours.gather([vote])
        self._compare(closed.epoch, now)

    def receive(self, peer: OriginId, votes: Iterable[Vote], now: float) -> None:
        """Takes votes that are news, and passes them on.

        If a neighbour sends nothing but its own votes, and these are known, it asks: it is sent all votes on their
        epochs (`ask`). Raises PeerError for a wrong signature, when the votes before that one have been taken.
        """
        votes = tuple(votes)
        self._presence.neighbours.receive_gathered(peer, votes)
        news, fault = self._take(votes)
        if any(vote.origin == self._presence.ours.origin for vote in news):
            # A node that lost its disk learns its own votes from others, and must not vote again.
            self._keep()
        if news:
            self._is_changed = True
            self._counted = None
            self._presence.neighbours.gather(news, peer)
        elif fault is None and all(vote.origin == peer for vote in votes):
            self._answer(peer, {vote.epoch for vote in votes}, now)
        for epoch in sorted({vote.epoch for vote in news}):
            self._compare(epoch, now)
        if fault is not None:
            raise fault

    def _take(self, votes: Iterable[Vote]) -> tuple[list[Vote], PeerError | None]:
        """The votes that were news, up to one with a wrong signature, and what is wrong with that. The votes before it
        count, and go on. Otherwise a liar could stop those of others here."""
        news: list[Vote] = []
        for vote in votes:
            try:
                is_wanted = self._certificates.is_news(vote) and self._admission.admits_vote(vote)
            except PeerError as error:
                return news, error
            if not is_wanted:
                continue
            news.append(vote)
            is_first = self._certificates.take(vote)
            if not is_first:
                name = self._membership.name(vote.origin)
                self._outbox.log("a host votes twice", "error", member=name, epoch=vote.epoch)
        return news, None

    def _answer(self, peer: OriginId, epochs: Iterable[int], now: float) -> None:
        """Sends a neighbour all votes on these epochs, but not again so soon: an answer is much longer than the
        question."""
        self._answered = {key: until for key, until in self._answered.items() if until > now}
        sent: list[Vote] = []
        for epoch in epochs:
            if (peer, epoch) in self._answered:
                continue
            votes = self._certificates.votes_on(epoch)
            if votes:
                self._answered[peer, epoch] = now + ASK_SECONDS_MIN
                sent += votes
        if sent:
            self._outbox.send(peer, Votes(tuple(sent)))

    def disconnected(self, peer: OriginId) -> None:
        for suspects in self._suspects.values():
            suspects.discard(peer)

    def gathered(self, peer: OriginId) -> Iterator[Votes]:
        """Takes the votes that are to be passed on to a neighbour. Equal ones follow each other, so they share a ballot
        (`pack_votes`)."""
        votes: list[Vote] = self._presence.neighbours.take_gathered(peer)
        if votes:
            yield Votes(tuple(sorted(votes, key=lambda vote: (vote.epoch, vote.digests))))

    @property
    def is_disputed(self) -> bool:
        """Has a host voted for another sum of the same steps than a certificate, while we still hold the bundles?"""
        return bool(self._disputed)

    def review(self, now: float, proven: int) -> list[ClosedEpoch]:
        """Called when votes or members may have changed. Returns the sums that may take the place of bundles now.
        proven: how many origins were proven to contradict themselves."""
        if proven != self._proven:
            self._proven = proven
            self._objections.clear()
        serial = self._roster_serial
        if self._is_changed or self._presence.changed or serial != self._serial:
            self._is_changed = False
            self._serial = serial
            self._count()
        elif not self._disputed:
            return []
        agreed = self._closings.agreed(lambda epoch, digests: self._may_replace(epoch, digests, now), now)
        gone = [epoch for epoch in self._disputed if self._closings.digests(epoch) is None]
        for epoch in gone:
            del self._disputed[epoch]
            self._suspects.pop(epoch, None)
        return agreed

    def _may_replace(self, epoch: int, digests: EpochDigest, now: float) -> bool:
        """May our sum of an epoch, which has a certificate, take the place of its bundles?"""
        if epoch not in self._disputed:
            # A dispute costs all links something. So each host may cause one, and another one after a proof (`review`).
            against = self._certificates.against(epoch, digests)
            first_objections = [self._objections.setdefault(origin, epoch) for origin in against]
            if epoch not in first_objections:
                return True
            self._disputed[epoch] = now
            self._suspects[epoch] = {origin for origin in against if origin in self._presence.neighbours}
        is_over = now >= self._disputed[epoch] + DISPUTE_SECONDS
        if is_over:
            self._name(self._suspects.pop(epoch, ()), epoch)
        return is_over

    @property
    def _roster_serial(self) -> int:
        roster = self._admission.access.roster
        return roster.serial if roster is not None else 0

    def _count(self) -> None:
        self._counted = self._roster_serial
        self._certificates.review()

    def certified(self, closed: ClosedEpoch) -> ClosedEpoch | None:
        """A sum that a neighbour gives us, with a certificate of votes that were checked; None if its votes are not
        enough. Raises PeerError for a wrong signature."""
        votes = closed.certificate
        if not votes:
            return None
        digests = votes[0].digests
        if any(vote.epoch != closed.epoch or vote.digests != digests for vote in votes):
            return None
        # The host that made the certificate may know from earlier epochs that a roster is over. We may hold only the
        # bundles of these epochs. So we first count the votes that we have received.
        if self._counted != self._roster_serial:
            self._count()
        known = self._certificates.of(closed.epoch)
        if known not in (None, digests):
            return None
        admitted = {vote.origin: vote for vote in self._certificates.undoubted(closed.epoch, digests)}
        admitted |= {vote.origin: vote for vote in votes if self._admission.admits_vote(vote)}
        if not admitted:
            return None
        is_certified = known == digests or self._certificates.suffices(closed.epoch, admitted.values())
        if not is_certified:
            return None
        return replace(closed, certificate=self._certificates.fewest(closed.epoch, admitted.values()))

    def ask(self, now: float) -> None:
        """Once per comparison period: if an epoch has had no certificate for long, asks the neighbours for votes, by
        sending ours."""
        waiting = tuple(self._certificates.waiting())
        if self._standstill.lasts(waiting, now) and waiting:
            ours = [self._certificates.ours_on(epoch) for epoch in waiting]
            message = Votes(tuple(vote for vote in ours if vote is not None))
            self._outbox.outputs.send += [(peer, message) for peer in self._presence.neighbours]

    def log_overdue(self, step: int, now: float, lacking: Callable[[int], Iterable[OriginId]]) -> None:
        """Once per comparison period: logs why an epoch stays as bundles, once for each. lacking: returns the origins
        that owe updates for the steps below this one that are missing here."""
        certificates = self._certificates
        epoch = next((one for one in self._closings.overdue(step) if one not in self._logged), None)
        if epoch != self._overdue[0]:
            self._overdue = epoch, now
        _, since = self._overdue
        if epoch is None or now < since + OVERDUE_SECONDS:
            return
        if certificates.ours_on(epoch) is not None:
            why, origins = certificates.shortfall(epoch)
        else:
            why = "updates are missing"
            origins = list(lacking((epoch + 1) * self._period))
            if not origins:
                return  # we have still to vote
        self._logged.add(epoch)
        names = self._membership.names(origins)
        self._outbox.log("an epoch is not compacted", "warning", epoch=epoch, why=why, waiting_for=names)

    def take_names_back(self, step: int) -> None:
        """Once per comparison period: no longer names a host if an origin has deceived it that was proven to contradict
        itself."""
        for origin in self._membership.ended:
            self._deceiving.setdefault(origin, step // self._period + 1)
        name = self._membership.name
        for origin, epoch in list(self.misvoting.items()):
            culprit = self._deceiver(origin, epoch)
            if culprit is None:
                continue
            del self.misvoting[origin]
            self._outbox.log(
                "a host signed another sum as it was deceived", member=name(origin), epoch=epoch, by=name(culprit)
            )

    def _name(self, suspects: Iterable[OriginId], epoch: int) -> None:
        """Names these hosts, which attest another sum than the certificate, unless an origin is known to have deceived
        them."""
        for origin in sorted(suspects):
            if origin not in self.misvoting and self._deceiver(origin, epoch) is None:
                self.misvoting[origin] = epoch
                name = self._membership.name(origin)
                self._outbox.log("a host signs another sum than the others", "error", member=name, epoch=epoch)

    def _deceiver(self, origin: OriginId, epoch: int) -> OriginId | None:
        """An origin that may have sent this host other updates than the others, so that its sum of the epoch differs;
        None if there is none."""
        for culprit, end in self._membership.ended.items():
            last = self._deceiving.get(culprit, epoch)
            if culprit != origin and end // self._period <= epoch <= last:
                return culprit
        return None

    def _compare(self, epoch: int, now: float) -> None:
        """Doubts our replica if at least as many others have voted for another sum of the same steps as for ours."""
        digests = self._closings.digests(epoch)
        if digests is None:
            return
        ours = self._presence.ours.origin
        counts = self._divergence.credibility.counts
        against = self._certificates.against(epoch, digests)
        others = [origin for origin in against if origin != ours and counts(origin, now)]
        if not others:
            return
        same = {vote.origin for vote in self._certificates.votes_for(epoch, digests)}
        same.add(ours)
        if len(others) >= len(same):
            self._divergence.doubt(others, of=len(others) + len(same) - 1)

    def _keep(self) -> None:
        """Orders our votes onto the disk, before anyone receives them."""
        self._outbox.keep_record(Record(VOTES_KEY, pack_votes(self._certificates.ours())))
