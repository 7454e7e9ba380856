"""What the clocks of this host and of its neighbours read, for a host whose clock says that it may not take part.

Neighbours say it in their hellos. It is shown to the operator alone: a neighbour may lie, so nothing is decided by it.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.access import AccessList
from seedflood.protocol.swarm.messages import Hello

SHOWN_MAX = 3
"""The most neighbours whose clocks one sentence names."""


class Clocks:
    """access: of this host. steady: returns seconds that nobody can set."""

    def __init__(self, access: AccessList, steady: Callable[[], float]) -> None:
        self._access = access
        self._steady = steady
        self._readings: dict[OriginId, tuple[str, float]] = {}
        """Of hosts on the roster: the name, and how far the clock is ahead of our steady one."""

    def compare(self, hello: Hello) -> None:
        """A host that has proven its key says what its clock reads, be it welcome or not."""
        if hello.clock and self._access.lists(hello.member.public_key):
            self._readings[hello.member.origin] = hello.member.name, hello.clock - self._steady()

    def fault(self) -> str | None:
        """Why this host waits, in one sentence; None if its clock lets it take part."""
        access = self._access
        if not access.is_untimely or access.roster is None:
            return None
        own, now = access.own_entry, access.calendar()
        if own is None or own.is_valid(now):
            what = f"by this host's clock nobody else of the roster (serial {access.roster.serial}) may take part now"
        else:
            ends = [spell(at) if at is not None else "-" for at in (own.not_before, own.not_after)]
            what = f"the roster (serial {access.roster.serial}) lists this host only from {ends[0]} to {ends[1]}"
        return f"{what}; this host's clock reads {spell(now)}, {self._others()}"

    def _others(self) -> str:
        steady = self._steady()
        shown = [f"{spell(offset + steady)} ({name})" for name, offset in self._readings.values()]
        if not shown:
            return "and no neighbour has stated what its own reads"
        rest = f" and {len(shown) - SHOWN_MAX} more" if len(shown) > SHOWN_MAX else ""
        return "its neighbours' " + ", ".join(shown[:SHOWN_MAX]) + rest


def spell(seconds: float) -> str:
    """Unix seconds as a time, whatever a neighbour or a broken clock says."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return "a time that no calendar has"
