"""What is held but not applied yet: each bundle waits here for its window, or for the next one if it came late."""

from seedflood.protocol.membership import Membership
from seedflood.protocol.messages import Bundle, Update
from seedflood.protocol.outputs import ClosedWindow, CloseReason, Event
from seedflood.protocol.window import Window


class Pending:
    """Bundles in order of arrival."""

    def __init__(self) -> None:
        self.bundles: list[Bundle] = []

    def take_before(self, step: int) -> ClosedWindow | None:
        """Everything of the steps below `step`, outside of any window; None if there is nothing."""
        updates = self._take(step)
        return ClosedWindow((step, step - 1), updates, 0, 0, (), "no waiting", 0.0) if updates else None

    def take_window(self, window: Window, reason: CloseReason, now: float) -> ClosedWindow:
        """What a window that closes now gives to apply: its own updates, and older ones that came late."""
        updates = self._take(window.last + 1)
        return ClosedWindow(
            steps=(window.first, window.last),
            updates=updates,
            late=sum(update.step < window.first for update in updates),
            heard=len({update.origin for update in updates if update.step >= window.first}),
            missing=tuple(window.waiting),
            reason=reason,
            waited_seconds=now - window.opened_at,
        )

    def _take(self, step: int) -> tuple[Update, ...]:
        due = [bundle for bundle in self.bundles if bundle.last < step]
        self.bundles = [bundle for bundle in self.bundles if bundle.last >= step]
        return tuple(update for bundle in due for update in bundle.updates())


def describe_closing(closed: ClosedWindow, membership: Membership) -> Event:
    """The line that says who was heard, who was not, and why the window closed now."""
    facts: dict[str, object] = {
        "step": closed.steps[1],
        "reason": closed.reason,
        "heard": closed.heard,
        "missing": [membership.name(origin) for origin in closed.missing],
        "late": closed.late,
        "waited_seconds": round(closed.waited_seconds, 4),
    }
    return Event("window closed", "info" if closed.missing else "debug", facts)
