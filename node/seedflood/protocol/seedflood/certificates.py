"""Votes and certificates: when may the sum of an epoch take the place of its bundles, and who believes it?

A host signs one *vote* on an epoch that is over, and it is on its disk before anyone receives it. Enough equal votes
are a *certificate*, which travels with the sum and is final. In closed runs with bounded windows two thirds of the
roster are enough: there is one certificate at most, even if fewer than a third of the hosts vote on both sides of a
split. Else everyone who takes part has to vote.

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
"""How many rounds after its last step an origin that left may return and still find all bundles that it lacks. So long
its vote is awaited: else two sides that each believe that the other has left would go apart."""

EPOCHS_SENT_MAX = 64
"""Of how many epochs without a certificate, the earliest ones, votes are looked at and sent at once."""

CERTIFIED_EPOCHS_SENT = 16
"""Of how many epochs with a certificate, the latest ones, votes are kept and sent; and of those that show rosters to be
over, since who does not know that would want more votes on later ones."""

DOUBLES_MAX = 64
"""Of so many hosts two votes on one epoch are kept."""


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
    """doubles: by host, two of its votes that contradict each other."""

    def __init__(self, rules: Rules, access: AccessList, membership: Membership, origin: OriginId) -> None:
        self.doubles: dict[OriginId, tuple[Vote, Vote]] = {}
        self._rules = rules
        self._access = access
        self._membership = membership
        self._origin = origin
        self._votes: dict[int, dict[OriginId, Vote]] = {}
        """By epoch: the first vote of each host. Not of epochs whose certificate is long known, but for those
        that show a roster to be over."""
        self._certified: dict[int, EpochDigest] = {}
        self._reached = 0
        """The step behind the last epoch on which we voted."""
        self._lagging: dict[int, OriginId] = {}
        """By epoch without a certificate: one whose vote it waits for, where all have to vote."""
        self._floors: dict[int, int] = {}
        """By epoch with a certificate: the least serial in it, if it is greater than in those of all earlier ones."""

    @property
    def is_by_quorum(self) -> bool:
        """Are two thirds of the roster enough? Else everyone who takes part has to vote."""
        return self._access.is_closed and self._rules.window != "strict"

    @property
    def has_votes(self) -> bool:
        """Has anyone ended an epoch?"""
        return bool(self._votes)

    def ours(self) -> list[Vote]:
        """Our votes on epochs that matter yet."""
        return [votes[self._origin] for votes in self._votes.values() if self._origin in votes]

    def ours_on(self, epoch: int) -> Vote | None:
        return self._on(epoch).get(self._origin)

    def is_news(self, vote: Vote) -> bool:
        """Should it be verified? A second vote of its host on the epoch is news once."""
        if not 0 <= vote.epoch < self._rules.steps // self._rules.refresh_period:
            return False
        if vote.epoch in self._certified and vote.epoch not in self._votes:
            return False
        known = self._on(vote.epoch).get(vote.origin)
        if known is None:
            return True
        return known.digests != vote.digests and vote.origin not in self.doubles and len(self.doubles) < DOUBLES_MAX

    def take(self, vote: Vote) -> bool:
        """Keeps a vote that was verified. False: its host has voted otherwise before, and both votes are kept."""
        known = self._votes.setdefault(vote.epoch, {}).setdefault(vote.origin, vote)
        if known.digests != vote.digests:
            self.doubles[vote.origin] = known, vote
        elif vote.origin == self._origin:
            self._reached = max(self._reached, (vote.epoch + 1) * self._rules.refresh_period)
        return known.digests == vote.digests

    def serial_for(self, epoch: int) -> int | None:
        """By which roster we vote on an epoch: by ours, but by none that is newer than those of our votes on later
        epochs. None: it is too late for a vote, since we do not know all of these any more."""
        ours, roster = {vote.epoch: vote.serial for vote in self.ours()}, self._access.roster
        recent = min(ours.keys() - self._floors.keys(), default=epoch)  # others before it may be forgotten
        if not self.is_by_quorum or roster is None:
            return 0
        later = [serial for one, serial in ours.items() if one > epoch]
        return None if later and epoch < recent else min([roster.changed_at, *later])

    def is_voted_on(self, epoch: int) -> bool:
        """Has anyone voted on it, as far as is known here?"""
        return epoch in self._votes or epoch in self._certified

    def votes_on(self, epoch: int) -> list[Vote]:
        return list(self._on(epoch).values())

    def to_send(self) -> list[Vote]:
        """What others need to know as much as we do."""
        of_epochs = chain(sorted(self._certified.keys() & self._votes.keys()), self._uncertified())
        votes = [vote for epoch in of_epochs for vote in self._votes[epoch].values()]
        return votes + [second for _, second in self.doubles.values()]

    def waiting(self) -> list[int]:
        """The epochs on which we voted, that have no certificate, and may get one yet."""
        open_epochs = (vote.epoch for vote in self.ours() if vote.epoch not in self._certified)
        return [epoch for epoch in open_epochs if self.shortfall(epoch)[1]]

    def of(self, epoch: int) -> EpochDigest | None:
        """What the certificate of an epoch attests, if there is one."""
        return self._certified.get(epoch)

    def votes_for(self, epoch: int, digests: EpochDigest) -> tuple[Vote, ...]:
        """Who has voted for this sum."""
        return tuple(vote for vote in self._on(epoch).values() if vote.digests == digests)

    def certificate(self, epoch: int, digests: EpochDigest) -> tuple[Vote, ...]:
        """Of the votes for this sum no more than it takes, where a quorum is enough."""
        return self.fewest(epoch, self.undoubted(epoch, digests))

    def undoubted(self, epoch: int, digests: EpochDigest) -> tuple[Vote, ...]:
        """The votes for this sum, of hosts that do not contradict themselves."""
        return tuple(vote for vote in self.votes_for(epoch, digests) if vote.origin not in self.doubles)

    def fewest(self, epoch: int, votes: Iterable[Vote]) -> tuple[Vote, ...]:
        """Of equal votes no more than it takes, where a quorum is enough."""
        votes = tuple(votes)
        return (self.is_by_quorum and self._enough(epoch, votes)) or votes

    def against(self, epoch: int, digests: EpochDigest) -> list[OriginId]:
        """Who has voted for another sum of the same steps."""
        others = [one for one in self._on(epoch).values() if one.digests != digests]
        return [one.origin for one in others if one.digests.frontier_digest == digests.frontier_digest]

    def note(self, epoch: int, digests: EpochDigest, votes: Iterable[Vote]) -> None:
        """This epoch has a certificate, these votes, which were checked: it was found here, or came with a sum."""
        votes = tuple(votes)
        is_known, serial = epoch in self._certified, min((vote.serial for vote in votes), default=0)
        self._certified[epoch] = digests
        self._lagging.pop(epoch, None)
        if not is_known and serial > max((known for one, known in self._floors.items() if one <= epoch), default=0):
            self._floors = {one: known for one, known in self._floors.items() if one < epoch or known > serial}
            self._floors[epoch] = serial
            self._votes[epoch] = {vote.origin: vote for vote in votes} | self._on(epoch)

    def forget(self, but: Collection[int]) -> None:
        """Forgets the votes on epochs whose certificate is long known. but: those whose sums wait for their votes."""
        kept = sorted(self._certified.keys() & self._votes.keys() - self._floors.keys())
        for one in kept[:-CERTIFIED_EPOCHS_SENT]:
            if one not in but:
                del self._votes[one]

    def review(self) -> list[tuple[int, EpochDigest]]:
        """The epochs that have enough votes since this was called last."""
        found = [(epoch, digests) for epoch in self._uncertified() if (digests := self._find(epoch)) is not None]
        for epoch, digests in found:
            self.note(epoch, digests, self.certificate(epoch, digests))
        return found

    def shortfall(self, epoch: int) -> tuple[str, list[OriginId]]:
        """Why an epoch on which we voted is not compacted, and whose votes may change that yet; nobody's if it stays
        so, since nobody votes twice."""
        if epoch in self._certified:
            return "what counts has changed since hosts voted for its sum, so it stays as bundles", []
        votes = self._votes[epoch]
        sides = Counter(vote.digests for vote in votes.values())
        if self.is_by_quorum:
            awaited, is_hopeless = self._missing(epoch, votes, max(sides, key=lambda digests: sides[digests]))
        else:
            awaited, is_hopeless = self._missing_of_all(epoch, votes, sides)
        if is_hopeless:
            why = "hosts voted for different sums" if len(sides) > 1 else "too few hosts are left to vote for its sum"
            return f"{why}, so it stays as bundles", []
        return "votes are missing", awaited

    def suffices(self, epoch: int, votes: Collection[Vote]) -> bool:
        """Is a sum to be believed that has these votes, of different hosts, if somebody else gives it to us?"""
        if self.is_by_quorum:
            return bool(self._enough(epoch, votes))
        # Our vote counts though our disk may have been lost since, and if it is for another sum: else each half of a
        # split would believe the other, and a liar could give both a sum.
        but = self._origin if self.ours_on(epoch) is None else None
        return 2 * len(votes) > self._size(epoch, {vote.origin for vote in votes}, but=but)

    def believed(self, epoch: int) -> EpochDigest | None:
        """The sum of an epoch that has a certificate, or would be believed if somebody gave it to us: who received the
        votes in another order than we may have found a certificate."""
        if (certified := self.of(epoch)) is not None:
            return certified
        sides = Counter(vote.digests for vote in self._on(epoch).values())
        most = max(sides, key=lambda digests: (sides[digests], digests), default=None)
        return most if most is not None and self.suffices(epoch, self.undoubted(epoch, most)) else None

    def votes_wanted(self) -> int:
        """How many votes a quorum is now."""
        return quorum(len(self._voters()))

    def _on(self, epoch: int) -> dict[OriginId, Vote]:
        return self._votes.get(epoch, {})

    def _uncertified(self) -> Iterator[int]:
        """The earliest EPOCHS_SENT_MAX that have votes and no certificate."""
        return islice((epoch for epoch in sorted(self._votes) if epoch not in self._certified), EPOCHS_SENT_MAX)

    def _voters(self) -> frozenset[OriginId]:
        """Who may train by the newest roster."""
        roster = self._access.roster
        return roster.voters(roster.serial, roster.serial)[0] if roster is not None else frozenset()

    def _missing(self, epoch: int, votes: Mapping[OriginId, Vote], most: EpochDigest) -> tuple[list[OriginId], bool]:
        """Whose votes are missing where a quorum is enough, and would it be no certificate if all voted alike?"""
        awaited, serial = sorted(self._voters() - votes.keys()), self.serial_for(epoch) or 0
        pretended = [Vote(origin, epoch, most, serial=serial) for origin in awaited]
        return awaited, not self._enough(epoch, [*self.votes_for(epoch, most), *pretended])

    def _missing_of_all(
        self, epoch: int, votes: Mapping[OriginId, Vote], sides: Mapping[EpochDigest, int]
    ) -> tuple[list[OriginId], bool]:
        """The same where all have to vote."""
        most, size = max(sides.values()), self._size(epoch, votes)
        counted = {*votes, *self._awaited(epoch)}
        if 2 * most <= size:  # then it takes others, who hold the epoch, too
            counted |= {word.origin for word in self._membership.words() if not word.has_left}
        awaited = sorted(counted - votes.keys())
        is_split = len({digests.frontier_digest for digests in sides}) > 1
        return awaited, is_split or 2 * (most + len(awaited)) <= max(size, len(counted))

    def _find(self, epoch: int) -> EpochDigest | None:
        """What enough votes attest. Of many hosts most look-ups end with the one for whom the last one waited."""
        votes = self._votes[epoch]
        if self.doubles:
            votes = {origin: vote for origin, vote in votes.items() if origin not in self.doubles}
        if not self.is_by_quorum and self._is_any_lagging(epoch, votes):
            return None
        sides: dict[EpochDigest, set[OriginId]] = {}
        for origin, vote in votes.items():
            sides.setdefault(vote.digests, set()).add(origin)
        largest = max(sides, key=lambda digests: (len(sides[digests]), digests), default=None)
        if largest is None:
            return None
        if self.is_by_quorum:
            return largest if self._enough(epoch, [votes[one] for one in sides[largest]]) else None
        return largest if self._is_unanimous(epoch, votes, len(sides[largest])) else None

    def _is_any_lagging(self, epoch: int, votes: Collection[OriginId]) -> bool:
        """Has anyone still to vote, where all have to?"""
        last = self._membership.get(self._lagging.get(epoch, self._origin))
        if last is not None and last.origin not in votes and self._is_awaited(last, epoch):
            return True
        lagging = next((one for one in self._awaited(epoch) if one not in votes), None)
        if lagging is not None:
            self._lagging[epoch] = lagging
        return lagging is not None

    def _enough(self, epoch: int, votes: Iterable[Vote]) -> tuple[Vote, ...]:
        """As few of these equal votes as are enough of each roster that counts. None if they are too few, or if one
        names a roster that is not known here yet."""
        roster = self._access.roster
        first = roster.full_at(self._rules.clients) if roster is not None else None
        if roster is None or first is None:
            return ()
        floor = max([first, *(serial for one, serial in self._floors.items() if one < epoch)])
        newest_first = sorted(votes, key=lambda vote: (-vote.serial, vote.origin))
        for last in sorted({vote.serial for vote in newest_first if floor <= vote.serial <= roster.serial}):
            voters = roster.voters(floor, last)
            wanted = [*(blocking(len(one)) for one in voters[:-1]), quorum(len(voters[-1]))]
            taken = []
            for vote in newest_first:
                if vote.serial <= last and any(vote.origin in one for one in voters):
                    taken.append(vote)
                    wanted = [count - (vote.origin in one) for count, one in zip(wanted, voters, strict=True)]
                    if max(wanted) <= 0:
                        return tuple(taken)
        return ()

    def _is_unanimous(self, epoch: int, votes: Mapping[OriginId, Vote], equal: int) -> bool:
        """Do all attest the same steps, now that everyone who takes part has voted, and more than half of them one sum?
        Where there are other origins, one of them must have voted, even if it has left: nobody is its own witness."""
        if self._membership.taking_part < self._rules.clients or len({vote.digests[0] for vote in votes.values()}) > 1:
            return False
        return 2 * equal > self._size(epoch, votes) and equal >= min(2, self._rules.clients)

    def _size(self, epoch: int, signers: Collection[OriginId], *, but: OriginId | None = None) -> int:
        """Of how many hosts more than half have to attest the same sum, where no quorum of a roster is enough: of
        those who took part in the epoch as far as we know; in an open run of all clients, if these are more. but: a
        host that does not count if it is none of the signers. Of an even number of hosts half are enough then, and the
        others with that one are no majority."""
        first, end = epoch * self._rules.refresh_period, (epoch + 1) * self._rules.refresh_period
        words = (word for word in self._membership.words() if word.first_step < end)
        others = {word.origin for word in words if word.last_step is None or word.last_step >= first} - {but}
        clients = self._rules.clients - (but is not None and but not in signers)
        count = len(others.union(signers))
        return count if self._access.is_closed else max(count, clients)

    def _awaited(self, epoch: int) -> Iterator[OriginId]:
        """Who has to vote where no quorum is enough."""
        return (member.origin for member in self._membership.all() if self._is_awaited(member, epoch))

    def _is_awaited(self, member: Member, epoch: int) -> bool:
        rules, last = self._rules, member.last_step
        if self.is_by_quorum:
            return False
        if last is None:
            return member.first_step < min((epoch + 1) * rules.refresh_period, STEP_MAX)
        has_left = 0 <= last < rules.steps - 1
        return has_left and self._reached <= last + RETURN_ROUNDS * rules.local_steps
