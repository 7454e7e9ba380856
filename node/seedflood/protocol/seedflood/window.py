"""The windows of rounds: when has a node waited long enough for the updates of everyone?

`strict` ones close when the updates of every expected origin are here. `bounded` ones do not wait for silent hosts,
and not long for slow ones. With `delay = D` round r is measured with exactly the updates of the rounds up to r - D - 1
applied, on every host; so a window closes only when it is *in the way* of the next round.

Decisions depend only on what was received and what time it is. docs/explanation/consensus.md has more.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.outputs import CloseReason
from seedflood.protocol.seedflood.rules import Rules, WindowRule
from seedflood.protocol.swarm.liveness import Liveness
from seedflood.protocol.swarm.membership import Membership
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.view import WindowView


def is_received(frontier: Frontier, origin: OriginId, first: int, last: int, rule: WindowRule) -> bool:
    """Has the origin published everything of the steps first..last that it will publish? It takes part from `first` on.

    Strict windows want every step: an origin that jumped to this round may not know of the last one yet. In
    bounded ones, who speaks of a later step has moved on.
    """
    return frontier.holds(origin, first, last) if rule == "strict" else frontier.last(origin) >= last


@dataclass(slots=True)
class Window:
    """An open window over steps first..last.

    began_at: when we began to measure the round. opened_at: when our own updates were published, or were not due.
    expected: who takes part and is not silent. waiting: those of them whose updates are missing. Both are kept
    current, so a decision costs nothing. half_at: when the updates of half of the expected origins were here, ours
    among them.
    """

    first: int
    last: int
    began_at: float
    opened_at: float
    expected: set[OriginId] = field(default_factory=set)
    waiting: set[OriginId] = field(default_factory=set)
    half_at: float | None = None

    def note_half(self, now: float) -> None:
        """The hosts that are expected or waited for may have changed: are the updates of half of them here now?"""
        if self.half_at is None and 2 * len(self.waiting) <= len(self.expected):
            self.half_at = now


@dataclass(eq=False, repr=False)
class OpenWindows:
    """The open windows of a node, oldest first. bound: returns how long news take across the network at most, in
    seconds. began_at: when the round began that is measured, or was measured last; infinite before the first one.
    until_joined: when to stop waiting for hosts that never came, if more than half did (strict windows never stop)."""

    _rules: Rules
    _membership: Membership
    _frontier: Frontier
    _liveness: Liveness
    _bound: Callable[[], float]
    began_at: float = float("inf")
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
        began_at = min(self.began_at, now)  # after a restart rounds are open that this process has not measured
        window = Window(step, step + self._rules.local_steps - 1, began_at, now)
        for origin in self._membership.origins():
            self._review(window, origin)
        window.note_half(now)
        self._open.append(window)
        expected = [one for one in self._membership.expected(window.last) if self._turns.has(one, window.last)]
        missing = {one for one in expected if not self._is_received(window, one)}
        self._liveness.opened(expected, missing, now)

    def reopen(self, step: int, now: float) -> None:
        """Opens again the windows of the rounds before `step` that need not be applied when that round is measured."""
        for first in range(self._rules.applied_before(step), step, self._rules.local_steps):
            self.open(first, now)

    def in_the_way(self, following: int) -> Window | None:
        """The oldest window, if it has to close before the round of `following` is measured."""
        oldest = self.oldest
        return oldest if oldest is not None and oldest.first < self._rules.applied_before(following) else None

    def close(self) -> Window:
        """Closes the oldest window, and returns it."""
        return self._open.popleft()

    def clear(self) -> None:
        self._open.clear()

    def received(self, origin: OriginId, now: float) -> None:
        """Something new of this origin is held."""
        for window in self._open:
            if origin in window.waiting and self._is_received(window, origin):
                window.waiting.discard(origin)
                window.note_half(now)
        self._await(origin, now)  # what came may not be the last that is waited for

    def review(self, origin: OriginId, now: float) -> None:
        """Whether the origin takes part or is suspected may have changed."""
        for window in self._open:
            self._review(window, origin)
            window.note_half(now)
        word = self._membership.spoken(origin)
        last = None if word is None or word.last_step is None else self._turns.last(origin, word.last_step)
        if last is not None and self._frontier.last(origin) >= last:
            self._liveness.forget(origin)  # it has published all that it will
        self._await(origin, now)  # perhaps it was not known when the window opened

    # When the oldest one closes

    def close_reason(self, window: Window, now: float) -> CloseReason | None:
        """Why the window may close now, or None if it may not. The node asks again whenever that may change."""
        if self.is_waiting_for_joins(window, now):
            return None
        if not window.waiting:
            return "all received"
        return "bound" if now >= self._closes_at(window) else None

    def wake_at(self) -> float:
        """The moment at which time alone closes the oldest window; infinite if only news can."""
        window = self.oldest
        if window is None or self._rule == "strict":
            return float("inf")
        joined_at = self._joined_at(window)
        return max(joined_at, self._closes_at(window)) if window.waiting else joined_at

    def is_waiting_for_joins(self, window: Window, now: float) -> bool:
        """Does it wait for clients that do not take part yet?"""
        return now < self._joined_at(window)

    def unjoined(self, window: Window) -> int:
        """How many clients have still to come. Strict windows close one after the other, so the first one is enough to
        hold a run back."""
        if self._rule == "strict":
            return self._membership.unjoined(self._rules.clients, is_beginning=not window.first)
        return self._membership.unjoined(self._rules.clients) + len(self.to_return(window))

    def to_return(self, window: Window) -> list[Member]:
        """Who was there and has left before anything began: a bounded run waits for its return as if it had never come.
        Else whoever is started again first, after a fault that all hosts have, would train alone."""
        return self._membership.gone_before_speaking() if self._rule != "strict" and not window.first else []

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
        closes_at = self._closes_at(window)
        return WindowView(
            first=window.first,
            last=window.last,
            opened_at=window.opened_at,
            expected=len(self._membership.expected(window.last)),
            waiting=tuple(sorted(window.waiting)),
            bound_seconds=closes_at - window.opened_at if closes_at < float("inf") else None,
        )

    def _joined_at(self, window: Window) -> float:
        """From when on a window does not wait for clients that have not come; infinite until enough have.

        Strict windows need all of them. Bounded ones do without the others when patience is over, if more than half
        are here: a host that is started first does not train alone.
        """
        unjoined = self.unjoined(window)
        if not unjoined:
            return window.opened_at
        is_enough = self._rule != "strict" and 2 * unjoined < self._rules.clients
        return self.until_joined if is_enough else float("inf")

    def _closes_at(self, window: Window) -> float:
        """The moment at which a window closes without the updates that are missing; infinite if it waits for them.

        Bounded windows wait until the updates of half of the hosts are here, and then as long again for whoever usually
        comes within that time. For the others they wait only as long as news may fly.
        """
        if self._rule == "strict" or window.half_at is None:
            return float("inf")
        spare = window.half_at - window.began_at
        is_worth_it = any(self._liveness.lateness(origin) <= spare for origin in window.waiting)
        return window.half_at + self._bound() + (spare if is_worth_it else 0.0)

    def _review(self, window: Window, origin: OriginId) -> None:
        """Is the origin to be waited for? Strict windows wait for suspects, too."""
        is_silent = self._rule != "strict" and origin in self._liveness.suspects
        if is_silent or not self._membership.is_expected(origin, window.last):
            window.expected.discard(origin)
            window.waiting.discard(origin)
            return
        window.expected.add(origin)
        if self._is_received(window, origin):
            window.waiting.discard(origin)
        else:
            window.waiting.add(origin)

    def _is_received(self, window: Window, origin: OriginId) -> bool:
        first, last = self._first_of(window, origin), self._turns.last(origin, window.last)
        return last < first or is_received(self._frontier, origin, first, last, self._rule)

    def _first_of(self, window: Window, origin: OriginId) -> int:
        """The first step of an origin that this window expects."""
        member = self._membership.spoken(origin)
        return window.first if member is None else min(member.first_step, window.last)

    def _await(self, origin: OriginId, now: float) -> None:
        """Reports to the failure detector that some window waits for this origin: then it is suspected one day."""
        if any(origin in window.waiting for window in self._open):
            self._liveness.opened((origin,), {origin}, now)
