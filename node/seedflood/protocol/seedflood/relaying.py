"""What a relay does in place of rounds. It has no model, so it measures, applies, sums and votes nothing.

To the others it is a host that never speaks: it states that it is there and takes part in no step, so no window and no
vote waits for it. All else is as on any node: what comes is checked, kept, passed on, repaired, and served to those who
come late.

What hosts make of their replicas cannot be made here, so it is taken from them:

* **Digests.** Hosts compare their replicas with those of their neighbours, and behind a relay these are out of sight.
  So it sends each neighbour what the others have sent, once for each frontier and digest, and not very much in a
  comparison period (`divergence.HearsayDetector`). That counts only for hosts all of whose neighbours are relays: a
  liar beside a relay can make these rebuild a replica that is right, as rarely as any lying neighbour can
  (`credibility`), and no more.
* **Sums.** When enough of the votes that pass by are equal, the relay looks for the sum (`sums`), which takes the place
  of the bundles here, too.

Its run is over when somebody has ended it, all others have, too, or left, and it holds all that they owe.
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
