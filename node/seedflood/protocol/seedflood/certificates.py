"""Votes and certificates: when may the sum of an epoch take the place of its bundles, and which hosts believe it?

A host signs one *vote* on an epoch that is over. The vote is on its disk before any other host receives it. Enough
equal votes are a *certificate*, which travels with the sum and is final. There are two rules for "enough":

- Closed runs with bounded windows: two thirds of the roster (`Certificates.is_by_quorum`). An epoch then gets one
  certificate at most, even if fewer than a third of the hosts vote on both sides of a split.
- All other runs: every host that takes part has voted, and more than half of them for this sum.

Why rosters are counted so, and what a split leaves: docs/explanation/consensus.md.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, islice

from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.seedflood.messages import EpochDigest, Vote
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.swarm.access import AccessList
from seedflood.protocol.swarm.membership import Membership
from seedflood.protocol.swarm.messages import Member

RETURN_ROUNDS = 4096
"""An origin that left may return within so many rounds after its last step, and still find all bundles that it lacks.
The others await its vote for as long. Otherwise a run could fall apart: each of two sides would believe that the other
has left."""

EPOCHS_SENT_MAX = 64
"""Of the epochs without a certificate, a host looks at the votes on so many at once, the earliest ones, and sends
them."""

CERTIFIED_EPOCHS_SENT = 16
"""Of the epochs with a certificate, a host keeps and sends the votes on so many, the latest ones. It also keeps those
that show rosters to be over: a host that does not know that would want more votes on later epochs."""

DOUBLES_MAX = 64
"""A host keeps two contradicting votes of so many hosts."""


def liars_max(hosts: int) -> int:
    """How many of so many hosts may lie: fewer than a third."""
    return (hosts - 1) // 3


def quorum(hosts: int) -> int:
    """How many of so many hosts have to vote alike: two thirds. Any two quorums then share an honest host."""
    return (hosts + liars_max(hosts)) // 2 + 1


def blocking(hosts: int) -> int:
    """How many of an earlier roster have to vote alike: so many that any quorum of it shares an honest host with them.
    Of five hosts these are three, so two may be removed at once."""
    return hosts + liars_max(hosts) + 1 - quorum(hosts)


class Certificates:
    """The votes that this host knows, and the certificates that follow from them."""

    def __init__(self, rules: Rules, access: AccessList, membership: Membership, origin: OriginId) -> None:
        self.doubles: dict[OriginId, tuple[Vote, Vote]] = {}
        """By host: two of its votes that contradict each other."""
        self._rules = rules
        self._access = access
        self._membership = membership
        self._origin = origin
        self._votes: dict[int, dict[OriginId, Vote]] = {}
        """By epoch: the first vote of each host. `forget` drops epochs whose certificate is long known, but keeps
        those that show a roster to be over."""
        self._certified: dict[int, EpochDigest] = {}
        """By epoch with a certificate: what it attests. None is ever forgotten."""
        self._reached = 0
        """The step behind the last epoch on which we voted."""
        self._lagging: dict[int, OriginId] = {}
        """By epoch without a certificate: one host whose vote it waits for, if all have to vote."""
        self._floors: dict[int, int] = {}
        """By epoch with a certificate: the least serial in it, if it is greater than in those of all earlier ones. All
        rosters before this serial are over: they do not count for later epochs."""

    @property
    def is_by_quorum(self) -> bool:
        """Are two thirds of the roster enough? Otherwise every host that takes part has to vote."""
        return self._access.is_closed and self._rules.window != "strict"

    @property
    def has_votes(self) -> bool:
        """Has anyone ended an epoch?"""
        return bool(self._votes)

    def ours(self) -> list[Vote]:
        """Our votes on epochs that still matter."""
        return [votes[self._origin] for votes in self._votes.values() if self._origin in votes]

    def ours_on(self, epoch: int) -> Vote | None:
        return self._on(epoch).get(self._origin)

    def is_news(self, vote: Vote) -> bool:
        """Should it be verified? A second vote of its host on the epoch is news once."""
        epochs = self._rules.steps // self._rules.refresh_period
        if not 0 <= vote.epoch < epochs:
            return False
        is_forgotten = vote.epoch in self._certified and vote.epoch not in self._votes
        if is_forgotten:
            return False
        known = self._on(vote.epoch).get(vote.origin)
        if known is None:
            return True
        if known.digests == vote.digests or vote.origin in self.doubles:
            return False
        return len(self.doubles) < DOUBLES_MAX

    def take(self, vote: Vote) -> bool:
        """Keeps a vote that was verified. False: its host has voted for something else before, and both votes are
        kept."""
        votes = self._votes.setdefault(vote.epoch, {})
        known = votes.setdefault(vote.origin, vote)
        if known.digests != vote.digests:
            self.doubles[vote.origin] = known, vote
            return False
        if vote.origin == self._origin:
            end = (vote.epoch + 1) * self._rules.refresh_period
            self._reached = max(self._reached, end)
        return True

    def serial_for(self, epoch: int) -> int | None:
        """The serial of the roster by which we vote on an epoch: of the newest one that changed who may train, but no
        greater than in our votes on later epochs. 0 if no quorum of a roster is needed. None: it is too late for a
        vote, because we no longer know all of these."""
        roster = self._access.roster
        if not self.is_by_quorum or roster is None:
            return 0
        ours = {vote.epoch: vote.serial for vote in self.ours()}
        # We may have forgotten our votes on epochs before this one, and must not vote twice. Those in `_floors` stay
        # longer than others, so they do not show that all later ones are still here.
        recent = min(ours.keys() - self._floors.keys(), default=epoch)
        later = [serial for voted, serial in ours.items() if voted > epoch]
        if later and epoch < recent:
            return None
        return min([roster.changed_at, *later])

    def is_voted_on(self, epoch: int) -> bool:
        """Has anyone voted on it, as far as we know?"""
        return epoch in self._votes or epoch in self._certified

    def votes_on(self, epoch: int) -> list[Vote]:
        return list(self._on(epoch).values())

    def to_send(self) -> list[Vote]:
        """All votes that others need to know as much as we do."""
        votes: list[Vote] = []
        certified = sorted(self._certified.keys() & self._votes.keys())
        for epoch in chain(certified, self._uncertified()):
            votes += self._votes[epoch].values()
        votes += [second for _, second in self.doubles.values()]
        return votes

    def waiting(self) -> list[int]:
        """The epochs on which we voted, that have no certificate, and may still get one."""
        epochs = []
        for vote in self.ours():
            if vote.epoch in self._certified:
                continue
            _, awaited = self.shortfall(vote.epoch)
            if awaited:
                epochs.append(vote.epoch)
        return epochs

    def of(self, epoch: int) -> EpochDigest | None:
        """What the certificate of an epoch attests, if there is one."""
        return self._certified.get(epoch)

    def votes_for(self, epoch: int, digests: EpochDigest) -> tuple[Vote, ...]:
        """The votes for this sum."""
        return tuple(vote for vote in self._on(epoch).values() if vote.digests == digests)

    def certificate(self, epoch: int, digests: EpochDigest) -> tuple[Vote, ...]:
        """The votes for this sum. Where a quorum is enough: no more of them than it takes."""
        return self.fewest(epoch, self.undoubted(epoch, digests))

    def undoubted(self, epoch: int, digests: EpochDigest) -> tuple[Vote, ...]:
        """The votes for this sum, of hosts that do not contradict themselves."""
        return tuple(vote for vote in self.votes_for(epoch, digests) if vote.origin not in self.doubles)

    def fewest(self, epoch: int, votes: Iterable[Vote]) -> tuple[Vote, ...]:
        """These equal votes. Where a quorum is enough, and they are one: no more of them than it takes."""
        votes = tuple(votes)
        if not self.is_by_quorum:
            return votes
        return self._enough(epoch, votes) or votes

    def against(self, epoch: int, digests: EpochDigest) -> list[OriginId]:
        """The hosts that have voted for another sum of the same steps."""
        return [
            vote.origin
            for vote in self._on(epoch).values()
            if vote.digests != digests and vote.digests.frontier_digest == digests.frontier_digest
        ]

    def note(self, epoch: int, digests: EpochDigest, votes: Iterable[Vote]) -> None:
        """This epoch has a certificate of these votes, which were checked: it was found here, or came with a sum."""
        votes = tuple(votes)
        is_known = epoch in self._certified
        self._certified[epoch] = digests
        self._lagging.pop(epoch, None)
        if is_known:
            return
        serial = min((vote.serial for vote in votes), default=0)
        highest = max((floor for earlier, floor in self._floors.items() if earlier <= epoch), default=0)
        if serial <= highest:
            return
        # Later epochs whose certificates show no more rosters to be over than this one need not be kept for that.
        self._floors = {other: floor for other, floor in self._floors.items() if other < epoch or floor > serial}
        self._floors[epoch] = serial
        self._votes[epoch] = {vote.origin: vote for vote in votes} | self._on(epoch)

    def forget(self, but: Collection[int]) -> None:
        """Forgets the votes on epochs whose certificate is long known. but: epochs whose sums wait for their votes."""
        kept = sorted(self._certified.keys() & self._votes.keys() - self._floors.keys())
        for epoch in kept[:-CERTIFIED_EPOCHS_SENT]:
            if epoch not in but:
                del self._votes[epoch]

    def review(self) -> list[tuple[int, EpochDigest]]:
        """The epochs that have enough votes since the last call."""
        found = []
        for epoch in self._uncertified():
            digests = self._find(epoch)
            if digests is not None:
                found.append((epoch, digests))
        for epoch, digests in found:
            self.note(epoch, digests, self.certificate(epoch, digests))
        return found

    def shortfall(self, epoch: int) -> tuple[str, list[OriginId]]:
        """Why an epoch on which we voted is not compacted, and the hosts whose votes may still change that. There are
        none if the epoch stays as it is, because nobody votes twice."""
        if epoch in self._certified:
            return "what counts has changed since hosts voted for its sum, so it stays as bundles", []
        votes = self._votes[epoch]
        sides = Counter(vote.digests for vote in votes.values())
        if self.is_by_quorum:
            most = max(sides, key=lambda digests: sides[digests])
            awaited, is_hopeless = self._missing(epoch, votes, most)
        else:
            awaited, is_hopeless = self._missing_of_all(epoch, votes, sides)
        if is_hopeless:
            why = "hosts voted for different sums" if len(sides) > 1 else "too few hosts are left to vote for its sum"
            return f"{why}, so it stays as bundles", []
        return "votes are missing", awaited

    def suffices(self, epoch: int, votes: Collection[Vote]) -> bool:
        """Do we believe a sum that another host gives us with these votes? They are of different hosts."""
        if self.is_by_quorum:
            return bool(self._enough(epoch, votes))
        # Our vote counts, even if our disk was lost since, and even if it is for another sum. Otherwise each half of a
        # split would believe the other, and a liar could give both a sum.
        but = self._origin if self.ours_on(epoch) is None else None
        size = self._size(epoch, {vote.origin for vote in votes}, but=but)
        return 2 * len(votes) > size

    def believed(self, epoch: int) -> EpochDigest | None:
        """The sum of an epoch that has a certificate, or that we would believe if another host gave it to us: a host
        that received the votes in another order may have found a certificate."""
        certified = self.of(epoch)
        if certified is not None:
            return certified
        sides = Counter(vote.digests for vote in self._on(epoch).values())
        most = max(sides, key=lambda digests: (sides[digests], digests), default=None)
        if most is None or not self.suffices(epoch, self.undoubted(epoch, most)):
            return None
        return most

    def votes_wanted(self) -> int:
        """How many votes a quorum is now."""
        return quorum(len(self._voters()))

    def _on(self, epoch: int) -> dict[OriginId, Vote]:
        return self._votes.get(epoch, {})

    def _uncertified(self) -> Iterator[int]:
        """The earliest EPOCHS_SENT_MAX that have votes and no certificate."""
        uncertified = (epoch for epoch in sorted(self._votes) if epoch not in self._certified)
        return islice(uncertified, EPOCHS_SENT_MAX)

    def _voters(self) -> frozenset[OriginId]:
        """The hosts that may train by the newest roster."""
        roster = self._access.roster
        if roster is None:
            return frozenset()
        (voters,) = roster.voters(roster.serial, roster.serial)
        return voters

    def _missing(self, epoch: int, votes: Mapping[OriginId, Vote], most: EpochDigest) -> tuple[list[OriginId], bool]:
        """Where a quorum is enough: the hosts whose votes are missing, and whether there would be no certificate even
        if all of them voted for the sum that has most votes."""
        awaited = sorted(self._voters() - votes.keys())
        serial = self.serial_for(epoch) or 0
        pretended = [Vote(origin, epoch, most, serial=serial) for origin in awaited]
        is_hopeless = not self._enough(epoch, [*self.votes_for(epoch, most), *pretended])
        return awaited, is_hopeless

    def _missing_of_all(
        self, epoch: int, votes: Mapping[OriginId, Vote], sides: Mapping[EpochDigest, int]
    ) -> tuple[list[OriginId], bool]:
        """The same where all have to vote."""
        most = max(sides.values())
        size = self._size(epoch, votes)
        counted = {*votes, *self._awaited(epoch)}
        if 2 * most <= size:
            # The votes are no majority yet. So it takes others that hold the epoch, too.
            counted |= {word.origin for word in self._membership.words() if not word.has_left}
        awaited = sorted(counted - votes.keys())
        is_split = len({digests.frontier_digest for digests in sides}) > 1
        is_minority = 2 * (most + len(awaited)) <= max(size, len(counted))
        return awaited, is_split or is_minority

    def _find(self, epoch: int) -> EpochDigest | None:
        """The sum for which an epoch has enough votes; None if it has not."""
        votes = self._votes[epoch]
        if self.doubles:
            votes = {origin: vote for origin, vote in votes.items() if origin not in self.doubles}
        if not self.is_by_quorum and self._is_any_lagging(epoch, votes):
            return None
        sides: dict[EpochDigest, list[Vote]] = {}
        for vote in votes.values():
            sides.setdefault(vote.digests, []).append(vote)
        # The digests break ties, so the order in which votes came does not matter.
        largest = max(sides, key=lambda digests: (len(sides[digests]), digests), default=None)
        if largest is None:
            return None
        if self.is_by_quorum:
            is_enough = bool(self._enough(epoch, sides[largest]))
        else:
            is_enough = self._is_unanimous(epoch, votes, len(sides[largest]))
        return largest if is_enough else None

    def _is_any_lagging(self, epoch: int, votes: Collection[OriginId]) -> bool:
        """Has any host still to vote, where all have to?"""
        # Of many hosts most look-ups end with the one for which the last look-up waited.
        last = self._membership.get(self._lagging.get(epoch, self._origin))
        if last is not None and last.origin not in votes and self._is_awaited(last, epoch):
            return True
        for origin in self._awaited(epoch):
            if origin not in votes:
                self._lagging[epoch] = origin
                return True
        return False

    def _enough(self, epoch: int, votes: Iterable[Vote]) -> tuple[Vote, ...]:
        """As few of these equal votes as are enough of each roster that counts; empty if they are too few. A vote that
        names a roster that is not known here yet does not count."""
        roster = self._access.roster
        if roster is None:
            return ()
        first = roster.full_at(self._rules.clients)
        if first is None:
            return ()
        # The oldest roster that counts: the certificates of earlier epochs show those before it to be over.
        earlier_floors = [serial for earlier, serial in self._floors.items() if earlier < epoch]
        floor = max([first, *earlier_floors])
        newest_first = sorted(votes, key=lambda vote: (-vote.serial, vote.origin))
        serials = sorted({vote.serial for vote in newest_first if floor <= vote.serial <= roster.serial})
        for last in serials:
            rosters = roster.voters(floor, last)
            missing = [blocking(len(voters)) for voters in rosters]
            missing[-1] = quorum(len(rosters[-1]))
            taken = []
            for vote in newest_first:
                if vote.serial > last:
                    continue
                is_on = [vote.origin in voters for voters in rosters]
                if not any(is_on):
                    continue
                taken.append(vote)
                missing = [count - is_counted for count, is_counted in zip(missing, is_on, strict=True)]
                if max(missing) <= 0:
                    return tuple(taken)
        return ()

    def _is_unanimous(self, epoch: int, votes: Mapping[OriginId, Vote], equal: int) -> bool:
        """Where all have to vote, and have voted: do they attest the same steps, and do more than half of them attest
        one sum? equal: how many have voted for the sum with most votes. Where there are other origins, one of them
        must have voted, even if it has left: nobody is its own witness."""
        if self._membership.taking_part < self._rules.clients:
            return False
        if len({vote.digests.frontier_digest for vote in votes.values()}) > 1:
            return False
        has_witness = equal >= min(2, self._rules.clients)
        return has_witness and 2 * equal > self._size(epoch, votes)

    def _size(self, epoch: int, signers: Collection[OriginId], *, but: OriginId | None = None) -> int:
        """Where no quorum of a roster is enough: of how many hosts more than half have to attest the same sum.

        These are the hosts that took part in the epoch, as far as we know, and the signers; in an open run all clients,
        if these are more. but: a host that does not count unless it is a signer. Of an even number of hosts half are
        enough then. The other half, with that host, is no majority.
        """
        first = epoch * self._rules.refresh_period
        end = first + self._rules.refresh_period
        counted = set(signers)
        for word in self._membership.words():
            took_part = word.first_step < end and (word.last_step is None or word.last_step >= first)
            if took_part and word.origin != but:
                counted.add(word.origin)
        if self._access.is_closed:
            return len(counted)
        is_one_less = but is not None and but not in signers
        return max(len(counted), self._rules.clients - is_one_less)

    def _awaited(self, epoch: int) -> Iterator[OriginId]:
        """The hosts that have to vote where no quorum is enough."""
        return (member.origin for member in self._membership.all() if self._is_awaited(member, epoch))

    def _is_awaited(self, member: Member, epoch: int) -> bool:
        rules = self._rules
        last = member.last_step
        if self.is_by_quorum:
            return False
        if last is None:
            # A host that joined or returned after the epoch need not vote on it.
            end = (epoch + 1) * rules.refresh_period
            return member.first_step < min(end, STEP_MAX)
        left_early = 0 <= last < rules.steps - 1
        may_return = self._reached <= last + RETURN_ROUNDS * rules.local_steps
        return left_early and may_return
