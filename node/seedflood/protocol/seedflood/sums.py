"""Which sums a node looks for: those that have replaced bundles on other hosts, and that it cannot make by itself.

That concerns a host that holds a step which came too late for the votes of the others, and a relay. Once enough hosts
have voted for such a sum, the node pulls its epoch once more, from one neighbour after the other. What the sum does not
cover stays beside it.

Why a host must not stay with its own sum: docs/explanation/consensus.md.
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
"""How many epochs a node pulls again at once."""


class WantedSums:
    """The sums that this node looks for, and when it asks for them next."""

    def __init__(self, rules: Rules, holdings: Holdings, donors: Donors, *, is_relay: bool) -> None:
        self.wanted: list[int] = []
        """The epochs of these sums."""
        self._period = rules.refresh_period
        self._holdings = holdings
        self._donors = donors
        self._is_relay = is_relay
        self._ask_at = 0.0
        self._pause = ASK_SECONDS_MIN
        """The seconds from the next pull to the one after it."""

    def ask(self, step: int, linked: Collection[OriginId], outbox: Outbox[Outputs], now: float) -> None:
        """Called once per comparison period. Pulls, but waits twice as long each time. step: only epochs count that are
        over for a node that begins a round there."""
        wanted = self._holdings.closings.summed_elsewhere(step, is_relay=self._is_relay)[:SUMS_MAX]
        if wanted[:1] != self.wanted[:1]:
            self._pause = ASK_SECONDS_MIN
            self._ask_at = now + self._pause
        self.wanted = wanted
        if not wanted or now < self._ask_at or not linked or self._donors.donor is not None:
            return
        self._ask_at = now + self._pause
        self._pause = min(2 * self._pause, ASK_SECONDS_MAX)
        donor = self._donors.ask_next()
        frontier = self._holdings.frontier
        # We pretend to lack the first step of each epoch. A host that has a sum sends all of it for any step that it
        # covers. The others send one bundle of each origin at most.
        firsts = [epoch * self._period for epoch in wanted]
        spans = [(origin, first, first) for origin in frontier.origins for first in firsts]
        pretended = without(frontier.held(), spans)
        outbox.outputs.pull.append((donor, sendable(pretended)))
