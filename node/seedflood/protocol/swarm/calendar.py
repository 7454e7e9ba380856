"""The calendar of a host: by which time it judges how long others are on the roster.

Nothing final may follow from one reading of a clock: it may jump by decades, and be right again soon. So a jump of the
wall clock counts only when it has stood for an hour. Until then time passes here as the steady clock says. A machine
that was suspended has not jumped, if its steady clock goes on meanwhile.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

JUMP_SECONDS = 86_400.0
"""From so much on it is a jump: clocks of hosts may differ by a day in any case."""

HOLD_SECONDS = 3600.0


@dataclass(eq=False, repr=False)
class Calendar:
    """wall: returns unix seconds. steady: returns seconds that nobody can set."""

    wall: Callable[[], float]
    _steady: Callable[[], float]
    _offset: float = field(init=False)
    """How far the wall clock that counts is ahead of the steady one."""
    _jump: tuple[float, float] | None = None
    """(the offset that the wall clock has jumped to, when by the steady clock); None: it has not jumped."""

    def __post_init__(self) -> None:
        self._offset = self.wall() - self._steady()

    def settled(self) -> float:
        """The time that counts, in unix seconds."""
        steady = self._steady()
        offset = self.wall() - steady
        if abs(offset - self._offset) <= JUMP_SECONDS:
            self._offset, self._jump = offset, None
        elif self._jump is None or abs(offset - self._jump[0]) > JUMP_SECONDS:
            self._jump = offset, steady
        elif steady - self._jump[1] >= HOLD_SECONDS:
            self._offset, self._jump = offset, None
        return steady + self._offset
