"""What a relay does in place of rounds. It has no model, so it measures, applies, sums and votes nothing.

To the others it is a host that never speaks, so no window and no vote waits for it. What hosts make of their replicas,
it takes from them: digests (`divergence.HearsayDetector`) and certified sums (`sums`). Its run is over when somebody
has ended it, all others have, too, or left, and it holds all that they owe.

What its word is worth to others: docs/explanation/consensus.md.
"""

from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.course import Course
from seedflood.protocol.seedflood.statement import stated

SETTLE_BUNDLES = 1024
"""How many new bundles are offered to whoever links now, at most; he pulls the others."""


class Relaying(Course):
    """The course of a relay."""

    is_relay = True
    _is_over = False
    """Has everyone ended the run?"""

    @property
    def is_ready(self) -> bool:
        """Is everything held that the neighbours held when they linked?"""
        reached = self._exchange.donors.reached
        return reached.issuperset(self._exchange.linked)

    def compare(self, now: float) -> None:
        self._settle()
        self.step = min(self.next_step(), self._rules.steps)
        holds_everything = self._ending.holds_everything()
        if self._ending.since is None and holds_everything:
            self._ending.since = now
        if not self._is_over and holds_everything and self._has_everyone_ended():
            self._is_over = True
            self._outbox.finish()

    def advance(self, now: float) -> None:
        self._settle(SETTLE_BUNDLES)

    def _settle(self, bundles_max: int = 0) -> None:
        """What is held needs no window: so much of it may wait to be offered to new neighbours."""
        if len(self._holdings.pending) > bundles_max:
            self._holdings.apply_before(STEP_MAX)

    def _has_everyone_ended(self) -> bool:
        words = [word for word in self._membership.words() if word.last_step != -1]
        return all(word.has_left for word in words) and any(stated(word).has_ended for word in words)
