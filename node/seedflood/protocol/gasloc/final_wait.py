"""Who is waited for at the end of a run: before the closing rounds, and before a replica is chosen.

All that are not that far are waited for, and for some time those that are away or were never met: without them the
result would differ. But nobody is waited for longer than is stated here, and nobody any more once the others have gone
on.
"""

from dataclasses import dataclass

from seedflood.protocol.gasloc.choice import Choice
from seedflood.protocol.gasloc.conversation import Conversation
from seedflood.protocol.gasloc.pace import Pace
from seedflood.protocol.gasloc.rules import GaslocRules
from seedflood.protocol.gasloc.statement import behind, standing_still
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.swarm.rules import Patience

LAST_PATIENCES = 2
"""Once half of the swarm is there, nobody is waited for longer than twice as long as a host may stay in one round: who
is behind goes on with a closing round after its local steps."""


@dataclass(eq=False, repr=False)
class FinalWait:
    """round: the one that all are to reach. since: since when we are at the end; those that are away have this time
    once. is_under_way: is anybody waited for now?"""

    _rules: GaslocRules
    _patience: Patience
    _presence: Presence
    _pace: Pace
    _choice: Choice
    _talk: Conversation
    round: int = 0
    since: float = float("inf")
    is_under_way: bool = False
    _half_since: float = float("inf")
    """Since when half of the swarm is there."""

    def lasts(self, round_: int, now: float) -> bool:
        """Is anybody waited for who has not reached this round?"""
        self.since = min(self.since, now)
        if round_ != self.round:
            self.round, self._half_since = round_, float("inf")
        self.is_under_way = bool(self.awaited(now)) or self._has_unmet(now)
        return self.is_under_way

    def awaited(self, now: float) -> set[OriginId]:
        if self._have_gone_on:
            return set()
        reported = {peer: one.round for peer, one in self._talk.progress.items()}
        membership, ours = self._presence.membership, self._presence.ours.origin
        still = standing_still(membership, self._pace.silent(now), ours, self.round)
        linked, away = behind(membership, ours, reported, self.round, still)
        if now >= self._end(now):
            linked = set()
        return linked | away if now < self.wake_at() else linked

    @property
    def longest_seconds(self) -> float:
        """How long anybody is waited for who is linked, and goes on."""
        return LAST_PATIENCES * self._pace.patience_seconds

    def wake_at(self) -> float:
        """When those that are away are waited for no more."""
        return self.since + self._patience.linger_seconds

    @property
    def _have_gone_on(self) -> bool:
        return self._choice.made() is not None or self._talk.swarm_round() > self.round

    def _has_unmet(self, now: float) -> bool:
        """Were fewer hosts met than the run has? They are waited for like those that are away."""
        met = self._presence.membership.taking_part
        return met < self._rules.clients and now < self.wake_at() and not self._have_gone_on

    def _end(self, now: float) -> float:
        """Until when we wait for hosts that do not come."""
        is_late = now >= self.wake_at() + self.longest_seconds
        if is_late or self._talk.swarm_round() >= self.round:
            self._half_since = min(self._half_since, now)
        return self._half_since + self.longest_seconds
