"""Catching up: whether a node knows enough to speak.

A node speaks once it has held all that one neighbour held when they linked. That is enough as long as its own journal
is whole, for the journal knows everything it ever said. After a journal was lost or damaged it is not: a last word of
ours may live with one neighbour alone. Whatever we said went through our neighbours of that time, so a *forgetful* node
reaches all of them that are still present, and waits a moment for what is on its way, before it speaks again.
"""

from collections.abc import Collection, Iterable

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.messages import STEP_MAX, Held, Member, OriginId

SETTLE_SECONDS = 4.0
"""A forgetful node waits so long after it has reached the last neighbour: two rounds of repair."""


class CatchUp:
    """From the start of a process until it may speak. linked_at: the moment of the first link. is_over: it has spoken,
    or is about to."""

    def __init__(self, patience_seconds: float) -> None:
        self.is_forgetful = False
        self.is_over = False
        self.linked_at: float | None = None
        self._patience_seconds = patience_seconds
        self._past_age = (0, -1)
        self._past_neighbours: set[OriginId] = set()
        self._give_up_at = float("inf")
        self._reached_count = 0
        self._settled_at = 0.0

    def remember(self, past: Member | None, *, is_journal_damaged: bool) -> None:
        """What the journal knows of our past. Whoever did not come to speak in it may have been forgetful already."""
        if past is not None:
            self._past_age = past.age
            self._past_neighbours = set(past.neighbours)
        self.is_forgetful = is_journal_damaged or (past is not None and past.first_step == STEP_MAX)

    @property
    def owed(self) -> set[OriginId]:
        """Past neighbours that our statement goes on naming until we speak: another crash shall not forget them."""
        return set() if self.is_over or not self.is_forgetful else self._past_neighbours

    def link(self, now: float) -> None:
        if self.linked_at is None:
            self.linked_at = now
            self._give_up_at = now + self._patience_seconds

    def hear_of_past(self, member: Member) -> None:
        """The network knows this of a past life of ours; if the journal does not, it was lost."""
        if member.age > self._past_age:
            self.is_forgetful = True
            self._past_age = member.age
            self._past_neighbours |= set(member.neighbours)

    def is_overdue(self, now: float) -> bool:
        """Has patience run out?"""
        return now >= self._give_up_at

    def may_speak(
        self, reached: Collection[OriginId], present: Collection[OriginId], now: float, *, has_pulled: bool
    ) -> bool:
        """reached: neighbours all of whose frontier we have held; present: origins that have not left. has_pulled: a
        pull has come to its end, and with it the digest to compare with."""
        if not reached:
            return False
        if now >= self._give_up_at:
            return True
        if not has_pulled:
            return False
        if not self.is_forgetful:
            return True
        if len(reached) != self._reached_count:
            self._reached_count, self._settled_at = len(reached), now + SETTLE_SECONDS
        return now >= self._settled_at and not self.unreached(reached, present)

    def unreached(self, reached: Collection[OriginId], present: Collection[OriginId]) -> set[OriginId]:
        """Past neighbours that a forgetful node has to reach yet."""
        return {o for o in self._past_neighbours if o in present and o not in reached} if self.is_forgetful else set()


def describe_progress(frontier: Frontier, goal: Iterable[Held]) -> dict[str, int]:
    """How much of a neighbour's frontier is held, in steps of all origins together."""
    wanted = held = 0
    for one in goal:
        spans = [(0, one.mark - 1), *one.beyond] if one.mark else list(one.beyond)
        wanted += sum(last - first + 1 for first, last in spans)
        mark = frontier.mark(one.origin)
        held += sum(min(last + 1, mark) - first for first, last in spans if first < mark)
    return {"held": held, "wanted": wanted, "percent": round(100 * held / wanted) if wanted else 100}
