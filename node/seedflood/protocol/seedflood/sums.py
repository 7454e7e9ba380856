"""Which sums a node looks for: those that take the place of bundles elsewhere, and will never do so here by themselves.

So it is with a host that holds a step which came too late for the votes of the others, and with a relay. Once enough
hosts have voted for such a sum, its epoch is pulled once more, from one neighbour after the other. What the sum does
not cover stays beside it.

Why a host must not stay with its own: docs/explanation/consensus.md.
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
        # Who has a sum sends all of it for any step that it covers; the others send one bundle of each origin at most.
        firsts = [epoch * self._period for epoch in wanted]
        spans = [(one, first, first) for one in frontier.origins for first in firsts]
        outbox.outputs.pull.append((donor, sendable(without(frontier.held(), spans))))
