"""Announcement: who returns to strict windows says so, and speaks only when its neighbours are known to have heard it.

Nobody waits for a node that has left. If it spoke at once, and its links broke at that moment, the others would go on
without it, close the epoch that it spoke in and compact it; what it said would come too late for a sum whose bundles
are gone, and it would wait for ever for the rounds that are in that sum. An optimiser that goes by steps cannot even
add it to the sum. So it announces from which step on it takes part, and pings: links keep order, so whoever answers
has heard the announcement before, waits for it from then on, and closes no epoch without it.

At the beginning of a run nothing of that is needed: no window closes before all clients have joined.
"""

from collections.abc import Collection

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.swarm.neighbours import Neighbours
from seedflood.protocol.swarm.presence import Presence


class Announcement:
    """Of one start of a process."""

    def __init__(self, rules: Rules, presence: Presence, neighbours: Neighbours, frontier: Frontier) -> None:
        self._rules = rules
        self._presence = presence
        self._neighbours = neighbours
        self._frontier = frontier
        self._said_at: float | None = None
        self._asked: set[OriginId] = set()
        self._heard_by: set[OriginId] = set()

    def is_heard(self, first: int, now: float) -> bool:
        """May we speak from the step `first` on? If not, that is announced now."""
        if not self._is_needed(first):
            return True
        if self._said_at is None:
            self._said_at = now
            self._presence.take_part(first)
        neighbours = set(self._neighbours)
        for peer in sorted(neighbours - self._asked):
            self._presence.ping(peer, now)
        self._asked = neighbours
        return bool(neighbours) and neighbours <= self._heard_by

    def answered(self, peer: OriginId, sent_at: float) -> None:
        """The peer has answered a ping that was sent then."""
        if self._said_at is not None and sent_at >= self._said_at:
            self._heard_by.add(peer)

    def unheard_by(self, neighbours: Collection[OriginId]) -> set[OriginId]:
        """Those that have not answered yet, if something was announced."""
        return set(neighbours) - self._heard_by if self._said_at is not None else set()

    def _is_needed(self, first: int) -> bool:
        """Whoever takes part from the beginning, or has spoken since it returned, and has not left is waited for."""
        rules, membership, own = self._rules, self._presence.membership, self._presence.ours.origin
        if rules.window != "strict" or first >= rules.steps or membership.taking_part < rules.clients:
            return False
        word = membership.spoken(own)
        return word is None or word.has_left or max(0, self._frontier.last(own)) < word.first_step
