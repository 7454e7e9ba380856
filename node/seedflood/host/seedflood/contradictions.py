"""What operators see of how the hosts agree (`training.seedflood.reputation`): a figure of each, and who contradicts.

Reputations begin anew with every epoch. So the word of the last epoch is kept of a host until it has published as many
steps as a verdict takes. Where no gradients are sent, nobody has a reputation.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from seedflood.operations.hub import TelemetryHub
from seedflood.protocol.origin import OriginId, fingerprint
from seedflood.protocol.view import MemberView, View
from seedflood.training.seedflood.reputation import FEWEST, Reputations

CONTRADICTS = (
    'a host contradicts the others: its updates do not count; honest hosts with unlike rows need clip = "none"'
)
COUNTS_AGAIN = "a host agrees with the others again: its updates count"


class Known(NamedTuple):
    """What is known of a host."""

    reputation: float
    contradicts: bool


class Contradictions:
    """Gets the reputations of the hosts after each window, and logs when that changes for one of them."""

    def __init__(self, hub: TelemetryHub, name: Callable[[OriginId], str]) -> None:
        """name: of a host, for people."""
        self._hub = hub
        self._name = name
        self._known: dict[OriginId, Known] = {}

    def update(self, step: int, reputations: Reputations) -> None:
        """reputations: in the open epoch, after the window that ends with this step."""
        # Where half of the hosts contradict, nobody knows who is right, and the rule lets all of them count.
        counting = set(reputations.counting(list(reputations.by_origin)))
        for origin, record in reputations.by_origin.items():
            if record.steps < FEWEST:
                continue
            before = self._known.get(origin)
            known = self._known[origin] = Known(record.score, origin not in counting)
            if known.contradicts != (before is not None and before.contradicts):
                self._log_change(step, origin, known)

    def add_to(self, view: View) -> View:
        """The view with the reputations of all but those who were removed. Who has left keeps its own: at the end of a
        run all have."""
        return replace(view, members=tuple(self._described(member) for member in view.members))

    def _described(self, member: MemberView) -> MemberView:
        known = self._known.get(member.origin)
        if known is None or member.status == "removed":
            return member
        return replace(member, reputation=known.reputation, contradicts=known.contradicts)

    def _log_change(self, step: int, origin: OriginId, known: Known) -> None:
        event, level = (CONTRADICTS, "warning") if known.contradicts else (COUNTS_AGAIN, "info")
        reputation = round(known.reputation, 2)
        self._hub.log(
            event, level, member=self._name(origin), origin=fingerprint(origin), step=step, reputation=reputation
        )
