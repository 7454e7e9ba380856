"""What is held but not applied yet: each bundle waits here for its window, or for the next one if it came late.

In `strict` windows a bundle of a later round waits for that round. There is never much of that, because nobody goes on
without us. In `bounded` ones a fast host may be any number of rounds ahead of a slow one. There, too, a bundle is
applied with its own window, so that nodes that reach each other in time apply the same and can compare digests. But
only some rounds of everyone are kept; beyond that the oldest bundles are applied early.

Bundles are kept by their last step, so taking some of them costs no more if many others wait.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heappop, heappush

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.seedflood.bundles import Bundle, Update
from seedflood.protocol.seedflood.outputs import ClosedWindow, CloseReason
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.seedflood.window import Window
from seedflood.protocol.swarm.outputs import Event
from seedflood.protocol.swarm.presence import Presence

AHEAD_BUNDLES = 64
"""How many bundles per client may wait for later windows if they are bounded (26 KB)."""


class Pending:
    """Waiting bundles by their last step, then in order of arrival. applied: the frontier of all that was taken from
    here."""

    def __init__(self) -> None:
        self.applied = Frontier()
        self._by_last: dict[int, list[Bundle]] = {}
        self._lasts: list[int] = []
        """A heap of the keys."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Bundle]:
        for last in sorted(self._lasts):
            yield from self._by_last[last]

    def add(self, bundles: Iterable[Bundle]) -> None:
        """These bundles wait from now on."""
        latest = -1
        for bundle in bundles:
            _, step, length, _, _ = bundle
            last = step + length - 1
            if last != latest:
                latest, there = last, self._at(last)
            there.append(bundle)
            self._count += 1

    def _at(self, last: int) -> list[Bundle]:
        there = self._by_last.get(last)
        if there is None:
            there = self._by_last[last] = []
            heappush(self._lasts, last)
        return there

    def take_before(self, step: int) -> ClosedWindow | None:
        """Takes everything of the steps below `step`, outside of any window; None if there is nothing."""
        return self._outside(self._take(step - 1), step)

    def take_covered(self, frontier: Frontier) -> ClosedWindow | None:
        """Takes everything that another frontier covers, outside of any window; None if there is nothing."""
        return self._outside(self.drop(lambda bundle: frontier.holds(*bundle.span)), 0)

    def take_below(self, ends: Mapping[OriginId, int]) -> ClosedWindow | None:
        """Takes everything below these steps, given by origin, outside of any window; None if there is nothing."""
        return self._outside(self.drop(lambda bundle: bundle.last < ends.get(bundle.origin, 0)), 0)

    def take_window(self, window: Window, rules: Rules, reason: CloseReason, now: float) -> ClosedWindow:
        """Takes what is applied with a window that closes now: its own updates, older ones that came late, and those of
        later rounds that may not wait."""
        bundles = self._take(window.last)
        if rules.window == "bounded":
            bundles += self._take(STEP_MAX, keep=AHEAD_BUNDLES * rules.clients)
        updates = _updates(bundles)
        return ClosedWindow(
            steps=(window.first, window.last),
            updates=updates,
            late=sum(update.step < window.first for update in updates),
            received=len({update.origin for update in updates if update.step >= window.first}),
            missing=tuple(window.waiting),
            reason=reason,
            waited_seconds=now - window.opened_at,
        )

    def drop(self, is_meant: Callable[[Bundle], bool]) -> list[Bundle]:
        """Takes all bundles that are meant, which are applied outside of any window, as a part of a sum, or not at all.
        Looks at every one."""
        rest: list[Bundle] = []
        meant: list[Bundle] = []
        for bundle in self:
            (meant if is_meant(bundle) else rest).append(bundle)
        self._by_last.clear()
        self._lasts.clear()
        self._count = 0
        self.add(rest)
        self._note(meant)
        return meant

    def _take(self, last: int, keep: int = 0) -> list[Bundle]:
        """Takes the bundles up to this last step, the oldest first, as long as more than `keep` are left."""
        taken: list[Bundle] = []
        while self._lasts and self._lasts[0] <= last and self._count > keep:
            bundles = self._by_last.pop(heappop(self._lasts))
            self._count -= len(bundles)
            taken += bundles
        self._note(taken)
        return taken

    def _note(self, taken: Iterable[Bundle]) -> None:
        for bundle in taken:
            self.applied.add(*bundle.span)

    @staticmethod
    def _outside(bundles: list[Bundle], step: int) -> ClosedWindow | None:
        updates = _updates(bundles)
        return ClosedWindow((step, step - 1), updates, 0, 0, (), "no waiting", 0.0) if updates else None


def _updates(bundles: Iterable[Bundle]) -> tuple[Update, ...]:
    return tuple(update for bundle in bundles for update in bundle.updates())


def describe_closing(closed: ClosedWindow, presence: Presence, *, is_news: bool) -> Event:
    """The line of the log about a closed window: whose updates it has, whose it lacks, and why it closed now. is_news:
    is it worth the attention of people?"""
    name = presence.membership.name
    facts: dict[str, object] = {
        "step": closed.steps[1],
        "reason": closed.reason,
        "received": closed.received,
        "missing": sorted(map(name, closed.missing)),
        "silent": sorted(map(name, presence.liveness.suspects)),
        "late": closed.late,
        "waited_seconds": round(closed.waited_seconds, 4),
    }
    return Event("window closed", "info" if is_news else "debug", facts)
