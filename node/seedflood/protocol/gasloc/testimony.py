"""What hosts state of the results of agreements: which offered result is to be believed, and whose replica differs.

Anyone may offer a result, and it is taken from the first neighbour that has it. So its digest must be known from
somebody else. Each host states the last result that it went on from in its membership statement, which is signed and
reaches everyone; the root of the tree states its result before it offers it. A result is believed

- if more than half of the other hosts state it, and then no other one is: so a host that comes late, or knew another
  tree, finds the right one;
- if the root of its round states it: the root of our tree as we know it now, or as we knew it when the round began.
  Hosts that have finished the run and are still linked belong to that tree.

So a host that is not the root moves nobody by a false result. The root itself is believed: it makes the mean, and
nobody else can see whether it is one. Each round has another root.
"""

from collections import Counter
from collections.abc import Iterable
from functools import partial

from seedflood.protocol.gasloc.matching import Lottery
from seedflood.protocol.gasloc.outbox import Outbox
from seedflood.protocol.gasloc.pace import Pace
from seedflood.protocol.gasloc.rules import GaslocRules
from seedflood.protocol.gasloc.stated import Result, has_finished, known_graph, standing_still, stated
from seedflood.protocol.gasloc.tree import Place, find_place, reachable
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.presence import Presence


class Testimony:
    """ours: the last result that we went on from, which we state; None before any. unequal: the hosts that went on from
    another result of the same round."""

    def __init__(self, rules: GaslocRules, presence: Presence, pace: Pace, outbox: Outbox) -> None:
        self.ours: Result | None = None
        self.unequal: set[OriginId] = set()
        self._named: set[OriginId] = set()
        """The hosts of which we have told in this round that they are unequal."""
        self._root: tuple[int, OriginId] | None = None
        """(the round, its root when it began)."""
        self._lottery = Lottery(rules.run_seed)
        self._origin = presence.ours.origin
        self._rules = rules
        self._presence = presence
        self._pace = pace
        self._outbox = outbox

    def find_place(self, round_: int, now: float) -> Place:
        """Our place in the tree of this round as we know it now, without hosts that have finished."""
        graph = known_graph(self._presence.membership, self._still(round_, now))
        return find_place(graph, self._origin, partial(self._lottery.first, round_))

    def begin(self, round_: int, place: Place, now: float) -> None:
        """A round begins with this tree."""
        self._root = round_, self._find_root(round_, now) if self._has_anyone_finished() else place.root

    def is_believed(self, result: Result, now: float) -> bool:
        """Is it known from others than who offers it?"""
        usual = self._find_usual(result.round)
        if usual is not None:
            return usual == result.digest
        if self._root is not None and self._root[0] == result.round and self._states(self._root[1], result):
            return True
        return self._is_of_the_root(result, now)

    def went_on(self, result: Result) -> None:
        """We have gone on from it."""
        self.ours = result
        self.unequal.clear()
        self._named.clear()
        self.heard([member.origin for member in self._presence.membership.words()])

    def heard(self, origins: Iterable[OriginId]) -> None:
        """There is news of these hosts: are their replicas those that we have agreed on?"""
        for origin in origins:
            if origin == self._origin or not self._differs(origin):
                self.unequal.discard(origin)
                continue
            self.unequal.add(origin)
            if origin not in self._named:
                self._named.add(origin)
                name, result = self._presence.membership.name(origin), self._result_of(origin)
                facts = {"member": name, "round": result.round if result is not None else None}
                self._outbox.tell("a host has agreed on other parameters", "warning", **facts)

    def _differs(self, origin: OriginId) -> bool:
        theirs, ours = self._result_of(origin), self.ours
        if theirs is None or ours is None or theirs.digest == ours.digest:
            return False
        return self._are_of_one_round(theirs.round, ours.round)

    def _are_of_one_round(self, one: int, other: int) -> bool:
        """All attempts at the end of the run count as one."""
        is_last = self._rules.is_last_agreement
        return one == other or (is_last(one) and is_last(other))

    def _result_of(self, origin: OriginId | None) -> Result | None:
        """The result that a host states in its last word."""
        word = self._presence.membership.spoken(origin) if origin is not None else None
        return stated(word).result if word is not None else None

    def _states(self, origin: OriginId | None, result: Result) -> bool:
        return origin != self._origin and self._result_of(origin) == result

    def _is_of_the_root(self, result: Result, now: float) -> bool:
        """Is it that of the present root? A link may have come or gone since the round began."""
        if not any(self._states(one.origin, result) for one in self._presence.membership.words()):
            return False  # which spares us the graph
        return self._states(self._find_root(result.round, now), result)

    def _find_root(self, round_: int, now: float) -> OriginId:
        """The first host that we can reach, of those that take part and those that have finished."""
        graph = known_graph(self._presence.membership, self._still(round_, now), rounds=self._rules.rounds)
        return self._lottery.first(round_, reachable(graph, self._origin))

    def _still(self, round_: int, now: float) -> frozenset[OriginId]:
        return standing_still(self._presence.membership, self._pace.silent(now), self._origin, round_)

    def _has_anyone_finished(self) -> bool:
        return any(has_finished(one, self._rules.rounds) for one in self._presence.membership.words())

    def _find_usual(self, round_: int) -> bytes | None:
        """The digest of this round's result that more than half of the others state. Those that left before the end of
        the run do not count, those that were never met do."""
        others = [one for one in self._presence.membership.words() if one.origin != self._origin]
        left = sum(one.has_left and not has_finished(one, self._rules.rounds) for one in others)
        results = [stated(one).result for one in others]
        told = [one.digest for one in results if one is not None and self._are_of_one_round(one.round, round_)]
        most = max(len(others), self._rules.clients - 1) - left
        for digest, count in Counter(told).most_common(1):
            if 2 * count > most:
                return digest
        return None
