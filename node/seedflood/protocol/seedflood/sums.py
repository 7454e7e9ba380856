"""Which sums a node looks for: those that take the place of bundles elsewhere, and will never do so here by themselves.

* A host may hold a step that came too late for the votes of the others. So it has voted for another sum, and could not
  make theirs any more. But where the order of steps matters (strict windows), its coefficients would differ from theirs
  for ever: they put that step behind the sum, and here it stands among the others.
* A relay has no coefficients, and takes no sum at all.

So once enough hosts have voted for a sum that cannot be made here, its epoch is pulled once more, from one neighbour
after the other. Whoever has compacted it answers with the sum and its certificate, and what the sum does not cover
stays beside it here, too. It may be that nobody has. So only the first step of every origin is asked for: whoever has
the sum sends all of it for any step that it covers, and others send no more than a bundle of each origin.
"""

from collections.abc import Collection

from seedflood.protocol.frontier import sendable, without
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.donors import Donors
from seedflood.protocol.seedflood.holdings import Holdings
from seedflood.protocol.seedflood.outputs import Outputs
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.voting import ASK_SECONDS_MAX, ASK_SECONDS_MIN
from seedflood.protocol.swarm.outputs import Outbox

SUMS_MAX = 16
"""How many epochs are pulled again at once."""


class WantedSums:
    """wanted: the epochs whose sums are looked for now."""

    def __init__(self, rules: Rules, holdings: Holdings, donors: Donors, *, is_relay: bool) -> None:
        self.wanted: list[int] = []
        self._period = rules.refresh_period
        self._holdings = holdings
        self._donors = donors
        self._is_relay = is_relay
        self._ask_at, self._pause = 0.0, ASK_SECONDS_MIN

    def ask(self, step: int, linked: Collection[OriginId], outbox: Outbox[Outputs], now: float) -> None:
        """Once per comparison period; pulls twice as far apart each time. step: a sum is taken only of what is over for
        who begins a round there."""
        wanted = self._holdings.closings.summed_elsewhere(step, is_relay=self._is_relay)[:SUMS_MAX]
        if wanted[:1] != self.wanted[:1]:
            self._pause = ASK_SECONDS_MIN
            self._ask_at = now + self._pause
        self.wanted = wanted
        if not wanted or now < self._ask_at or not linked or self._donors.donor is not None:
            return
        self._ask_at, self._pause = now + self._pause, min(2 * self._pause, ASK_SECONDS_MAX)
        donor, frontier = self._donors.ask_next(), self._holdings.frontier
        firsts = [epoch * self._period for epoch in wanted]
        spans = [(one, first, first) for one in frontier.origins for first in firsts]
        outbox.outputs.pull.append((donor, sendable(without(frontier.held(), spans))))
