"""Announcement: a node that returns to strict windows says so, and publishes only when its neighbours have confirmed
it.

Links keep order, so a neighbour that answers a ping has received the announcement before. From then on it waits for the
node, and closes no epoch without it. Nothing of this is needed at the beginning of a run, when no window closes before
all clients have joined.

What would be lost without it: docs/explanation/consensus.md.
"""

from collections.abc import Collection

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.swarm.presence import Presence


class Announcement:
    """The announcement of one process, if it has to make one."""

    def __init__(self, rules: Rules, presence: Presence, frontier: Frontier) -> None:
        self._rules = rules
        self._presence = presence
        self._frontier = frontier
        self._announced_at: float | None = None
        self._asked: set[OriginId] = set()
        self._confirmed_by: set[OriginId] = set()

    def is_confirmed(self, first: int, now: float) -> bool:
        """May we publish from the step `first` on? If the neighbours do not know of it yet, announces it."""
        if not self._is_needed(first):
            return True
        if self._announced_at is None:
            self._announced_at = now
            self._presence.take_part(first)
        neighbours = set(self._presence.neighbours)
        for peer in sorted(neighbours - self._asked):
            self._presence.ping(peer, now)
        self._asked = neighbours
        return bool(neighbours) and neighbours <= self._confirmed_by

    def answered(self, peer: OriginId, sent_at: float) -> None:
        if self._announced_at is not None and sent_at >= self._announced_at:
            self._confirmed_by.add(peer)

    def unconfirmed_by(self, neighbours: Collection[OriginId]) -> set[OriginId]:
        """The neighbours that have not confirmed what was announced; none if nothing was."""
        return set(neighbours) - self._confirmed_by if self._announced_at is not None else set()

    def _is_needed(self, first: int) -> bool:
        """No announcement is needed by a node that is waited for anyway: one that takes part from the beginning, or has
        spoken since it returned, and has not left."""
        rules, membership, own = self._rules, self._presence.membership, self._presence.ours.origin
        if rules.window != "strict" or first >= rules.steps or membership.taking_part < rules.clients:
            return False
        word = membership.spoken(own)
        return word is None or word.has_left or max(0, self._frontier.last(own)) < word.first_step
