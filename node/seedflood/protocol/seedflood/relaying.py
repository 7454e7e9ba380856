"""What a relay does in place of rounds. It has no model, so it measures, applies, sums and votes nothing.

To the others it is a host that never speaks: it states that it is there and takes part in no step, so no window and no
vote waits for it. All else is as on any node: what comes is checked, kept, passed on, repaired, and served to those who
come late.

What hosts make of their replicas cannot be made here, so it is taken from them:

* **Digests.** Hosts compare their replicas with those of their neighbours, and behind a relay these are out of sight.
  So it tells each neighbour what the others have said, once for each frontier and digest (`watch.HearsayWatch`). To
  them it counts as one neighbour, whose word may change: a liar beside it can make honest hosts rebuild a replica that
  is right, as rarely as any lying neighbour can (`jury`), and no more.
* **Sums.** When the votes that pass by are a certificate, the relay pulls that epoch once more. Whoever has compacted
  it answers with the sum, which takes the place of the bundles here, too.

Its run is over when somebody has ended it, all others have, too, or left, and it holds all that they owe.
"""

from collections.abc import Collection

from seedflood.protocol.frontier import without
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.seedflood.ending import Ending
from seedflood.protocol.seedflood.exchange import Exchange
from seedflood.protocol.seedflood.holdings import Holdings
from seedflood.protocol.seedflood.outputs import Outputs
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.statement import stated
from seedflood.protocol.seedflood.voting import ASK_SECONDS_MAX, ASK_SECONDS_MIN
from seedflood.protocol.swarm.membership import Membership
from seedflood.protocol.swarm.outputs import Outbox

SETTLE_BUNDLES = 1024
"""How many new bundles are offered to whoever links now, at most; he pulls the others."""

SUMS_MAX = 16
"""How many epochs are pulled again at once."""


class Relaying:
    """is_over: everyone has ended the run."""

    def __init__(
        self, rules: Rules, holdings: Holdings, exchange: Exchange, ending: Ending, membership: Membership
    ) -> None:
        self.is_over = False
        self._rules = rules
        self._holdings = holdings
        self._exchange = exchange
        self._ending = ending
        self._membership = membership
        self._wanted: int | None = None
        """The first epoch whose sum is looked for."""
        self._ask_at, self._pause = 0.0, ASK_SECONDS_MIN

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

    def ask_for_sums(self, linked: Collection[OriginId], outbox: Outbox[Outputs], now: float) -> None:
        """Once per comparison period: pulls the epochs that others may have compacted, from one neighbour after
        the other. One that has not sends the bundles again, so there is more and more time between two pulls."""
        epochs = self._holdings.closings.certified()[:SUMS_MAX]
        if (first := min(epochs, default=None)) != self._wanted:
            self._wanted, self._pause = first, ASK_SECONDS_MIN
            self._ask_at = now + self._pause
        if not epochs or now < self._ask_at or not linked or self._exchange.donors.donor is not None:
            return
        self._ask_at, self._pause = now + self._pause, min(2 * self._pause, ASK_SECONDS_MAX)
        donor, period = self._exchange.donors.ask_next(), self._rules.refresh_period
        frontier = self._holdings.frontier
        spans = [(one, epoch * period, (epoch + 1) * period - 1) for one in frontier.origins for epoch in epochs]
        outbox.outputs.pull.append((donor, without(frontier.held(), spans)))
