"""What a relay does in place of rounds. It has no model, so it measures, applies, sums and votes nothing.

To the others it is a host that never speaks: it states that it is there and takes part in no step, so no window and no
vote waits for it. All else is as on any node: what comes is checked, kept, passed on, repaired, and served to those who
come late.

What hosts make of their replicas cannot be made here, so it is taken from them:

* **Digests.** Hosts compare their replicas with those of their neighbours, and behind a relay these are out of sight.
  So it tells each neighbour what the others have said, once for each frontier and digest, and not very much in a
  comparison period (`watch.HearsayWatch`). That counts only for hosts all of whose neighbours are relays: a liar beside
  a relay can make these rebuild a replica that is right, as rarely as any lying neighbour can (`jury`), and no more.
* **Sums.** When enough of the votes that pass by are equal, the relay looks for the sum (`sums`), which takes the place
  of the bundles here, too.

Its run is over when somebody has ended it, all others have, too, or left, and it holds all that they owe.
"""

from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.ending import Ending
from seedflood.protocol.seedflood.exchange import Exchange
from seedflood.protocol.seedflood.holdings import Holdings
from seedflood.protocol.seedflood.statement import stated
from seedflood.protocol.swarm.membership import Membership

SETTLE_BUNDLES = 1024
"""How many new bundles are offered to whoever links now, at most; he pulls the others."""


class Relaying:
    """is_over: everyone has ended the run."""

    def __init__(self, holdings: Holdings, exchange: Exchange, ending: Ending, membership: Membership) -> None:
        self.is_over = False
        self._holdings = holdings
        self._exchange = exchange
        self._ending = ending
        self._membership = membership

    @property
    def is_ready(self) -> bool:
        """Is everything held that the neighbours held when they linked?"""
        reached = self._exchange.donors.reached
        return reached.issuperset(self._exchange.linked)

    def settle(self, bundles_max: int = 0) -> None:
        """What is held needs no window: so much of it may wait to be offered to new neighbours."""
        if len(self._holdings.pending) > bundles_max:
            self._holdings.apply(self._holdings.pending.take_before(STEP_MAX))

    def ends(self) -> bool:
        """Has everyone ended the run since this was asked last?"""
        if self.is_over or not self._ending.holds_everything():
            return False
        words = [word for word in self._membership.words() if word.last_step != -1]
        self.is_over = all(word.has_left for word in words) and any(stated(word).has_ended for word in words)
        return self.is_over
