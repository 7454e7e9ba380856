"""What a node knows of its past, and when it may begin, with which parameters."""

from seedflood.protocol.gasloc.conversation import Conversation
from seedflood.protocol.gasloc.copies import Fetch
from seedflood.protocol.gasloc.rules import GaslocRules
from seedflood.protocol.gasloc.statement import is_anyone_taking_part
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.swarm.rules import Patience

STALE_ROUNDS, STALE_PART = 10, 2
"""Parameters that lack more than so many rounds, and more than half of all, set the others back more than they bring:
those of a host that was down, or suspended, or got an old copy of its disk. Who is slow lacks fewer."""


class Joining:
    """since: when it began. has_parameters: do we have others than the base model's? is_amnesic: do others know of a
    life of ours that our journal lacks?"""

    def __init__(
        self, rules: GaslocRules, patience: Patience, presence: Presence, talk: Conversation, fetch: Fetch
    ) -> None:
        self.since = 0.0
        self.has_parameters = self.is_amnesic = False
        self._rules = rules
        self._patience = patience
        self._presence = presence
        self._talk = talk
        self._fetch = fetch
        self._known: Member | None = None
        """The last statement of an earlier life of ours that the journal has."""
        self._forsaken_since = 0.0
        """Since when nobody could give us a copy."""

    def begin(self, now: float) -> None:
        self.since = self._forsaken_since = now

    def recall(self, now: float) -> None:
        self.begin(now)
        self._known = self._presence.membership.get(self._presence.ours.origin)

    def learn_of_past(self, member: Member) -> None:
        """Statements are journalled before they are sent. So if our journal lacks this one, the journal was lost."""
        if self._known is None or member.age > self._known.age:
            self.is_amnesic = True

    @property
    def patient_until(self) -> float:
        return self.since + self._patience.start_seconds

    def has_waited(self, now: float) -> bool:
        """Do we know from a neighbour how far the others are, and are all of them there if the run has not begun? Or
        was that waited for long enough?"""
        if self._rules.clients == 1 or now >= self.patient_until:
            return True
        membership = self._presence.membership
        has_begun = self.has_parameters or bool(membership.words())
        there = len(membership.present()) + membership.absentees()
        return bool(self._talk.progress) and (has_begun or there >= self._rules.clients)

    def is_copy_needed(self, round_: int) -> bool:
        """Are the others so far ahead that the base model, or what we have, would set them back? At the end of the run
        all get the same. round_: ours."""
        reached, rules = self._talk.swarm_round(), self._rules
        if reached >= rules.rounds:
            return False
        if not self.has_parameters:
            return reached > rules.fresh_rounds
        trained = min(reached, rules.training_rounds)
        return trained - round_ > max(rules.fresh_rounds, STALE_ROUNDS, trained // STALE_PART)

    def is_forsaken(self, now: float) -> bool:
        """Has no host that we can reach in the graph taken part for a long time? Then nobody has a copy, or will have
        one. Without a link we cannot know. Who has parameters waits for a copy that moves, and else for as long as a
        start may take."""
        if self.has_parameters:
            return now >= self.patient_until and not self._fetch.is_under_way
        progress, us, fetch = self._talk.progress, self._presence.ours.origin, self._fetch
        is_likely = any(one.can_serve and fetch.is_likely(origin) for origin, one in progress.items())
        is_hopeless = bool(progress) and not (fetch.is_under_way or is_likely)
        if not is_hopeless or is_anyone_taking_part(self._presence.membership, us):
            self._forsaken_since = now
        return now >= self._forsaken_since + self._patience.start_seconds
