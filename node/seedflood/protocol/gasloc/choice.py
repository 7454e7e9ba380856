"""With whose replica all hosts end.

After the closing rounds every host states the digest of its replica, signed. Then all take the one that most hosts
hold, if more than a third do: so an honest one vouches for it. Before that, each takes the first one in a draw that is
near its own. All that decides is in signed statements, so hosts that have received the same take the same.

The three rules, and how long each is waited for: docs/explanation/gossip.md.
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
    """A replica that hosts state. holders: these hosts. is_owned: is its author one of them?"""

    result: Result
    holders: frozenset[OriginId]
    is_owned: bool


class Choice:
    """ours: the replica that we hold at the end of the run, which we state; None before. refused: the authors of those
    that are too far from it."""

    def __init__(self, rules: GaslocRules, bounds: Bounds, presence: Presence, pace: Pace) -> None:
        self.ours: Result | None = None
        self.refused: list[OriginId] = []
        self._lottery = Lottery(rules.run_seed)
        self._rules = rules
        self._bounds = bounds
        self._membership = presence.membership
        self._neighbours = presence.neighbours
        self._pace = pace
        self._origin = presence.ours.origin
        self._until: dict[OriginId, tuple[bytes, float]] = {}
        """By author that came first: the digest that it stated then, and how long that is waited for. An author has
        this time once, so it does not help to state another one."""
        self._lost: set[bytes] = set()
        """What more than a third of the hosts hold, and nobody gives us."""

    def find(self, now: float, *, moving: bytes | None, is_late: bool) -> Result | None:
        """The replica to end with, as far as we know; None: there is none. moving: the digest of what arrives here.
        is_late: have hosts held different ones for too long?"""
        held = self._held()
        counting = [one for one in held if self._is_backed(one) and one.result.digest not in self._lost]
        if is_late and not counting:
            counting = [one for one in held if not self._is_given_up(one.result.author, now)]
        if counting:
            return max(counting, key=lambda one: (len(one.holders), -self._drawn(one), one.result.digest)).result
        if self.ours is None:
            return None
        for one in sorted(held, key=self._drawn):
            if one.is_owned and one.result.author not in self.refused and self._is_awaited(one, now, moving):
                return one.result
        return None

    def is_backed(self, result: Result) -> bool:
        """Do more than a third of the run's hosts hold it?"""
        return any(one.result.digest == result.digest and self._is_backed(one) for one in self._held())

    def is_any_stated(self) -> bool:
        return bool(self._held())

    def refuse(self, author: OriginId) -> None:
        """Its replica is too far from ours. To others a refusal says only which way a replica does not come."""
        self.refused = [*self.refused, author][-REFUSED_MAX:]
        self._until[author] = b"", 0.0

    def give_up(self, result: Result) -> bool:
        """Nobody gives it to us. False: most of the others hold it, and no other one would be equal to theirs."""
        if self.made() == result.digest:
            return False
        self._lost = {*self._lost, result.digest} & {one.result.digest for one in self._held()}
        self._until[result.author] = b"", 0.0
        return True

    def wake_at(self, now: float) -> float:
        return min((until for _, until in self._until.values() if until > now), default=float("inf"))

    def holders(self, result: Result) -> list[OriginId]:
        """The neighbours that state it."""
        words = ((peer, self._membership.spoken(peer)) for peer in self._neighbours)
        return [peer for peer, word in words if word is not None and _digest_of(word) == result.digest]

    def made(self) -> bytes | None:
        """The digest that more than half of the others state. Those that left before the end of the run, or were
        removed, do not count; those that were never met do."""
        others = [word for word in self._membership.words() if word.origin != self._origin]
        left = sum(word.has_left and not has_finished(word, self._rules.rounds) for word in others)
        expected = self._rules.clients - self._membership.absentees() - 1
        most = max(len(others), expected) - left
        for one in self._held():
            if 2 * len(one.holders - {self._origin}) > most:
                return one.result.digest
        return None

    def equal(self) -> set[OriginId]:
        """The hosts, we among them, that state what we hold."""
        ours, words = self.ours, self._membership.words()
        return {word.origin for word in words if ours is not None and _digest_of(word) == ours.digest}

    def unequal(self) -> set[OriginId]:
        """The hosts that hold something else at the end."""
        stating = {word.origin for word in self._membership.words() if _digest_of(word) is not None}
        return stating - self.equal() if self.ours is not None else set()

    def awaited(self, *, with_away: bool) -> set[OriginId]:
        """The hosts that take part, that we can reach (also by way of hosts that still join), and that do not hold what
        we hold. Who has finished with another replica may know of too few, and still come for this one.
        with_away: also those that have come to the closing rounds, and that we cannot reach."""
        members, rounds = self._membership.all(), self._rules.rounds
        reached = distances(stated_edges(members), self._origin).keys()
        found = {one.origin for one in members if takes_part(one, rounds)} & reached
        if with_away:
            words = (word for word in self._membership.words() if not word.has_left)
            found |= {word.origin for word in words if self._rules.is_closing(stated(word).round)}
        return found - self.equal() - {self._origin}

    def _held(self) -> list[Candidate]:
        """What hosts state, of authors that we know. Hosts may have made the same replica, or name another author of
        it. Then those who hold it count as its authors before others, and of these the first in the draw."""
        holders: dict[bytes, set[OriginId]] = {}
        authors: dict[bytes, set[OriginId]] = {}
        for word in self._membership.words():
            result = stated(word).result
            if result is not None and result.author in self._membership:
                holders.setdefault(result.digest, set()).add(word.origin)
                authors.setdefault(result.digest, set()).add(result.author)
        held = []
        for digest, hosts in holders.items():
            owners = authors[digest] & hosts
            author = min(owners or authors[digest], key=self._number)
            held.append(Candidate(Result(author, digest), frozenset(hosts), bool(owners)))
        return held

    def _is_backed(self, one: Candidate) -> bool:
        return 3 * len(one.holders) > self._rules.clients

    def _drawn(self, one: Candidate) -> int:
        return self._number(one.result.author)

    def _number(self, author: OriginId) -> int:
        return self._lottery.number(self._rules.rounds, author)

    def _is_awaited(self, one: Candidate, now: float, moving: bytes | None) -> bool:
        """Has it come first for no longer than it may take, and may it come at all?"""
        if self._origin in one.holders:
            return True
        author = one.result.author
        digest, until = self._until.setdefault(author, (one.result.digest, now + self.way_seconds(author)))
        if moving == digest:
            until = max(until, now + self._bounds.relink_seconds)
            self._until[author] = digest, until
        return now < until and self._may_come(one)

    def _is_given_up(self, author: OriginId, now: float) -> bool:
        """Was its replica waited for in vain? Not if we have refused it."""
        _, until = self._until.get(author, (b"", now + 1))
        return now >= until and author not in self.refused

    def _may_come(self, one: Candidate) -> bool:
        """Is there a way to us by hosts that do not refuse it?"""
        author, words = one.result.author, self._membership.words()
        refusing = {word.origin for word in words if author in stated(word).refused}
        graph = known_graph(self._membership, refusing, rounds=self._rules.rounds)
        return not one.holders.isdisjoint(distances(graph, self._origin))

    def way_seconds(self, author: OriginId) -> float:
        """How long it may take until a replica has come from its host to here."""
        graph = known_graph(self._membership, rounds=self._rules.rounds)
        hops = 1 + distances(graph, self._origin).get(author, 1)
        size = self._rules.content_bytes_max
        return hops * self._bounds.transfer_seconds(size, None, self._pace.hop_seconds)


def _digest_of(word: Member) -> bytes | None:
    result = stated(word).result
    return result.digest if result is not None else None
