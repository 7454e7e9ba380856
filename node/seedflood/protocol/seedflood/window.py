"""The window of a round: when has a node waited long enough for the updates of everyone?

A *round* is `local_steps` consecutive steps, measured between two exchanges. Its window opens when the node publishes,
and closes by one of three rules:

    strict    when every expected origin was heard: exact consensus, the paper's algorithm
    bounded   the same, or when diameter x hop bound has passed: what comes later is applied later, never lost
    none      at once: the node applies whatever has arrived

Decisions depend only on what was heard and what time it is; the node asks again whenever either changes.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Literal

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.outputs import CloseReason
from seedflood.protocol.seedflood.turns import ALL, Turns
from seedflood.protocol.swarm.membership import Membership

WindowRule = Literal["strict", "bounded", "none"]


def is_heard(frontier: Frontier, origin: OriginId, first: int, last: int, rule: WindowRule) -> bool:
    """Has the origin said everything about the steps first..last that it will say? It takes part from `first` on.

    Strict windows want every step: an origin that jumped to this round may not have heard of the last one yet. Where
    nodes do not wait for each other, one that speaks of a later step has moved on.
    """
    return frontier.holds(origin, first, last) if rule == "strict" else frontier.last(origin) >= last


@dataclass(slots=True)
class Window:
    """An open window over steps first..last.

    opened_at: when our own updates were published, or were not due. clients: how many origins must take part before a
    window may close. until_joined: when to stop waiting for hosts that never came (strict windows never stop). turns:
    who measures in it. waiting: the expected origins that were not heard yet; `expect` and `hear` keep it current, so a
    decision costs nothing.
    """

    first: int
    last: int
    opened_at: float
    rule: WindowRule
    clients: int
    until_joined: float
    turns: Turns = ALL
    waiting: set[OriginId] = field(default_factory=set)

    def expect(self, membership: Membership, frontier: Frontier, suspects: Collection[OriginId] = ()) -> None:
        """The window opens."""
        self.waiting.clear()
        for origin in membership.origins():
            self.review(origin, membership, frontier, suspects)

    def review(
        self, origin: OriginId, membership: Membership, frontier: Frontier, suspects: Collection[OriginId] = ()
    ) -> None:
        """Whether the origin takes part or is suspected may have changed. Strict windows wait for suspects, too."""
        if (
            membership.is_expected(origin, self.last)
            and not self._is_heard(origin, membership, frontier)
            and (self.rule == "strict" or origin not in suspects)
        ):
            self.waiting.add(origin)
        else:
            self.waiting.discard(origin)

    def hear(self, origin: OriginId, membership: Membership, frontier: Frontier) -> None:
        """Something new of this origin is held."""
        if origin in self.waiting and self._is_heard(origin, membership, frontier):
            self.waiting.discard(origin)

    def _is_heard(self, origin: OriginId, membership: Membership, frontier: Frontier) -> bool:
        first, last = self._first_of(origin, membership), self.turns.last(origin, self.last)
        return last < first or is_heard(frontier, origin, first, last, self.rule)

    def _first_of(self, origin: OriginId, membership: Membership) -> int:
        """The first step of an origin that this window expects."""
        member = membership.spoken(origin)
        return self.first if member is None else min(member.first_step, self.last)

    def first_lacking(self, origin: OriginId, membership: Membership, frontier: Frontier) -> int | None:
        """The first step of the origin for which this window waits; None if all of them are held."""
        first = self._first_of(origin, membership)
        if self.rule != "strict":
            step = max(first, frontier.last(origin) + 1)
            return step if step <= self.last else None
        gaps = frontier.gaps(origin, self.turns.last(origin, self.last))
        return next((max(first, low) for low, high in gaps if high >= first), None)

    def is_waiting_for_joins(self, membership: Membership, now: float) -> bool:
        """Does it wait for clients that do not take part yet?"""
        return (self.rule == "strict" or now < self.until_joined) and self.unjoined(membership) > 0

    def unjoined(self, membership: Membership) -> int:
        """How many clients have still to come. Strict windows close one after the other, so the first one is enough to
        hold a run back."""
        return membership.unjoined(self.clients, is_beginning=self.rule == "strict" and not self.first)

    def deadline(self, bound: Callable[[], float]) -> float:
        """The moment at which the window closes even if hosts are missing; infinite unless it is bounded."""
        return self.opened_at + bound() if self.rule == "bounded" else float("inf")

    def wake_at(self, membership: Membership, bound: Callable[[], float]) -> float:
        """The moment at which time alone closes the window; infinite if only news can."""
        if self.rule == "strict":
            return float("inf")
        all_joined_at = self.opened_at if membership.taking_part >= self.clients else self.until_joined
        return max(all_joined_at, self.deadline(bound)) if self.rule == "bounded" and self.waiting else all_joined_at

    def close_reason(self, membership: Membership, now: float, bound: Callable[[], float]) -> CloseReason | None:
        """Why the window may close now, or None if it may not."""
        if self.is_waiting_for_joins(membership, now):
            return None
        if self.rule == "none":
            return "no waiting"
        if not self.waiting:
            return "all heard"
        return "bound" if now >= self.deadline(bound) else None
