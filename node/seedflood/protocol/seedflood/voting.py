"""Voting on the sums of epochs: our votes are cast and kept, those of others checked and passed on (`certificates`).

Our vote is on the disk before anyone receives it. Nobody is in a hurry for votes, so they are gathered
(`Neighbours.gather`). Bundles stay for a while beside a certificate that somebody contradicts, since only they prove
that an origin sent hosts different things.

What follows if hosts vote for different sums, and who is named: docs/explanation/consensus.md.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

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
"""How long an epoch may be without a certificate until neighbours are asked for votes; twice as long each time."""

OVERDUE_SECONDS = 60.0
"""How long the first epoch that could be compacted is waited for until the log says why it is not."""

DISPUTE_SECONDS = 8.0
"""How long bundles stay beside a certificate if a vote attests another sum: neighbours compare every four seconds."""

VOTES_KEY = b"votes"


@dataclass(eq=False, repr=False)
class Voting:
    """misvoting: the hosts that attest another sum than a certificate, though nobody is known to have deceived them;
    each with the first such epoch."""

    _holdings: Holdings
    _presence: Presence
    _admission: Admission
    _divergence: DivergenceDetector
    _outbox: Outbox[Outputs]
    _rules: Rules
    misvoting: dict[OriginId, int] = field(default_factory=dict)
    _suspects: dict[int, set[OriginId]] = field(default_factory=dict)
    """By disputed epoch: the neighbours that attest another sum, and were linked all the time since."""
    _deceiving: dict[OriginId, int] = field(default_factory=dict)
    """By origin that was proven to contradict itself: the last epoch on which somebody may have voted who did not know
    of that."""
    _is_changed: bool = False
    _counted: int | None = None
    """The serial of the roster when all votes were counted last; None if others have come since."""
    _serial: int = 0
    """Of the roster when certificates were looked for last."""
    _standstill: Standstill = field(default_factory=lambda: Standstill(ASK_SECONDS_MIN, ASK_SECONDS_MAX))
    _answered: dict[tuple[OriginId, int], float] = field(default_factory=dict)
    """By neighbour and epoch, of those that it was sent just now: until when it is not sent them again."""
    _disputed: dict[int, float] = field(default_factory=dict)
    """By epoch of which our bundles stay, though it has a certificate for our sum: since when."""
    _objections: dict[OriginId, int] = field(default_factory=dict)
    """By host that votes for other sums than certificates: the first epoch on which it did since the last proof."""
    _proven: int = 0
    _logged: set[int] = field(default_factory=set)
    """The epochs of which the log has said why they stay as bundles."""
    _overdue: tuple[int | None, float] = (None, 0.0)
    """The first other one that could be compacted, and since when it is."""

    def __post_init__(self) -> None:
        self._certificates = self._holdings.certificates
        self._closings = self._holdings.closings
        self._membership = self._presence.membership
        self._run_id, self._period = self._rules.run_id, self._rules.refresh_period

    def recall(self, records: Mapping[bytes, bytes]) -> None:
        """Our votes, as the journal keeps them."""
        record = records.get(VOTES_KEY, b"")
        for vote in read_votes(record, votes_max=len(record)):
            self._certificates.take(vote)

    def connected(self, peer: OriginId) -> None:
        """Tells a new neighbour the votes that matter."""
        if votes := self._certificates.to_send():
            self._outbox.send(peer, Votes(tuple(votes)))

    def cast(self, closed: ClosedEpoch, digests: EpochDigest, now: float) -> None:
        """Votes for our sum, unless we have voted on its epoch. We look at it again in any case."""
        ours, self._is_changed, self._counted = self._presence.ours, True, None
        serial = self._certificates.serial_for(closed.epoch)
        if self._certificates.ours_on(closed.epoch) is None and serial is not None:
            self._presence.declare_new_neighbours()
            vote = Vote(ours.origin, closed.epoch, digests, serial=serial)
            vote = vote._replace(signature=self._presence.sign(vote.signed_bytes(self._run_id, ours.public_key)))
            self._certificates.take(vote)
            self._keep()
            self._presence.neighbours.gather([vote])
        self._compare(closed.epoch, now)

    def receive(self, peer: OriginId, votes: Iterable[Vote], now: float) -> None:
        """Takes votes that are news, and passes them on. A neighbour that sends nothing but its own votes, which are
        known, is sent all on these epochs. Raises PeerError for a wrong signature."""
        certificates, ours = self._certificates, self._presence.ours.origin
        news = []
        votes = tuple(votes)
        self._presence.neighbours.receive_gathered(peer, votes)
        for vote in votes:
            if certificates.is_news(vote) and self._admission.admits_vote(vote):
                news.append(vote)
                if not certificates.take(vote):
                    name = self._presence.membership.name(vote.origin)
                    self._outbox.log("a host votes twice", "error", member=name, epoch=vote.epoch)
        if any(vote.origin == ours for vote in news):
            self._keep()
        if news:
            self._is_changed, self._counted = True, None
            self._presence.neighbours.gather(news, peer)
        elif all(vote.origin == peer for vote in votes):
            self._answer(peer, {vote.epoch for vote in votes}, now)
        for epoch in sorted({vote.epoch for vote in news}):
            self._compare(epoch, now)

    def _answer(self, peer: OriginId, epochs: Iterable[int], now: float) -> None:
        """Tells a neighbour all votes on these epochs, but none so soon again: an answer is much longer than the
        question."""
        recent = {key: until for key, until in self._answered.items() if until > now}
        known = [(epoch, self._certificates.votes_on(epoch)) for epoch in epochs if (peer, epoch) not in recent]
        sent = {(peer, epoch): now + ASK_SECONDS_MIN for epoch, votes in known if votes}
        self._answered = recent | sent
        if sent:
            self._outbox.send(peer, Votes(tuple(vote for _, votes in known for vote in votes)))

    def disconnected(self, peer: OriginId) -> None:
        for suspects in self._suspects.values():
            suspects.discard(peer)

    def gathered(self, peer: OriginId) -> Iterator[Votes]:
        """Takes the votes that are to be passed on to a neighbour; equal ones stand together."""
        votes: list[Vote] = self._presence.neighbours.take_gathered(peer)
        if votes:
            yield Votes(tuple(sorted(votes, key=lambda vote: (vote.epoch, vote.digests))))

    @property
    def is_disputed(self) -> bool:
        """Has somebody voted for another sum of the same steps than a certificate, while we hold the bundles yet?"""
        return bool(self._disputed)

    def review(self, now: float, proven: int) -> list[ClosedEpoch]:
        """Called when votes or members may have changed. Returns the sums that may take the place of bundles now.
        proven: how many origins were proven to contradict themselves."""
        if proven != self._proven:
            self._proven = proven
            self._objections.clear()
        serial = self._roster_serial
        if self._is_changed or self._presence.changed or serial != self._serial:
            self._is_changed, self._serial = False, serial
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
            # It costs all links something, so each host is given it once, and again after a proof (`review`).
            against = self._certificates.against(epoch, digests)
            if epoch not in [self._objections.setdefault(origin, epoch) for origin in against]:
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
        """A sum that somebody gives us with a certificate of votes that were checked, if there is one. Who made its own
        may know by earlier epochs that a roster is over, and we may hold only the bundles of these. So we count the
        votes first that we have received. Raises PeerError for a wrong signature."""
        votes = closed.certificate
        if not votes or {(vote.epoch, vote.digests) for vote in votes} != {(closed.epoch, votes[0].digests)}:
            return None
        if self._counted != self._roster_serial:
            self._count()
        digests, known = votes[0].digests, self._certificates.of(closed.epoch)
        if known not in (None, digests):
            return None
        known_votes = self._certificates.undoubted(closed.epoch, digests)
        admitted = {vote.origin: vote for vote in (*known_votes, *filter(self._admission.admits_vote, votes))}.values()
        if not admitted or not (known == digests or self._certificates.suffices(closed.epoch, admitted)):
            return None
        return replace(closed, certificate=self._certificates.fewest(closed.epoch, admitted))

    def ask(self, now: float) -> None:
        """Once per comparison period: if an epoch has no certificate for long, asks the neighbours for votes, by
        telling ours."""
        waiting = tuple(self._certificates.waiting())
        if self._standstill.lasts(waiting, now) and waiting:
            message = Votes(tuple(filter(None, map(self._certificates.ours_on, waiting))))
            self._outbox.outputs.send += [(peer, message) for peer in self._presence.neighbours]

    def log_overdue(self, step: int, now: float, lacking: Callable[[int], Iterable[OriginId]]) -> None:
        """Once per comparison period: says why an epoch stays as bundles, once for each. lacking: returns of whom an
        update is missing here that is owed for the steps below this one."""
        certificates, membership = self._certificates, self._presence.membership
        epoch = next((one for one in self._closings.overdue(step) if one not in self._logged), None)
        if epoch != self._overdue[0]:
            self._overdue = epoch, now
        if epoch is None or now < self._overdue[1] + OVERDUE_SECONDS:
            return
        if certificates.ours_on(epoch) is not None:
            why, origins = certificates.shortfall(epoch)
        elif not (origins := [*lacking((epoch + 1) * self._period)]):
            return  # we have still to vote
        else:
            why = "updates are missing"
        self._logged.add(epoch)
        self._outbox.log(
            "an epoch is not compacted", "warning", epoch=epoch, why=why, waiting_for=membership.names(origins)
        )

    def take_names_back(self, step: int) -> None:
        """Once per comparison period: names no longer whom an origin has deceived that was proven to contradict
        itself."""
        for one in self._membership.ended:
            self._deceiving.setdefault(one, step // self._period + 1)
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
        """Names these hosts, which attest another sum than the certificate, unless somebody is known to have deceived
        them."""
        for origin in sorted(suspects):
            if origin not in self.misvoting and self._deceiver(origin, epoch) is None:
                self.misvoting[origin] = epoch
                name = self._presence.membership.name(origin)
                self._outbox.log("a host signs another sum than the others", "error", member=name, epoch=epoch)

    def _deceiver(self, origin: OriginId, epoch: int) -> OriginId | None:
        """Who may have sent this host other things than the others, so that its sum of the epoch is another?"""
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
        others = [
            one for one in self._certificates.against(epoch, digests) if self._divergence.credibility.counts(one, now)
        ]
        others = [one for one in others if one != self._presence.ours.origin]
        if not others:
            return
        same = {vote.origin for vote in self._certificates.votes_for(epoch, digests)} | {self._presence.ours.origin}
        if len(others) >= len(same):
            self._divergence.doubt(others, of=len(others) + len(same) - 1)

    def _keep(self) -> None:
        """Our votes are to be on the disk before anyone receives them."""
        self._outbox.keep_record(Record(VOTES_KEY, pack_votes(self._certificates.ours())))
