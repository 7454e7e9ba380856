"""The windows of rounds: when has a node waited long enough for the updates of everyone?

A *round* is `local_steps` consecutive steps, measured between two exchanges. Its window opens when the node publishes,
and closes by one of two rules:

    strict    when every expected origin was heard: exact consensus, the paper's algorithm
    bounded   the same, or when diameter x hop bound has passed: what comes later is applied later, never lost

Decisions depend only on what was heard and what time it is; the node asks again whenever either changes.

One window is open, or with `delay = D` up to D + 1 of them. On every host round r is measured with exactly the updates
of the rounds up to r - D - 1 applied, so the windows of the D rounds before it may be open meanwhile. They close in
order, and as late as possible: if updates of round r - D were applied while round r is still to be measured, hosts
would measure with different sums. So a window closes only when it is *in the way* of the next round.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.outputs import CloseReason
from seedflood.protocol.seedflood.rounds import applied_before
from seedflood.protocol.seedflood.rules import Rules, WindowRule
from seedflood.protocol.swarm.liveness import Liveness
from seedflood.protocol.swarm.membership import Membership
from seedflood.protocol.view import WindowView


def is_heard(frontier: Frontier, origin: OriginId, first: int, last: int, rule: WindowRule) -> bool:
    """Has the origin said everything about the steps first..last that it will say? It takes part from `first` on.

    Strict windows want every step: an origin that jumped to this round may not have heard of the last one yet. In
    bounded ones, who speaks of a later step has moved on.
    """
    return frontier.holds(origin, first, last) if rule == "strict" else frontier.last(origin) >= last


@dataclass(slots=True)
class Window:
    """An open window over steps first..last. opened_at: when our own updates were published, or were not due. waiting:
    the expected origins that were not heard yet; it is kept current, so a decision costs nothing."""

    first: int
    last: int
    opened_at: float
    waiting: set[OriginId] = field(default_factory=set)


@dataclass(eq=False, repr=False)
class OpenWindows:
    """The open windows of a node, oldest first. bound: returns how long a bounded window waits, in seconds.
    until_joined: when to stop waiting for hosts that never came (strict windows never stop)."""

    _rules: Rules
    _membership: Membership
    _frontier: Frontier
    _liveness: Liveness
    _bound: Callable[[], float]
    until_joined: float = 0.0
    _open: deque[Window] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._rule, self._turns = self._rules.window, self._rules.turns

    @property
    def oldest(self) -> Window | None:
        return self._open[0] if self._open else None

    @property
    def latest(self) -> Window | None:
        return self._open[-1] if self._open else None

    def open(self, step: int, now: float) -> None:
        """Opens the window of the round that begins at `step`."""
        window = Window(step, step + self._rules.local_steps - 1, now)
        for origin in self._membership.origins():
            self._review(window, origin)
        self._open.append(window)
        expected = (one for one in self._membership.expected(window.last) if self._turns.has(one, window.last))
        self._liveness.opened(expected, window.waiting, now)

    def reopen(self, step: int, now: float) -> None:
        """Opens again the windows of the rounds before `step` that need not be applied when that round is measured."""
        for first in range(applied_before(step, self._rules), step, self._rules.local_steps):
            self.open(first, now)

    def in_the_way(self, following: int) -> Window | None:
        """The oldest window, if it has to close before the round of `following` is measured."""
        oldest = self.oldest
        return oldest if oldest is not None and oldest.first < applied_before(following, self._rules) else None

    def close(self) -> Window:
        """Closes the oldest window, and returns it."""
        return self._open.popleft()

    def clear(self) -> None:
        self._open.clear()

    def hear(self, origin: OriginId, now: float) -> None:
        """Something new of this origin is held."""
        for window in self._open:
            if origin in window.waiting and self._is_heard(window, origin):
                window.waiting.discard(origin)
        self._await(origin, now)  # what came may not be the last that is waited for

    def review(self, origin: OriginId, now: float) -> None:
        """Whether the origin takes part or is suspected may have changed."""
        for window in self._open:
            self._review(window, origin)
        word = self._membership.spoken(origin)
        said = None if word is None or word.last_step is None else self._turns.last(origin, word.last_step)
        if said is not None and self._frontier.last(origin) >= said:
            self._liveness.forget(origin)  # it has said all it will
        self._await(origin, now)  # perhaps it was not known when the window opened

    # When the oldest one closes

    def close_reason(self, window: Window, now: float) -> CloseReason | None:
        """Why the window may close now, or None if it may not."""
        if self.is_waiting_for_joins(window, now):
            return None
        if not window.waiting:
            return "all heard"
        return "bound" if self._rule == "bounded" and now >= window.opened_at + self._bound() else None

    def wake_at(self) -> float:
        """The moment at which time alone closes the oldest window; infinite if only news can."""
        window = self.oldest
        if window is None or self._rule == "strict":
            return float("inf")
        is_all_here = self._membership.taking_part >= self._rules.clients
        all_joined_at = window.opened_at if is_all_here else self.until_joined
        return max(all_joined_at, window.opened_at + self._bound()) if window.waiting else all_joined_at

    def is_waiting_for_joins(self, window: Window, now: float) -> bool:
        """Does it wait for clients that do not take part yet?"""
        return (self._rule == "strict" or now < self.until_joined) and self.unjoined(window) > 0

    def unjoined(self, window: Window) -> int:
        """How many clients have still to come. Strict windows close one after the other, so the first one is enough to
        hold a run back."""
        is_beginning = self._rule == "strict" and not window.first
        return self._membership.unjoined(self._rules.clients, is_beginning=is_beginning)

    def first_lacking(self, window: Window, origin: OriginId) -> int | None:
        """The first step of the origin for which this window waits; None if all of them are held."""
        first = self._first_of(window, origin)
        if self._rule != "strict":
            step = max(first, self._frontier.last(origin) + 1)
            return step if step <= window.last else None
        gaps = self._frontier.gaps(origin, self._turns.last(origin, window.last))
        return next((max(first, low) for low, high in gaps if high >= first), None)

    def view(self) -> WindowView | None:
        """The oldest one, for operators."""
        window = self.oldest
        if window is None:
            return None
        return WindowView(
            first=window.first,
            last=window.last,
            opened_at=window.opened_at,
            expected=len(self._membership.expected(window.last)),
            waiting=tuple(sorted(window.waiting)),
            bound_seconds=self._bound() if self._rule == "bounded" else None,
        )

    def _review(self, window: Window, origin: OriginId) -> None:
        """Is the origin to be waited for? Strict windows wait for suspects, too."""
        if (
            self._membership.is_expected(origin, window.last)
            and not self._is_heard(window, origin)
            and (self._rule == "strict" or origin not in self._liveness.suspects)
        ):
            window.waiting.add(origin)
        else:
            window.waiting.discard(origin)

    def _is_heard(self, window: Window, origin: OriginId) -> bool:
        first, last = self._first_of(window, origin), self._turns.last(origin, window.last)
        return last < first or is_heard(self._frontier, origin, first, last, self._rule)

    def _first_of(self, window: Window, origin: OriginId) -> int:
        """The first step of an origin that this window expects."""
        member = self._membership.spoken(origin)
        return window.first if member is None else min(member.first_step, window.last)

    def _await(self, origin: OriginId, now: float) -> None:
        """Tells the failure detector that some window waits for this origin: then it is suspected one day."""
        if any(origin in window.waiting for window in self._open):
            self._liveness.opened((origin,), {origin}, now)
