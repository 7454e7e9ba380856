"""What is held but not applied yet: each bundle waits here for its window, or for the next one if it came late."""

from collections.abc import Callable, Iterable

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.membership import Membership
from seedflood.protocol.messages import Bundle, OriginId, Update
from seedflood.protocol.outputs import ClosedWindow, CloseReason, Event
from seedflood.protocol.window import Window


class Pending:
    """Bundles in order of arrival. applied: the frontier of what was taken from here."""

    def __init__(self) -> None:
        self.bundles: list[Bundle] = []
        self.applied = Frontier()

    def take_before(self, step: int) -> ClosedWindow | None:
        """Everything of the steps below `step`, outside of any window; None if there is nothing."""
        return self._outside(self._take(lambda bundle: bundle.last < step), step)

    def take_covered(self, frontier: Frontier) -> ClosedWindow | None:
        """Everything that another frontier covers, outside of any window; None if there is nothing."""
        return self._outside(self._take(lambda bundle: frontier.holds(*bundle.span)), 0)

    def take_window(self, window: Window, reason: CloseReason, now: float) -> ClosedWindow:
        """What a window that closes now gives to apply: its own updates, and older ones that came late."""
        updates = self._take(lambda bundle: bundle.last <= window.last)
        return ClosedWindow(
            steps=(window.first, window.last),
            updates=updates,
            late=sum(update.step < window.first for update in updates),
            heard=len({update.origin for update in updates if update.step >= window.first}),
            missing=tuple(window.waiting),
            reason=reason,
            waited_seconds=now - window.opened_at,
        )

    def drop(self, is_meant: Callable[[Bundle], bool]) -> None:
        """These are applied by other means."""
        self._take(is_meant)

    def _take(self, is_due: Callable[[Bundle], bool]) -> tuple[Update, ...]:
        due: list[Bundle] = []
        rest: list[Bundle] = []
        for bundle in self.bundles:
            (due if is_due(bundle) else rest).append(bundle)
        self.bundles = rest
        for bundle in due:
            self.applied.add(*bundle.span)
        return _updates(due)

    @staticmethod
    def _outside(updates: tuple[Update, ...], step: int) -> ClosedWindow | None:
        return ClosedWindow((step, step - 1), updates, 0, 0, (), "no waiting", 0.0) if updates else None


def _updates(bundles: Iterable[Bundle]) -> tuple[Update, ...]:
    return tuple(update for bundle in bundles for update in bundle.updates())


def describe_closing(closed: ClosedWindow, membership: Membership, silent: Iterable[OriginId], bound: float) -> Event:
    """The line that says who was heard, who was not, and why the window closed now.

    silent: suspects, for whom it did not wait. bound: seconds after which it closes whoever is missing.
    """
    facts: dict[str, object] = {
        "step": closed.steps[1],
        "reason": closed.reason,
        "heard": closed.heard,
        "missing": sorted(membership.name(origin) for origin in closed.missing),
        "silent": sorted(membership.name(origin) for origin in silent),
        "late": closed.late,
        "waited_seconds": round(closed.waited_seconds, 4),
    }
    if closed.reason == "bound":
        facts["bound_seconds"] = round(bound, 4)
    return Event("window closed", "info" if closed.missing else "debug", facts)
