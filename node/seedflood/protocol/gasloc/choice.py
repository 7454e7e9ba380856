"""With whose replica all hosts end.

After the closing rounds (`closing`) every host states the digest of its replica, signed and to everyone, and waits
until all have stated one (`final_wait`). Then all take the same: the one that most hosts state, at first that of the
host that comes first in the draw of the run's seed. Who has fetched it (`copies`) states it as well, and passes it on.
So what is chosen gains weight, and a host that comes late, or back, moves nobody. What no more than a third of the
hosts state has none: so many may lie, and state the replica of one of them.

**Nothing is waited for that nobody serves.** A replica that most hosts do not have, that no further one has come to
state, and of which nothing arrives, counts no more after as long as it may take to come here. Then the next one is
taken. If somebody has it after all, it counts again. What arrives is waited for, but if it breaks off after as long as
a host waits at the end, its author counts no more either. One that most hosts have gets as long again from then on, and
so does a replica of the next author that a neighbour has. So a liar that gives its own byte by byte takes none of the
time of the others. Nor do those that make up a replica of another host: for what its author does not state, one of
those answers who do.

**Who is alone finds out.** A host ends when all that it can reach state what it holds, or after its patience; then its
log says who holds what else. Those that have come to the closing rounds, and are away, have `patience_seconds` to come
back. So replicas are unequal only where the swarm was cut apart for longer than that, or lied to.

What is chosen was not checked by anyone: a liar that comes first in the draw gives its own parameters to all, up to the
norm that is the same on all hosts. Anybody can make keys until one comes first; a closed run has a roster against that.
"""

from collections import Counter

from seedflood.protocol.gasloc.matching import Lottery
from seedflood.protocol.gasloc.pace import Pace
from seedflood.protocol.gasloc.rules import Bounds, GaslocRules
from seedflood.protocol.gasloc.statement import Result, has_finished, known_graph, stated, takes_part
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.graph import distances
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.swarm.view import stated_edges


class Choice:
    """ours: the replica that we hold at the end of the run, which we state; None before."""

    def __init__(self, rules: GaslocRules, bounds: Bounds, presence: Presence, pace: Pace) -> None:
        self.ours: Result | None = None
        self._lottery = Lottery(rules.run_seed)
        self._rules = rules
        self._bounds = bounds
        self._membership = presence.membership
        self._neighbours = presence.neighbours
        self._pace = pace
        self._origin = presence.ours.origin
        self._most: dict[OriginId, int] = {}
        """The most hosts that we have seen to state a replica for which this host answers: who makes another one gets
        no more time for it."""
        self._until: dict[OriginId, float] = {}
        """How long one for which this host answers is waited for, from the moment when it was to be taken."""

    def find(self, now: float, *, moving: bytes | None) -> Result | None:
        """The replica to end with, as far as we know; None: there is none. moving: the digest of what arrives here."""
        words, answers = self._told(), self._answers()
        counts = Counter(result.digest for _, result in words)
        owned = {result.digest for origin, result in words if origin == result.author}
        for result, host in answers.items():
            if counts[result.digest] > self._most.get(host, 0) or result.digest == moving:
                self._most[host] = counts[result.digest]
                self._until.pop(host, None)

        def rank(result: Result) -> tuple[int, bool, int, bytes]:
            drawn = self._lottery.number(self._rules.rounds, result.author)
            count = counts[result.digest]
            return count * (3 * count > self._rules.clients), result.digest in owned, -drawn, result.digest

        kept = {self.made(), self.ours.digest if self.ours is not None else None}
        viable = [one for one, host in answers.items() if one.digest in kept or now < self._until.get(host, now + 1)]
        found = max(viable, key=rank, default=None)
        if found is not None and answers[found] not in self._until:
            self._until[answers[found]] = now + self._way_seconds(found.author)
        return found

    def give_up(self, result: Result, now: float) -> bool:
        """It does not come: another one is to be taken that a neighbour has, or ours. False: most of the others hold
        it, and no other one would be equal to theirs."""
        if result.digest == self.made():
            return False
        answers = self._answers()
        near = {answers[one] for origin, one in self._told() if origin in self._neighbours}
        self._until |= dict.fromkeys({*answers.values()} - near | {answers.get(result, result.author)}, now)
        return True

    def answers_for(self, result: Result) -> OriginId:
        """Whose time is spent on it: its author's, if that states it itself; else that of one who says so. So nobody
        can spend the time of another one by making up a replica of it."""
        return self._answers().get(result, result.author)

    def is_on_its_way(self, result: Result, now: float) -> bool:
        """May it still come to a neighbour, of which none has it yet, from a host that we can reach? What its author
        alone has does not come by way of hosts that have finished with another one: they have given it up."""
        if self.holders(result) or now >= self._until.get(self.answers_for(result), now):
            return False
        rounds, has_it = self._rules.rounds, {origin for origin, one in self._told() if one == result}
        done = {word.origin for word in self._membership.words() if has_finished(word, rounds)} - has_it
        graph = known_graph(self._membership, done if len(has_it) == 1 else (), rounds=rounds)
        return not has_it.isdisjoint(distances(graph, self._origin))

    def wake_at(self, now: float) -> float:
        return min((until for until in self._until.values() if until > now), default=float("inf"))

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
        told = Counter(digest for word in others if (digest := _digest_of(word)) is not None)
        return next((digest for digest, count in told.most_common(1) if 2 * count > most), None)

    def equal(self) -> set[OriginId]:
        """The hosts, we among them, that state what we hold."""
        ours, words = self.ours, self._membership.words()
        return {word.origin for word in words if ours is not None and _digest_of(word) == ours.digest}

    def unequal(self) -> set[OriginId]:
        """The hosts that hold something else at the end."""
        told = {word.origin for word in self._membership.words() if _digest_of(word) is not None}
        return told - self.equal() if self.ours is not None else set()

    def awaited(self, *, with_away: bool) -> set[OriginId]:
        """The hosts that take part, that we can reach (also by way of hosts that still join), and that do not hold what
        we hold. Who has finished with another replica may have heard of too few, and still come for this one.
        with_away: also those that have come to the closing rounds, and that we cannot reach."""
        members, rounds = self._membership.all(), self._rules.rounds
        reached = distances(stated_edges(members), self._origin).keys()
        found = {one.origin for one in members if takes_part(one, rounds)} & reached
        if with_away:
            words = (word for word in self._membership.words() if not word.has_left)
            found |= {word.origin for word in words if self._rules.is_closing(stated(word).round)}
        return found - self.equal() - {self._origin}

    def _way_seconds(self, author: OriginId) -> float:
        """How long it may take until a replica has come from its host to here, or from here to there."""
        graph = known_graph(self._membership, rounds=self._rules.rounds)
        hops = 1 + distances(graph, self._origin).get(author, 1)
        size = self._rules.content_bytes_max
        return hops * self._bounds.transfer_seconds(size, None, self._pace.hop_seconds)

    def _told(self) -> list[tuple[OriginId, Result]]:
        """What hosts hold at the end, by their word, of authors that we know."""
        told = [
            (word.origin, result) for word in self._membership.words() if (result := stated(word).result) is not None
        ]
        return [(origin, result) for origin, result in told if result.author in self._membership]

    def _answers(self) -> dict[Result, OriginId]:
        """By replica that any host states: who answers for it."""
        answers: dict[Result, OriginId] = {}
        for origin, result in self._told():
            others = origin, answers.get(result, origin)
            answers[result] = result.author if result.author in others else min(others)
        return answers


def _digest_of(word: Member) -> bytes | None:
    result = stated(word).result
    return result.digest if result is not None else None
