"""With whose replica all hosts end.

After the closing rounds every host states the digest of its replica, signed. Then a host chooses by three rules:

1. the replica that most hosts hold, if more than a third of the run's hosts do. So an honest host vouches for it;
2. while there is none, the first one in a draw that is near its own;
3. if that has lasted for too long, the one that most hosts hold, however few they are.

Everything that decides is in signed statements, so hosts that have received the same statements take the same replica.
How long a host waits for each: docs/explanation/gossip.md.
"""

from typing import NamedTuple

from seedflood.protocol.gasloc.matching import Lottery
from seedflood.protocol.gasloc.pace import Pace
from seedflood.protocol.gasloc.rules import Bounds, GaslocRules
from seedflood.protocol.gasloc.statement import REFUSED_MAX, Result, has_finished, known_graph, stated, takes_part
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.graph import distances
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.swarm.view import stated_edges


class Candidate(NamedTuple):
    """A replica that hosts state."""

    result: Result
    holders: frozenset[OriginId]
    """The hosts that state it."""
    is_owned: bool
    """Is its author one of them?"""


class Choice:
    """What hosts state of their replicas at the end of the run, and which of these replicas we take."""

    def __init__(self, rules: GaslocRules, bounds: Bounds, presence: Presence, pace: Pace) -> None:
        self.ours: Result | None = None
        """The replica that we hold at the end of the run, and state; None before."""
        self.refused: list[OriginId] = []
        """The authors of replicas that are too far from ours."""
        self._lottery = Lottery(rules.run_seed)
        self._rules = rules
        self._bounds = bounds
        self._membership = presence.membership
        self._neighbours = presence.neighbours
        self._pace = pace
        self._origin = presence.ours.origin
        self._until: dict[OriginId, tuple[bytes, float]] = {}
        """By author that came first in the draw: the digest that it stated then, and until when we wait for that
        replica. An author has this time once, so it does not help to state another replica."""
        self._lost: set[bytes] = set()
        """The digests of replicas that more than a third of the hosts hold, and that nobody gives us."""

    def find(self, now: float, *, moving: bytes | None, is_late: bool) -> Result | None:
        """The replica to end with, as far as we know; None if there is none. moving: the digest of the replica that
        arrives here now. is_late: have hosts held different ones for too long?"""
        held = self._held()
        counting = [one for one in held if self._is_backed(one) and one.result.digest not in self._lost]
        if is_late and not counting:
            counting = [one for one in held if not self._is_given_up(one.result.author, now)]
        if counting:
            # The draw decides between replicas that equally many hosts hold.
            most_held = max(counting, key=lambda one: (len(one.holders), -self._drawn(one), one.result.digest))
            return most_held.result
        if self.ours is None:
            return None  # we could not tell whether one is near ours
        for one in sorted(held, key=self._drawn):
            # What one host alone says of the replica of another one counts for nothing.
            is_eligible = one.is_owned and one.result.author not in self.refused
            if is_eligible and self._is_awaited(one, now, moving):
                return one.result
        return None

    def is_backed(self, result: Result) -> bool:
        """Do more than a third of the run's hosts hold it?"""
        return any(one.result.digest == result.digest and self._is_backed(one) for one in self._held())

    def is_any_stated(self) -> bool:
        return bool(self._held())

    def refuse(self, author: OriginId) -> None:
        """The replica of this author is too far from ours. To others a refusal only says by which way a replica does
        not come."""
        self.refused = [*self.refused, author][-REFUSED_MAX:]
        self._until[author] = b"", 0.0

    def give_up(self, result: Result) -> bool:
        """Gives up a replica that nobody gives us. False if we must not: more than half of the others hold it, and no
        other replica would be equal to theirs."""
        if self.made() == result.digest:
            return False
        stated_digests = {one.result.digest for one in self._held()}
        self._lost = {*self._lost, result.digest} & stated_digests
        self._until[result.author] = b"", 0.0
        return True

    def wake_at(self, now: float) -> float:
        """When the time ends next that a replica has to come here; infinite if there is none."""
        return min((until for _, until in self._until.values() if until > now), default=float("inf"))

    def holders(self, result: Result) -> list[OriginId]:
        """The neighbours that state this replica."""
        found = []
        for peer in self._neighbours:
            word = self._membership.spoken(peer)
            if word is not None and _digest_of(word) == result.digest:
                found.append(peer)
        return found

    def made(self) -> bytes | None:
        """The digest that more than half of the others state. Hosts that left before the end of the run, or were
        removed, do not count. Hosts that were never met do."""
        others = [word for word in self._membership.words() if word.origin != self._origin]
        left_early = sum(word.has_left and not has_finished(word, self._rules.rounds) for word in others)
        expected = self._rules.clients - self._membership.absentees() - 1
        counted = max(len(others), expected) - left_early
        for one in self._held():
            if 2 * len(one.holders - {self._origin}) > counted:
                return one.result.digest
        return None

    def equal(self) -> set[OriginId]:
        """The hosts, we among them, that state what we hold."""
        if self.ours is None:
            return set()
        digest = self.ours.digest
        return {word.origin for word in self._membership.words() if _digest_of(word) == digest}

    def unequal(self) -> set[OriginId]:
        """The hosts that hold something else at the end."""
        if self.ours is None:
            return set()
        stating = {word.origin for word in self._membership.words() if _digest_of(word) is not None}
        return stating - self.equal()

    def awaited(self, *, with_away: bool) -> set[OriginId]:
        """The hosts that take part, that we can reach (also through hosts that still join), and that do not hold what
        we hold. with_away: also those that have come to the closing rounds, and that we cannot reach."""
        # A host that has finished with another replica takes part, too: it may have known the statements of too few
        # hosts, and still come for this one.
        members = self._membership.all()
        taking_part = {one.origin for one in members if takes_part(one, self._rules.rounds)}
        reached = distances(stated_edges(members), self._origin).keys()
        found = taking_part & reached
        if with_away:
            words = (word for word in self._membership.words() if not word.has_left)
            found |= {word.origin for word in words if self._rules.is_closing(stated(word).round)}
        return found - self.equal() - {self._origin}

    def _held(self) -> list[Candidate]:
        """The replicas that hosts state, if we know the author."""
        holders: dict[bytes, set[OriginId]] = {}
        authors: dict[bytes, set[OriginId]] = {}
        for word in self._membership.words():
            result = stated(word).result
            if result is not None and result.author in self._membership:
                holders.setdefault(result.digest, set()).add(word.origin)
                authors.setdefault(result.digest, set()).add(result.author)
        held = []
        for digest, hosts in holders.items():
            # Several hosts may have made the same replica, or name different authors of it. Authors that hold it come
            # before others, and then the first in the draw.
            owners = authors[digest] & hosts
            author = min(owners or authors[digest], key=self._number)
            held.append(Candidate(Result(author, digest), frozenset(hosts), bool(owners)))
        return held

    def _is_backed(self, one: Candidate) -> bool:
        """Do more than a third of the run's hosts hold it?"""
        return 3 * len(one.holders) > self._rules.clients

    def _drawn(self, one: Candidate) -> int:
        return self._number(one.result.author)

    def _number(self, author: OriginId) -> int:
        """The number of an author in the draw. The least one comes first."""
        return self._lottery.number(self._rules.rounds, author)

    def _is_awaited(self, one: Candidate, now: float, moving: bytes | None) -> bool:
        """Is the time not over yet that the replica may take to come here, and can it come at all? The time begins when
        it comes first in the draw, and lasts longer while it arrives."""
        if self._origin in one.holders:
            return True
        author = one.result.author
        digest, until = self._until.setdefault(author, (one.result.digest, now + self.way_seconds(author)))
        if moving == digest:
            until = max(until, now + self._bounds.relink_seconds)
            self._until[author] = digest, until
        return now < until and self._may_come(one)

    def _is_given_up(self, author: OriginId, now: float) -> bool:
        """Have we waited for its replica in vain? Not if we have refused it."""
        if author in self.refused or author not in self._until:
            return False
        _, until = self._until[author]
        return now >= until

    def _may_come(self, one: Candidate) -> bool:
        """Is there a way to us through hosts that do not refuse it?"""
        author = one.result.author
        refusing = {word.origin for word in self._membership.words() if author in stated(word).refused}
        graph = known_graph(self._membership, refusing, rounds=self._rules.rounds)
        return not one.holders.isdisjoint(distances(graph, self._origin))

    def way_seconds(self, author: OriginId) -> float:
        """The seconds that a replica may take to come from its author to us."""
        graph = known_graph(self._membership, rounds=self._rules.rounds)
        hops = 1 + distances(graph, self._origin).get(author, 1)
        size = self._rules.content_bytes_max
        return hops * self._bounds.transfer_seconds(size, None, self._pace.hop_seconds)


def _digest_of(word: Member) -> bytes | None:
    """The digest of the replica that a host states, if it states one."""
    result = stated(word).result
    return result.digest if result is not None else None
