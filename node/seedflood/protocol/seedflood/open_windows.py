"""The open windows of a node, oldest first: one, or with `delay = D` up to D + 1 of them.

On every host round r is measured with exactly the updates of the rounds up to r - D - 1 applied, so the windows of the
D rounds before it may be open meanwhile. They close in order, and as late as possible: if updates of round r - D were
applied while round r is still to be measured, hosts would measure with different sums. So a window closes only when it
is *in the way* of the next round.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.outputs import CloseReason
from seedflood.protocol.seedflood.rounds import applied_before
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.window import Window
from seedflood.protocol.swarm.liveness import Liveness
from seedflood.protocol.swarm.membership import Membership


@dataclass(eq=False, repr=False)
class OpenWindows:
    """until_joined: when to stop waiting for hosts that never came. bound: returns how long a bounded window waits, in
    seconds."""

    _rules: Rules
    _membership: Membership
    _frontier: Frontier
    _liveness: Liveness
    _bound: Callable[[], float]
    until_joined: float = 0.0
    _open: deque[Window] = field(default_factory=deque)

    @property
    def oldest(self) -> Window | None:
        return self._open[0] if self._open else None

    @property
    def latest(self) -> Window | None:
        return self._open[-1] if self._open else None

    def open(self, step: int, now: float) -> None:
        """Opens the window of the round that begins at `step`."""
        rules = self._rules
        last = step + rules.local_steps - 1
        window = Window(step, last, now, rules.window, rules.clients, self.until_joined, rules.turns)
        window.expect(self._membership, self._frontier, self._liveness.suspects)
        self._open.append(window)
        expected = (one for one in self._membership.expected(last) if rules.turns.has(one, last))
        self._liveness.opened(expected, window.waiting, now)

    def reopen(self, step: int, now: float) -> None:
        """Opens again the windows of the rounds before `step` that need not be applied when that round is measured."""
        for first in range(applied_before(step, self._rules), step, self._rules.local_steps):
            self.open(first, now)

    def in_the_way(self, following: int) -> Window | None:
        """The oldest window, if it has to close before the round of `following` is measured."""
        oldest = self.oldest
        return oldest if oldest is not None and oldest.first < applied_before(following, self._rules) else None

    def close_reason(self, window: Window, now: float) -> CloseReason | None:
        return window.close_reason(self._membership, now, self._bound)

    def close(self) -> Window:
        """Closes the oldest window, and returns it."""
        return self._open.popleft()

    def clear(self) -> None:
        self._open.clear()

    def wake_at(self) -> float:
        """The moment at which time alone closes the oldest window; infinite if only news can."""
        oldest = self.oldest
        return float("inf") if oldest is None else oldest.wake_at(self._membership, self._bound)

    def hear(self, origin: OriginId, now: float) -> None:
        """Something new of this origin is held."""
        for window in self._open:
            window.hear(origin, self._membership, self._frontier)
        self._await(origin, now)  # what came may not be the last that is waited for

    def review(self, origin: OriginId, now: float) -> None:
        """Whether the origin takes part or is suspected may have changed."""
        for window in self._open:
            window.review(origin, self._membership, self._frontier, self._liveness.suspects)
        word = self._membership.spoken(origin)
        said = None if word is None or word.last_step is None else self._rules.turns.last(origin, word.last_step)
        if said is not None and self._frontier.last(origin) >= said:
            self._liveness.forget(origin)  # it has said all it will
        self._await(origin, now)  # perhaps it was not known when the window opened

    def _await(self, origin: OriginId, now: float) -> None:
        """Tells the failure detector that some window waits for this origin: then it is suspected one day."""
        if any(origin in window.waiting for window in self._open):
            self._liveness.opened((origin,), {origin}, now)
